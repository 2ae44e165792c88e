/**
 * The JSON texts in server-sent events, as they come: some JSON-RPC servers (those of MCP among them) answer a POST with a stream,
 * which ends after the answer or stays open for more. Which text is the answer is the reader's affair.
 */
import { isJson } from '../../base/json-scan.ts';

const LF = 0x0a;
const CR = 0x0d;

/** Of one body. Lines end with CR LF, LF or CR; several `data` lines are one text. */
export class EventTexts {
  /** The line that has begun. */
  #line: Buffer[] = [];
  #isFirstLine = true;
  /** Of the event that has begun. */
  #data: string[] = [];
  #isAfterCr = false;

  /** The data of each event that is whole with these bytes, and is one well-formed JSON text. */
  take(bytes: Buffer): Buffer[] {
    const texts: Buffer[] = [];
    let from = this.#isAfterCr && bytes[0] === LF ? 1 : 0;
    for (let at = from; at < bytes.length; at++) {
      const c = bytes[at];
      if (c !== LF && c !== CR) continue;
      this.#lineEnd(bytes.subarray(from, at), texts);
      if (c === CR && bytes[at + 1] === LF) at++;
      from = at + 1;
    }
    if (bytes.length > 0) this.#isAfterCr = bytes[bytes.length - 1] === CR;
    if (from < bytes.length) this.#line.push(bytes.subarray(from));
    return texts;
  }

  #lineEnd(last: Buffer, texts: Buffer[]): void {
    const whole = this.#line.length === 0 ? last : Buffer.concat([...this.#line, last]);
    this.#line = [];
    const text = whole.toString('utf8');
    const line = this.#isFirstLine && text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
    this.#isFirstLine = false;
    if (line === '') {
      const data = this.#data;
      this.#data = [];
      const json = data.length === 0 ? null : Buffer.from(data.join('\n'), 'utf8');
      if (json !== null && isJson(json)) texts.push(json);
    } else if (line.startsWith('data') && (line.length === 4 || line[4] === ':')) {
      const value = line.slice(5);
      this.#data.push(value.startsWith(' ') ? value.slice(1) : value);
    }
  }
}
