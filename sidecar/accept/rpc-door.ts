/**
 * What one JSON-RPC message asks for, and its answer: a capability is called, `reach.explain` is answered here, and what is
 * no message gets the protocol's own error. Which messages there are, and how their answers travel, is decided elsewhere.
 */
import type { IncomingMessage } from 'node:http';
import { membersOf, startOf, stringAt } from '../../base/json-members.ts';
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import { NO_ID, RpcError, type RpcId, type RpcMessage, type RpcNotification, type RpcRequest } from '../../proto/wire/json-rpc.ts';
import type { MessageTrace } from '../../proto/wire/json-rpc-trace.ts';
import { readTraceContext } from '../../proto/wire/trace-context.ts';
import { Call, type HeaderView } from '../call/call.ts';
import type { Principal } from '../call/principal.ts';
import { NO_BODY } from '../call/reply.ts';
import type { JsonBytes } from '../call/result.ts';
import type { Submission, Submitted } from '../send/door.ts';
import { JSON_TYPE } from './answer.ts';
import { NO_CREDENTIAL, refusedText, submitted } from './cast.ts';
import type { Front } from './front.ts';
import { messageFrom } from './message-text.ts';
import { explained } from './pages.ts';
import { rpcAnswer, rpcFailure, rpcRefusal, rpcSubmitted, rpcValue } from './rpc-answer.ts';
import { submissionFrom } from './submission.ts';
import { cancelAnswer, taskAnswer } from './task-methods.ts';

const NULL = Buffer.from('null');

export const NO_STREAM = 'a stream has no form in JSON-RPC over HTTP: POST the params to /v1/stream/{capability}, or open a channel';

/** What one request brings to each of its messages. */
export class Door {
  readonly front: Front;
  readonly request: IncomingMessage;
  readonly #raw: boolean;
  /** Notifications that were not accepted. Over HTTP that can be told beside the answers. */
  refusedCount = 0;
  /** Why the last of them was not; null = all were. */
  refusal: Extract<Submitted, { ok: false }> | null = null;

  constructor(front: Front, request: IncomingMessage, raw: boolean) {
    this.front = front;
    this.request = request;
    this.#raw = raw;
  }

  /** The call that a message asks for, its time running; null when it asks for none. */
  begin(message: RpcMessage): Call | null {
    return message.kind === 'request' && !isReserved(message.method)
      ? this.#call(message.method, message.params ?? NULL, message.trace)
      : null;
  }

  /** Never rejects; null = nothing is to be answered. */
  async carryOut(message: RpcMessage, call: Call | null): Promise<JsonBytes | null> {
    const id = message.kind === 'request' ? message.id : null;
    const { engine, pipeline, observation } = this.front;
    try {
      if (call === null) return message.kind === 'notification' ? await this.#notified(message) : await this.#answerHere(message);
      await pipeline.outbound(engine, call);
      return id === null ? null : rpcAnswer(id, call, this.#raw);
    } catch (error) {
      observation.fault(error);
      return id === null ? null : rpcRefusal(id, RpcError.internal, 'a fault in Agent-Reach');
    }
  }

  /** A cast. */
  async #notified({ method, params, trace }: RpcNotification): Promise<null> {
    if (isReserved(method)) {
      if (method === 'reach.cast' && params !== null) await this.#submit((principal) => messageFrom(principal, params, this.#above(trace)));
      return null;
    }
    const payload = params ?? NULL;
    await this.#submit((principal) => submissionFrom(principal, method, this.#above(trace), payload, JSON_TYPE));
    return null;
  }

