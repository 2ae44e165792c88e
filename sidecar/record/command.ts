/** `reach-sidecar record settings.yaml start|stop|status`: tells the sidecar of these settings on this machine, and shows how it stands. */
import { request } from 'node:http';
import { localUrl } from '../../base/probe.ts';
import { readSecret } from '../../base/secret.ts';
import type { SidecarConfig } from '../config.ts';

export const ORDERS = ['start', 'stop', 'status'] as const;
export type Order = (typeof ORDERS)[number];

const ANSWER_MS = 5_000;

interface View {
  readonly on: boolean;
  readonly folder: string;
  readonly bytes: number;
  readonly recorded: number;
  readonly disk_fails: boolean;
  readonly not_recorded: { readonly disk: number; readonly cpu: number; readonly rotated: number; readonly fault: number };
  readonly filter: { readonly share: number; readonly capability: string; readonly caller: string; readonly failed_only: boolean };
}

/** One line for people. @param socketPath where the sidecar listens instead of a port; null = on its port */
export async function orderRecording(
  config: SidecarConfig,
  order: Order,
  socketPath: string | null,
): Promise<{ readonly isGood: boolean; readonly words: string }> {
  const { operatorToken, listen, recording } = config;
  if (recording === null) return bad('these settings have no recording: say under sidecar.recording.keep what may be kept');
  if (operatorToken === null) return bad('recording is for the operator: set operator_token, which this command shows');
  let token: string;
  try {
    token = readSecret(operatorToken);
  } catch (error) {
    return bad((error as Error).message);
  }
  const place = socketPath === null ? localUrl(listen) : 'http://localhost';
  const answer = await asked(`${place}/v1/recording`, order, token, socketPath);
  if (typeof answer === 'string') return bad(answer);
  let view: unknown;
  try {
    view = JSON.parse(answer.body);
  } catch {
    return bad(`${place}: answered ${answer.status}, and no JSON`);
  }
  if (answer.status !== 200) return bad(`${place}: ${(view as { readonly detail?: string }).detail ?? answer.status}`);
  return { isGood: true, words: wordsOf(view as View) };
}

function bad(words: string): { readonly isGood: false; readonly words: string } {
  return { isGood: false, words };
}

function wordsOf({ on, folder, bytes, recorded, disk_fails: diskFails, not_recorded: not, filter }: View): string {
  const { share, capability, caller, failed_only: failedOnly } = filter;
  const which = `${Math.round(share * 10_000) / 100} % of the traces${capability === '*' ? '' : `, ${capability}`}${caller === '' ? '' : `, by ${caller}`}${failedOnly ? ', failed only' : ''}`;
  const lost = not.disk + not.cpu + not.rotated + not.fault;
  const dropped = lost === 0 ? '' : `, ${lost} not (disk ${not.disk}, cpu ${not.cpu}, file full ${not.rotated}, faults ${not.fault})`;
  return `${on ? `recording ${which}` : 'not recording'}: ${recorded} calls so far${dropped}; ${bytes} bytes in ${folder}${diskFails ? '; the disk does not take it' : ''}`;
}

function asked(
  url: string,
  order: Order,
  token: string,
  socketPath: string | null,
): Promise<{ readonly status: number; readonly body: string } | string> {
  const body = order === 'status' ? null : JSON.stringify({ on: order === 'start' });
  const headers = {
    authorization: `Bearer ${token}`,
    ...(body === null ? {} : { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(body)) }),
  };
  const at = socketPath === null ? {} : { socketPath };
  return new Promise((done) => {
    const going = request(url, { method: body === null ? 'GET' : 'POST', headers, agent: false, timeout: ANSWER_MS, ...at }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => void chunks.push(chunk));
      response.on('error', () => done(`${url}: the answer broke off`));
      response.on('end', () => done({ status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString('utf8') }));
    });
    going.on('timeout', () => going.destroy(Object.assign(new Error(), { code: `no answer within ${ANSWER_MS / 1_000} s` })));
    going.on('error', (error: NodeJS.ErrnoException) => done(`${url}: ${error.code ?? error.message}`));
    going.end(body ?? undefined);
  });
}
