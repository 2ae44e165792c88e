/** The service of `proto/reach.proto`, as a program with a gRPC library (grpc-js) asks it. */
import { codeEntry } from '../../../proto/wire/codes.ts';
import { fromStruct, GrpcClient, type GrpcAsking, type Outcome } from '../grpc-client.ts';
import { Rig, TOKEN } from '../rig.ts';
import {
  type Ask,
  type Cast,
  type Explained,
  REFUSED_CAST,
  type StartedWay,
  type Told,
  type ToldCast,
  type ToldStream,
  type WayClient,
  type WayFixture,
} from './way.ts';

export class GrpcWay implements WayClient {
  readonly #client: GrpcClient;
  constructor(address: string) {
    this.#client = new GrpcClient(address);
  }

  async call(ask: Ask): Promise<Told | null> {
    const outcome = await this.#client.invoke({ capability: ask.capability, json: ask.payload ?? '{}' }, askingOf(ask));
    if (ask.leave !== undefined && outcome.status === 1) return null;
    return told(outcome);
  }

  async stream(ask: Ask): Promise<ToldStream> {
    let left = false;
    const outcome = await this.#client.stream(
      { capability: ask.capability, json: ask.payload ?? '{}' },
      {
        ...askingOf(ask),
        onReply: (reply, cancel) => {
          if (ask.leaveAfterFirst !== true || (reply as { text: string }).text === '') return;
          left = true;
          cancel();
        },
      },
    );
    if (left) return { how: 'left', text: '', code: null };
    const text = outcome.replies.map((reply: { text: string }) => reply.text).join('');
    if (outcome.status === 0) return { how: outcome.replies.at(-1)?.end == null ? 'cut' : 'whole', text, code: 0 };
    return { how: outcome.replies.length === 0 ? 'refused' : 'cut', text, code: Number(outcome.trailers['reach-code']) };
  }

  async explain(ask: Ask): Promise<Explained> {
    const { replies } = await this.#client.unary('/agentreach.v1.Reach/Explain', { capability: ask.capability }, askingOf(ask));
    const { would_serve: serves, refusal } = fromStruct(replies[0].explanation) as {
      would_serve: { provider: string } | null;
      refusal: { code: number } | null;
    };
    return { provider: serves?.provider ?? null, code: refusal?.code ?? 0 };
  }

  async cast({ capability, payload, headers }: Cast): Promise<ToldCast> {
    const { status, replies, trailers } = await this.#client.unary(
      '/agentreach.v1.Reach/Cast',
      { capability, json: payload, headers },
      askingOf({ capability }),
    );
    if (status !== 0) return { ...REFUSED_CAST, code: Number(trailers['reach-code']) };
    const [reply] = replies;
    const { durable, state, lane, rule, power_id: powerId, trace_id: traceId } = reply;
    return { code: 0, durable, state, capability: reply.capability, lane, rule: rule === '' ? null : rule, powerId, traceId };
  }

  close(): Promise<void> {
    this.#client.close();
    return Promise.resolve();
  }
}

/**
 * A library whose own timer has run out (`grpc-timeout`) ends the RPC by itself and does not wait for what the sidecar has to
 * say. So where the end of the time is looked at, the sidecar is given less than the client waits.
 */
const CLIENT_WAITS_MS = 1_000;

function askingOf(ask: Ask): GrpcAsking {
  const token = ask.token === undefined ? TOKEN : ask.token;
  const { deadlineMs } = ask;
  const isShort = deadlineMs !== undefined && deadlineMs < CLIENT_WAITS_MS;
  return {
    token,
    ...(deadlineMs === undefined ? {} : { deadlineMs: Math.max(deadlineMs, CLIENT_WAITS_MS) }),
    metadata: {
      ...(isShort ? { 'reach-deadline-ms': String(deadlineMs) } : {}),
      ...(ask.key === undefined ? {} : { 'idempotency-key': ask.key }),
      ...(ask.traceparent === undefined ? {} : { traceparent: ask.traceparent }),
    },
    ...(ask.leave === undefined ? {} : { onStart: (cancel: () => void) => void ask.leave?.then(cancel) }),
  };
}

export function told({ status, replies, trailers, details }: Outcome): Told {
  if (status === 0) {
    const reply = replies[0];
    return {
      code: 0,
      name: '',
      status: reply.status,
      data: reply.json === '' ? null : JSON.parse(reply.json),
      provider: reply.provider === '' ? null : reply.provider,
      version: reply.version === '' ? null : reply.version,
      degraded: reply.degraded,
      definitelySuccess: reply.definitely_success,
      retryable: false,
      ambiguous: false,
      traceId: reply.trace_id,
    };
  }
  const failure = details['Failure'];
  if (failure === undefined) throw new Error(`status ${status} without details: ${JSON.stringify(trailers)}`);
  if (Number(trailers['reach-code']) !== failure.code) throw new Error(`reach-code is ${trailers['reach-code']} beside ${failure.code}`);
  if (details['ErrorInfo'].reason !== failure.name.toUpperCase() || details['ErrorInfo'].domain !== 'agent-reach')
    throw new Error(`ErrorInfo says ${JSON.stringify(details['ErrorInfo'])} beside ${failure.name}`);
  // The agent's own error has the status that says the same in gRPC.
  if (failure.code !== 6001 && status !== codeEntry(failure.code).grpc) throw new Error(`${failure.code} came with status ${status}`);
  return {
    code: failure.code,
    name: failure.name,
    status: failure.status,
    data: failure.answer === 'text' ? (failure.content_type.includes('json') ? JSON.parse(failure.text) : failure.text) : null,
    provider: failure.provider === '' ? null : failure.provider,
    version: failure.version === '' ? null : failure.version,
    degraded: false,
    definitelySuccess: false,
    retryable: failure.retryable,
    ambiguous: failure.ambiguous,
    traceId: failure.trace_id,
  };
}

export const grpcWay: WayFixture = {
  cannot: {},
  async start(t, table): Promise<StartedWay> {
    const rig = await Rig.start(t as Parameters<typeof Rig.start>[0], {
      table: table(),
      settings: '  grpc: {listen: "127.0.0.1:0"}',
    });
    return { rig, others: [], client: new GrpcWay(rig.started.grpcAddress as string) };
  },
};
