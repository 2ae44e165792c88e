/**
 * The JSON texts in a whole body of server-sent events: some JSON-RPC servers (those of MCP among them) answer a POST with a
 * short stream that ends after the answer. Which text is the answer is the reader's affair.
 */
import { isJson } from '../../base/json-scan.ts';

/** The data of each event that is one well-formed JSON text. Lines end with CR LF, LF or CR; several `data` lines are one text. */
export function* answersIn(body: Buffer): Generator<Buffer> {
  let data: string | null = null;
  for (const line of body
    .toString('utf8')
    .replace(/^\ufeff/, '')
    .split(/\r\n|\n|\r/)) {
    if (line === '') {
      const text: Buffer | null = data === null ? null : Buffer.from(data, 'utf8');
      data = null;
      if (text !== null && isJson(text)) yield text;
      continue;
    }
    if (!line.startsWith('data')) continue;
    if (line !== 'data' && line[4] !== ':') continue;
    const value = line.slice(5);
    const plain = value.startsWith(' ') ? value.slice(1) : value;
    data = data === null ? plain : `${data}\n${plain}`;
  }
}
