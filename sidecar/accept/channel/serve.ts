/** What an agent can ask of its sidecar on a channel, one function a method. */
import { valuesOf } from '../../../base/json-values.ts';
import { CHANNEL_WIRE, ChannelMethod, WINDOW_BYTES } from '../../../proto/wire/channel.ts';
import { Code, codeEntry } from '../../../proto/wire/codes.ts';
import { Header } from '../../../proto/wire/headers.ts';
import {
  idKey,
  RpcError,
  type RpcErrorCode,
  type RpcId,
  type RpcNotification,
  type RpcRequest,
  writeRpcError,
} from '../../../proto/wire/json-rpc.ts';
import { readTraceContext } from '../../../proto/wire/trace-context.ts';
import { Call, NO_HEADERS } from '../../call/call.ts';
import type { Submission } from '../../send/door.ts';
import { registerAgent } from '../agents.ts';
import { refusedText, submitted } from '../cast.ts';
import { cancelAnswer, taskAnswer } from '../task-methods.ts';
import { messageFrom } from '../message-text.ts';
import { explained } from '../pages.ts';
import { rpcFailure, rpcRefusal, rpcSubmitted, rpcValue } from '../rpc-answer.ts';
import { AgentCall } from './agent-call.ts';
import type { AllChannels } from './all-channels.ts';
import type { ChannelConnection } from './connection.ts';
import { acknowledge, NOT_RESUMED, resume, resumeAtHello, type Resumed } from './inbox-methods.ts';
import { ownId, readAsk } from './message.ts';
import { done, extend } from './work-methods.ts';

type Method = (all: AllChannels, connection: ChannelConnection, id: RpcId, params: Buffer | null) => void;

const METHODS: Readonly<Record<string, Method>> = Object.assign(Object.create(null) as Record<string, Method>, {
  [ChannelMethod.hello]: hello,
  [ChannelMethod.heartbeat]: (_all: AllChannels, connection: ChannelConnection, id: RpcId) => answer(connection, id, {}),
  [ChannelMethod.register]: register,
  [ChannelMethod.invoke]: invoke,
  [ChannelMethod.stream]: stream,
  [ChannelMethod.explain]: explain,
  [ChannelMethod.cast]: cast,
  [ChannelMethod.task]: (all: AllChannels, connection: ChannelConnection, id: RpcId, params: Buffer | null) =>
    void taskAnswer(all.front, connection.principal, id, params).then((answered) => connection.sendJson(answered)),
  [ChannelMethod.cancelTask]: (all: AllChannels, connection: ChannelConnection, id: RpcId, params: Buffer | null) =>
    void cancelAnswer(all.front, connection.principal, id, params).then((answered) => connection.sendJson(answered)),
  [ChannelMethod.resume]: resume,
  [ChannelMethod.ack]: acknowledge,
  [ChannelMethod.done]: done,
  [ChannelMethod.extend]: extend,
});

export function serveMessage(all: AllChannels, connection: ChannelConnection, message: RpcRequest | RpcNotification): void {
  const { method, params } = message;
  if (message.kind === 'notification') {
    if (method === ChannelMethod.cancel) cancel(connection, params);
    else if (method === ChannelMethod.ack) acknowledge(all, connection, null, params);
    else if (method === ChannelMethod.cast) void castUnasked(all, connection, params);
    // Nobody could be told of others.
    return;
  }
  const { id } = message;
  const serve = METHODS[method];
  if (serve === undefined)
    malformed(
      connection,
      id,
      RpcError.methodNotFound,
      `there is no method ${JSON.stringify(method.slice(0, 64))}; there are: ${Object.keys(METHODS).join(', ')}`,
    );
  else serve(all, connection, id, params);
}

