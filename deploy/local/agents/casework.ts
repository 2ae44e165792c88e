/**
 * Settles a case: asks whomever its request names, each in its own way, gives tasks away and takes their results out of its inbox. It
 * decides nothing by itself; that all of it belongs to one call is said by the headers that it hands on.
 */
import { serve } from '../agent.ts';

/** One question. `way`: `invoke` (one answer), `stream` (word by word), `rpc` (JSON-RPC). */
interface Question {
  readonly way: 'invoke' | 'stream' | 'rpc';
  readonly target: string;
  readonly payload: unknown;
  readonly headers: Readonly<Record<string, string>>;
}

interface Inbox {
  readonly entries: readonly { readonly seq: number; readonly task_id: string; readonly state: string }[];
}

const FINAL: ReadonlySet<string> = new Set(['done', 'failed', 'dead_lettered', 'in_doubt', 'expired', 'cancelled']);
/** Questions at once. */
const WIDTH = 4;
const RESULTS_MS = 10_000;
const SIDECAR = process.env['SIDECAR_URL'] ?? '';

serve(
  {
    'crm.case.settle': async ({ payload, ask, handedOn }) => {
      const questions = payload['questions'] as readonly Question[];
      const answered = async ({ way, target, payload: question, headers }: Question): Promise<number> => {
        if (way === 'invoke') return Number((await ask(target, question, headers))['code'] ?? -1);
        return (way === 'stream' ? streamed : byRpc)(target, question, { ...handedOn, ...headers });
      };
      const answers: number[] = [];
      const some = async (): Promise<void> => {
        for (let i = next++; i < questions.length; i = next++) answers[i] = await answered(questions[i] as Question);
      };
      let next = 0;
      await Promise.all(Array.from({ length: WIDTH }, some));
      const messages = payload['messages'] as readonly object[];
      const tasks = await Promise.all(messages.map((message) => sent(message, handedOn)));
      const ends = await results(tasks, handedOn);
      return { codes: answers, ends: tasks.map((task) => ends.get(task) ?? 'open') };
    },
  },
  10,
);

async function streamed(target: string, payload: unknown, headers: Readonly<Record<string, string>>): Promise<number> {
  const answer = await fetch(`${SIDECAR}/v1/invoke/${target}`, {
    method: 'POST',
    headers: { ...headers, accept: 'text/event-stream' },
    body: JSON.stringify(payload),
  });
  const text = await answer.text();
  return answer.status === 200 && text.includes('event: word') ? 0 : answer.status;
}

async function byRpc(target: string, payload: unknown, headers: Readonly<Record<string, string>>): Promise<number> {
  const answer = await fetch(`${SIDECAR}/rpc`, {
    method: 'POST',
    headers,
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: target, params: payload }),
  });
  const { result } = (await answer.json()) as { result?: { code?: number } };
  return result === undefined ? -1 : (result.code ?? 0);
}

/** The task's id. */
async function sent(message: object, headers: Readonly<Record<string, string>>): Promise<string> {
  const answer = await fetch(`${SIDECAR}/v1/messages`, { method: 'POST', headers, body: JSON.stringify(message) });
  const text = await answer.text();
  if (answer.status !== 202) throw new Error(`a message was not taken: ${answer.status} ${text}`);
  return (JSON.parse(text) as { task_id: string }).task_id;
}

/** How each of these ended, by its inbox; those that are not there in time are missing. */
async function results(tasks: readonly string[], headers: Readonly<Record<string, string>>): Promise<ReadonlyMap<string, string>> {
  const ends = new Map<string, string>();
  const until = performance.now() + RESULTS_MS;
  while (performance.now() < until && tasks.some((task) => !ends.has(task))) {
    const answer = await fetch(`${SIDECAR}/v1/inbox?limit=100&wait=1s`, { headers });
    const { entries } = (await answer.json()) as Inbox;
    const last = entries.at(-1);
    if (last === undefined) continue;
    for (const { task_id: task, state } of entries) if (FINAL.has(state)) ends.set(task, state);
    await fetch(`${SIDECAR}/v1/inbox/ack`, { method: 'POST', headers, body: JSON.stringify({ seq: last.seq }) });
  }
  return ends;
}
