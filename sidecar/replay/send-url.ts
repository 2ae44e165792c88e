/**
 * Sends the recorded requests anew to a sidecar on this machine that serves mocks only, and compares its answers with the recorded
 * ones. It is asked first whether it does (`sandbox` of its health page), and nothing is sent to one that does not say so: a real
 * one would pass the requests on. Where recorded providers stand is in no recording.
 */
import { request } from 'node:http';
import { Header } from '../../proto/wire/headers.ts';
import type { RecordingSource } from '../record/reading.ts';
import type { CallRecord } from '../record/shapes.ts';
import { answerDiff, requestOf, type SendReport, type Sent } from './send.ts';

const ANSWER_MS = 60_000;
const MAX_ANSWER_BYTES = 64 * 1_024 * 1_024;
const LOOPBACK: ReadonlySet<string> = new Set(['localhost', '127.0.0.1', '[::1]']);

interface Answer {
  readonly status: number;
  readonly body: Buffer;
}

/** Words when nothing was sent. @param token of the agent that it acts as there; null = none is shown */
export async function sendToUrl(
  recording: RecordingSource,
  target: string,
  token: string | null,
  limit: number,
): Promise<SendReport | string> {
  const problem = targetProblem(target);
  if (problem !== null) return problem;
  const base = target.replace(/\/+$/, '');
  const health = await asked(`${base}/v1/health`, 'GET', {}, null);
  if (typeof health === 'string') return `${base}: ${health}`;
  if (!isSandbox(health.body))
    return `${base} does not say that it is a sandbox (all its providers mocks), and a real sidecar would pass the requests on: nothing was sent`;
  const sent: Sent[] = [];
  let notSent = 0;
  let number = 0;
  for (const file of recording.files) {
    for (const record of file.calls) {
      if (number >= limit) break;
      number++;
      const one = await sendOne(base, token, number, record);
      if (one === null) notSent++;
      else sent.push(one);
    }
  }
  return { target: base, sent, notSent, left: 0, remarks: recording.remarks };
}

/** Only this machine: what is sent comes out of a recording of real traffic. */
export function targetProblem(target: string): string | null {
  let url: URL;
  try {
    url = new URL(target);
  } catch {
    return `--send ${target}: write sandbox, or the address of a sandbox on this machine such as http://127.0.0.1:7700`;
  }
  if (url.protocol !== 'http:' || !LOOPBACK.has(url.hostname) || url.username !== '' || (url.pathname !== '/' && url.pathname !== ''))
    return `--send ${url.protocol}//${url.host}: recorded requests are sent to this machine only (http://127.0.0.1:PORT), or to the sandbox inside (--send sandbox)`;
  return null;
}

function isSandbox(body: Buffer): boolean {
  try {
    return (JSON.parse(body.toString('utf8')) as { readonly sandbox?: unknown }).sandbox === true;
  } catch {
    return false;
  }
}

async function sendOne(base: string, token: string | null, number: number, record: CallRecord): Promise<Sent | null> {
  const made = requestOf(record);
  if (made === null || record.stream || record.http !== null) return null;
  const headers: Record<string, string> = {
    ...made.headers,
    'content-type': record.body.type === '' ? 'application/json' : record.body.type,
  };
  headers[Header.mode] = 'raw';
  if (token !== null) headers['authorization'] = `Bearer ${token}`;
  const answer = await asked(`${base}/v1/invoke/${encodeURIComponent(record.asked)}`, 'POST', headers, made.body);
  const whose = { number, asked: record.asked, traceId: record.trace_id };
  if (typeof answer === 'string') return { ...whose, code: -1, diff: [`no answer: ${answer}`], miss: null, notCompared: [] };
  // Without the envelope, what answered is all there is: a code of ours stands in a problem document.
  const code = codeIn(answer);
  const { diff, notCompared } = answerDiff(record, code, code === 0 ? answer.status : record.decision.status, answer.body);
  return { ...whose, code, diff, miss: null, notCompared };
}

function codeIn({ status, body }: Answer): number {
  if (status < 400) return 0;
  try {
    const { code } = JSON.parse(body.toString('utf8')) as { readonly code?: unknown };
    return typeof code === 'number' ? code : status;
  } catch {
    return status;
  }
}

/** Words = there is no answer. Redirects are not followed. */
function asked(url: string, method: string, headers: Readonly<Record<string, string>>, body: Buffer | null): Promise<Answer | string> {
  return new Promise((done) => {
    const going = request(
      url,
      { method, headers: { ...headers, 'content-length': String(body?.length ?? 0) }, agent: false, timeout: ANSWER_MS },
      (response) => {
        const chunks: Buffer[] = [];
        let bytes = 0;
        response.on('data', (chunk: Buffer) => {
          bytes += chunk.length;
          if (bytes <= MAX_ANSWER_BYTES) chunks.push(chunk);
          else response.destroy();
        });
        response.on('error', () => done('the answer broke off'));
        response.on('close', () => done('the answer broke off'));
        response.on('end', () => done({ status: response.statusCode ?? 0, body: Buffer.concat(chunks) }));
      },
    );
    going.on('timeout', () => going.destroy(Object.assign(new Error(), { code: `no answer within ${ANSWER_MS / 1_000} s` })));
    going.on('error', (error: NodeJS.ErrnoException) => done(error.code ?? error.message));
    going.end(body ?? undefined);
  });
}