  /** Standalone nothing can be durable, and who asks for no answer asks for no promise either. */
  #above(trace: MessageTrace | undefined): HeaderView {
    const headers = headersOf(this.request, trace);
    if (this.front.registry !== null || headers[Header.bestEffort] !== undefined) return headers;
    return { ...headers, [Header.bestEffort]: '1' };
  }

  async #submit(read: (principal: Principal) => Submission | string): Promise<void> {
    const principal = this.front.engine.identities.caller(this.request.headers.authorization);
    const came = principal === null ? refusedText(Code.unauthenticated, NO_CREDENTIAL) : await submitted(this.front, read(principal));
    if (came.ok) return;
    this.refusedCount++;
    this.refusal = came;
  }

  async #cast({ id, params, trace }: RpcRequest): Promise<JsonBytes> {
    if (params === null) return rpcRefusal(id, RpcError.invalidParams, 'reach.cast needs params: a message as POST /v1/messages takes it');
    const principal = this.front.engine.identities.caller(this.request.headers.authorization);
    if (principal === null) return rpcFailure(id, Code.unauthenticated, NO_CREDENTIAL);
    return rpcSubmitted(id, await submitted(this.front, messageFrom(principal, params, headersOf(this.request, trace))));
  }

  async #answerHere(message: RpcMessage): Promise<JsonBytes | null> {
    switch (message.kind) {
      case 'invalid':
        return message.isNotification ? null : rpcRefusal(message.id, message.code, message.problem);
      case 'request':
        return await this.#request(message);
      case 'notification':
        return null;
      default:
        return rpcRefusal(NO_ID, RpcError.invalidRequest, 'this is an answer, and nothing was asked here: method is missing');
    }
  }

  async #request(message: RpcRequest): Promise<JsonBytes> {
    const { id, method, params } = message;
    if (method === 'reach.cast') return await this.#cast(message);
    if (method !== 'reach.task' && method !== 'reach.cancel_task') return this.#own(id, message);
    const principal = this.front.engine.identities.caller(this.request.headers.authorization);
    if (principal === null) return rpcFailure(id, Code.unauthenticated, NO_CREDENTIAL);
    return await (method === 'reach.task' ? taskAnswer : cancelAnswer)(this.front, principal, id, params);
  }

  /** The methods that are ours. */
  #own(id: RpcId, { method, params }: RpcRequest): JsonBytes {
    if (method === 'reach.explain') return this.#explain(id, params);
    if (method === 'reach.stream') return rpcRefusal(id, RpcError.methodNotFound, NO_STREAM);
    const known = method.startsWith('rpc.')
      ? 'names that begin with rpc. are reserved by JSON-RPC'
      : 'here are reach.explain, reach.cast, reach.task and reach.cancel_task';
    return rpcRefusal(id, RpcError.methodNotFound, `there is no method ${JSON.stringify(method.slice(0, 80))}: ${known}`);
  }

  #explain(id: RpcId, params: Buffer | null): JsonBytes {
    const asked = params === null ? NOTHING_ASKED : explainAsk(params);
    if (typeof asked === 'string') return rpcRefusal(id, RpcError.invalidParams, asked);
    const explanation = explained(this.front, this.#call(asked.capability, asked.payload));
    const { refusal } = explanation;
    if (refusal !== null && (refusal.code === Code.unauthenticated || refusal.code === Code.forbidden))
      return rpcFailure(id, refusal.code, refusal.detail);
    return rpcValue(id, explanation);
  }

  #call(asked: string, payload: Buffer, trace?: MessageTrace): Call {
    const { clock, random } = this.front.engine;
    const { headers } = this.request;
    const call = new Call('json_rpc', asked, headers, payload, payload.length === 0 ? '' : JSON_TYPE, false, clock);
    if (trace === undefined) readTraceContext(call, headers['traceparent'], headers['tracestate'], random);
    else readTraceContext(call, trace.traceparent, trace.tracestate, random);
    return call;
  }
}

/** What stands above a message: headers of its request, but for the message's own trace. */
function headersOf({ headers }: IncomingMessage, trace: MessageTrace | undefined): HeaderView {
  return trace === undefined ? headers : { ...headers, [Header.traceparent]: trace.traceparent, [Header.tracestate]: trace.tracestate };
}

/** `rpc.` belongs to the protocol, and `reach.` with one word after it to us; a capability always has three. */
function isReserved(method: string): boolean {
  if (method.startsWith('rpc.')) return true;
  return method.startsWith('reach.') && method.indexOf('.', 6) < 0;
}

const NOTHING_ASKED = 'reach.explain needs params {capability, payload?}';

function explainAsk(params: Buffer): { readonly capability: string; readonly payload: Buffer } | string {
  if (params[0] !== OPEN_MAP) return NOTHING_ASKED;
  let capability: string | null = null;
  let payload = NO_BODY;
  for (const { name, from, to } of membersOf(params, startOf(params))) {
    if (name === 'capability') {
      if (params[from] !== QUOTE || capability !== null) return 'capability must be one string: a name, or name@range';
      capability = stringAt(params, from, to);
    } else if (name === 'payload') {
      if (payload !== NO_BODY) return 'payload stands there twice';
      payload = params.subarray(from, to);
    } else return `reach.explain knows capability and payload, not ${JSON.stringify(name.slice(0, 40))}`;
  }
  return capability === null ? NOTHING_ASKED : { capability, payload };
}

const OPEN_MAP = 0x7b;
const QUOTE = 0x22;
