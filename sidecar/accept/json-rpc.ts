/**
 * JSON-RPC 2.0 at `POST /rpc`. A method is a capability, an alias or either with a range; params are its payload, byte for
 * byte, and `null` when there are none. The headers of the request (credential, trace, deadline and the rest of `Reach-*`)
 * hold for every message of a batch, and every message is a call of its own before every gate.
 *
 * HTTP: 200 with the answer or answers, errors too, since most clients of this protocol look at nothing but the body; 204
 * when nothing is to be answered. What is not about a message has its status beside a JSON-RPC error with id `null`: 503
 * while the sidecar takes no calls, 406 for a client that wants events (a stream has no form here: `/v1/stream` has), 415
 * for a compressed body.
 *
 * A notification is a cast: a durable message, and its 204 comes when it is durable (standalone: when it was begun, without a
 * promise). It is never answered; one that was not accepted is told by the status of its code and `Reach-*` headers instead of
 * 204, since silence would be a loss that nobody hears of. In a batch of notifications alone that counts for all of them (the
 * detail says how many); beside answers the headers say it, where they have not left. `reach.cast` takes a whole message, with an
 * answer. One id twice in a batch gets two answers: they cannot be mixed up, since nothing but the echo depends on it.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import { NO_ID, readRpc, RpcError, type RpcMessage, type RpcReading } from '../../proto/wire/json-rpc.ts';
import { NO_BODY } from '../call/reply.ts';
import { writeJson } from './answer.ts';
import type { Front } from './front.ts';
import { isRaw } from './invoke.ts';
import { lineOf } from './line.ts';
import { rpcFailure, rpcRefusal } from './rpc-answer.ts';
import { Batch } from './rpc-batch.ts';
import { Door, NO_STREAM } from './rpc-door.ts';
import { writeNoAnswer } from './rpc-silence.ts';

export const RPC_PATH = '/rpc';

const STARTING_MS = 1_000;

export async function rpc(front: Front, request: IncomingMessage, response: ServerResponse, body: unknown): Promise<void> {
  // What an agent finishes its work with is told by the trace of the request, or of each message.
  const isDrained = !front.ready && !isLast(front, request);
  if (isDrained && !front.draining) {
    notNow(front, response);
    return;
  }
  const raw = isRaw(request);
  if (typeof raw === 'string') {
    writeJson(response, 200, rpcRefusal(NO_ID, RpcError.invalidRequest, raw));
    return;
  }
  if (wantsOnlyEvents(request)) {
    writeJson(response, 406, rpcRefusal(NO_ID, RpcError.invalidRequest, NO_STREAM));
    return;
  }
  if (isEncoded(request)) {
    writeJson(response, 415, rpcRefusal(NO_ID, RpcError.invalidRequest, ENCODED), ['accept-encoding', 'identity']);
    return;
  }
  const reading = readRpc(Buffer.isBuffer(body) ? body : NO_BODY, { batch: front.engine.config.limits.batch });
  if (isDrained && !messagesOf(reading).every((message) => 'trace' in message && isLast(front, request, message.trace?.traceparent))) {
    notNow(front, response);
    return;
  }
  const door = new Door(front, request, raw);
  if (reading.isBatch) {
    await new Batch(door, response, reading.messages).run();
    return;
  }
  const { message } = reading;
  const line = lineOf(request.socket);
  const work = door.begin(message);
  if (work !== null) line.add(work);
  const answer = await door.carryOut(message, work);
  if (work !== null) line.remove(work);
  if (response.destroyed) return;
  if (answer === null) writeNoAnswer(response, door, 1);
  else writeJson(response, 200, answer);
}

const ENCODED = 'the message is read here, and compressed ones are not: send it without Content-Encoding';

function isEncoded({ headers }: IncomingMessage): boolean {
  const encoding = headers['content-encoding'];
  return encoding !== undefined && encoding !== '' && encoding.trim().toLowerCase() !== 'identity';
}

function wantsOnlyEvents(request: IncomingMessage): boolean {
  if (request.headers[Header.stream] === '1') return true;
  const accept = request.headers.accept;
  return accept !== undefined && accept.includes('text/event-stream') && !accept.includes('json') && !accept.includes('*/*');
}

function messagesOf(reading: RpcReading): readonly RpcMessage[] {
  return reading.isBatch ? reading.messages : [reading.message];
}

/** An agent finishes its work with it. */
function isLast(front: Front, { headers }: IncomingMessage, traceparent: string | string[] | undefined = headers['traceparent']): boolean {
  return front.draining && front.takesLast(front.engine.identities.caller(headers.authorization), traceparent);
}

function notNow(front: Front, response: ServerResponse): void {
  const { draining } = front;
  front.observation.metrics.requestRefused(draining ? 'draining' : 'starting');
  const answer = draining
    ? rpcFailure(NO_ID, Code.blocked_by_operator, 'this sidecar is stopping and takes no new calls')
    : rpcFailure(NO_ID, Code.none_healthy, 'starting: no route table is loaded yet');
  writeJson(response, 503, answer, [
    'retry-after',
    '1',
    Header.retryAfterMs,
    String(STARTING_MS),
    ...(draining ? ['connection', 'close'] : []),
  ]);
}