function hello(all: AllChannels, connection: ChannelConnection, id: RpcId, params: Buffer | null): void {
  const [wire, serves, resumeFrom] = (params === null ? null : valuesOf(params, ['wire', 'serve', 'resume_from'])) ?? [null, null, null];
  if (wire?.toString('latin1') !== String(CHANNEL_WIRE)) {
    malformed(
      connection,
      id,
      RpcError.invalidParams,
      `this sidecar speaks version ${CHANNEL_WIRE} of the channel: say {"wire": ${CHANNEL_WIRE}}`,
    );
    return;
  }
  const said = serves?.toString('latin1') ?? 'true';
  if (said !== 'true' && said !== 'false') {
    malformed(connection, id, RpcError.invalidParams, 'serve must be true (it takes calls) or false (it only calls)');
    return;
  }
  const open = ({ told, reader }: Resumed): void => {
    greet(all, connection, id, told);
    // After the answer: the first message and the first call stand behind it.
    reader?.begin();
    if (said === 'true') all.serveOn(connection);
  };
  if (resumeFrom === null || resumeFrom === undefined || resumeFrom.toString('latin1') === 'null') {
    open(NOT_RESUMED);
    return;
  }
  resumeAtHello(all, connection, resumeFrom).then(open, (error: unknown) => {
    all.front.observation.fault(error);
    refuseWith(connection, id, Code.internal, 'a fault in Agent-Reach');
  });
}

function greet(all: AllChannels, connection: ChannelConnection, id: RpcId, resumed: object | null): void {
  answer(connection, id, {
    agent: connection.agentId,
    wire: CHANNEL_WIRE,
    sidecar: all.front.engine.config.name,
    offers: offersOf(all, connection.agentId),
    heartbeat_ms: all.settings.heartbeatMs,
    offline_ms: all.settings.offlineAfterMs,
    max_message_bytes: all.maxMessageBytes,
    window_bytes: WINDOW_BYTES,
    resume: resumed,
  });
}

/** What the table has the agent for, on a channel: it can see that what it serves is what it is called for. */
function offersOf(all: AllChannels, agentId: string): readonly string[] {
  const record = all.front.table.current().providers.get(agentId)?.record;
  return record?.endpoint.type === 'channel' ? record.offers.map(({ name, version }) => `${name}@${version}`) : [];
}

function invoke(all: AllChannels, connection: ChannelConnection, id: RpcId, params: Buffer | null): void {
  call(all, connection, id, params, false);
}

function stream(all: AllChannels, connection: ChannelConnection, id: RpcId, params: Buffer | null): void {
  call(all, connection, id, params, true);
}

function call(all: AllChannels, connection: ChannelConnection, id: RpcId, params: Buffer | null, wantsStream: boolean): void {
  const key = idKey(id);
  if (connection.in.byKey(key) !== null) {
    malformed(connection, id, RpcError.invalidRequest, 'a call with this id is under way on this channel: give each its own');
    return;
  }
  const ask = readAsk(params);
  if (typeof ask === 'string') {
    malformed(connection, id, RpcError.invalidParams, ask);
    return;
  }
  const refusal = whyNot(all, connection, ask.headers['traceparent']);
  if (refusal !== null) {
    refuseWith(connection, id, refusal.code, refusal.words);
    return;
  }
  const made = new AgentCall(connection, key, id, ask, wantsStream);
  connection.in.add(made);
  void made.run();
}

function whyNot(
  all: AllChannels,
  connection: ChannelConnection,
  traceparent: string | string[] | undefined,
): { code: Code; words: string } | null {
  const { front } = all;
  if (front.draining && !front.takesLast(connection.principal, traceparent))
    return { code: Code.blocked_by_operator, words: 'this sidecar is stopping and takes no new calls' };
  if (!front.table.ready) return { code: Code.none_healthy, words: 'starting: no route table is loaded yet' };
  if (connection.in.count >= all.maxInFlight)
    return { code: Code.caller_busy, words: `${connection.in.count} calls of this channel are under way, its limit (channel.in_flight)` };
  if (connection.outbox.isFilledTo(all.sendBufferBytes + 1))
    return { code: Code.caller_busy, words: `read your answers first: ${connection.outbox.bytes} bytes wait for you on this channel` };
  return null;
}

function cancel(connection: ChannelConnection, params: Buffer | null): void {
  const [id, number] = (params === null ? null : valuesOf(params, ['id', 'stream'])) ?? [null, null];
  if (id !== null && id !== undefined) connection.in.byKey(idKey(id.toString('utf8')))?.cancel();
  const stream = number === null || number === undefined ? -1 : ownId(number.toString('latin1'));
  if (stream > 0) connection.in.byStream(stream)?.cancel();
}

