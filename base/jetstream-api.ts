/** One request to JetStream's API and its answer as JSON, or why there is none. */
import { type BusReply, type Headers, replyWords } from './bus-message.ts';
import { type ApiProblem, type Json, parseJson, problemOf } from './jetstream.ts';
import { NOT_JETSTREAM } from './pub-ack.ts';

/** How requests get out. `askApi` takes subjects of the server's own API, behind `$JS.API.`. */
export interface Asking {
  ask(subject: string, data: Uint8Array, timeoutMs: number, headers: Headers | undefined): Promise<BusReply>;
  askApi(verb: string, data: Uint8Array, timeoutMs: number): Promise<BusReply>;
}

export interface Failed {
  readonly failed: string;
}

export type ApiAnswer = { readonly json: Json } | { readonly failed: string; readonly problem: ApiProblem | null };

export const API_TIMEOUT_MS = 5_000;
const EMPTY = new Uint8Array(0);

export async function askJson(asking: Asking, verb: string, body: object | null, timeoutMs: number = API_TIMEOUT_MS): Promise<ApiAnswer> {
  const data = body === null ? EMPTY : Buffer.from(JSON.stringify(body), 'utf8');
  const reply = await asking.askApi(verb, data, timeoutMs);
  if (reply.kind !== 'ok') return { failed: replyWords(reply, verb), problem: null };
  const json = parseJson(reply.message.data);
  if (json === null) return { failed: `${verb}: ${NOT_JETSTREAM}`, problem: null };
  const problem = problemOf(json);
  return problem === null ? { json } : { failed: `${verb}: ${problem.words}`, problem };
}