function explain(all: AllChannels, connection: ChannelConnection, id: RpcId, params: Buffer | null): void {
  const ask = readAsk(params);
  if (typeof ask === 'string') {
    malformed(connection, id, RpcError.invalidParams, ask);
    return;
  }
  const { clock, random } = all.front.engine;
  const asked = new Call('channel', ask.capability, ask.headers, ask.body, ask.contentType, false, clock);
  asked.principal = connection.principal;
  readTraceContext(asked, ask.headers['traceparent'], ask.headers['tracestate'], random);
  const explanation = explained(all.front, asked);
  const { refusal } = explanation;
  // Who may not call it may not look behind it either; every other refusal is what was asked about.
  if (refusal !== null && (refusal.code === Code.unauthenticated || refusal.code === Code.forbidden))
    refuseWith(connection, id, refusal.code, refusal.detail);
  else answer(connection, id, explanation);
}

function register(all: AllChannels, connection: ChannelConnection, id: RpcId, params: Buffer | null): void {
  registerAgent(all.front, { agent: connection.agentId }, params ?? Buffer.from('{}')).then(
    (outcome) => {
      if ('view' in outcome) answer(connection, id, outcome.view);
      else {
        const entry = codeEntry(outcome.code);
        connection.sendJson(writeRpcError(id, entry.jsonRpc, entry.meaning, Buffer.from(outcome.problem, 'utf8')));
      }
    },
    (error: unknown) => {
      all.front.observation.fault(error);
      refuseWith(connection, id, Code.internal, 'a fault in Agent-Reach');
    },
  );
}

/** A durable message: answered when it is durable, or refused. */
function cast(all: AllChannels, connection: ChannelConnection, id: RpcId, params: Buffer | null): void {
  if (params === null) {
    malformed(connection, id, RpcError.invalidParams, NO_MESSAGE);
    return;
  }
  const message = messageFrom(connection.principal, params, NO_HEADERS);
  const refusal = whyNotCast(all, connection, message);
  if (refusal !== null) {
    refuseWith(connection, id, refusal.code, refusal.words);
    return;
  }
  void submitted(all.front, message).then((came) => connection.sendJson(rpcSubmitted(id, came)));
}

/** As a notification it is not answered; that it was not taken would be a loss that nobody hears of, and is a notification of ours. */
async function castUnasked(all: AllChannels, connection: ChannelConnection, params: Buffer | null): Promise<void> {
  const message = params === null ? NO_MESSAGE : messageFrom(connection.principal, params, NO_HEADERS);
  const refusal = whyNotCast(all, connection, message);
  const came = refusal === null ? await submitted(all.front, message) : refusedText(refusal.code, refusal.words);
  // Who does not read what waits is not sent more of it.
  if (came.ok || connection.outbox.isFilledTo(all.sendBufferBytes + 1)) return;
  const { code, detail, retryAfterMs, ambiguous } = came;
  const told = { method: ChannelMethod.cast, code, name: codeEntry(code).name, detail, retry_after_ms: Math.ceil(retryAfterMs), ambiguous };
  connection.sendText(`{"jsonrpc":"2.0","method":"${ChannelMethod.notTaken}","params":`, Buffer.from(JSON.stringify(told), 'utf8'), '}');
}

const NO_MESSAGE = 'reach.cast needs params: a message as POST /v1/messages takes it';

/** The message says which work it belongs to. What is wrong with one that is none is said by whoever would take it. */
function whyNotCast(all: AllChannels, connection: ChannelConnection, message: Submission | string): ReturnType<typeof whyNot> {
  return typeof message === 'string' ? null : whyNot(all, connection, message.headers[Header.traceparent]);
}

function answer(connection: ChannelConnection, id: RpcId, value: object): void {
  connection.sendJson(rpcValue(id, value));
}

/** The message, not the call, is wrong. */
function malformed(connection: ChannelConnection, id: RpcId, code: RpcErrorCode, words: string): void {
  connection.sendJson(rpcRefusal(id, code, words));
}

function refuseWith(connection: ChannelConnection, id: RpcId, code: Code, words: string): void {
  connection.sendJson(rpcFailure(id, code, words));
}
