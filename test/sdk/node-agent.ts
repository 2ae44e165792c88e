/** The Node agent of the SDK's tests: the same behaviours as `python_agent.py`, in the test's own process. */
import type { Test } from 'tap';
import { AgentError, Reach } from '../../sdk/typescript/index.ts';

// biome-ignore lint/suspicious/noExplicitAny: a test's payloads
type Ask = any;

export interface NodeAgent {
  readonly reach: Reach;
  readonly port: number;
  /** What it logged. */
  readonly lines: readonly string[];
}

/** @param port null = the channel */
export async function startNodeAgent(t: Test, url: string, token: string, port: number | null, graceMs = 3_000): Promise<NodeAgent> {
  const lines: string[] = [];
  const reach = new Reach({ url, token, log: (line) => lines.push(line) });
  const seen = { hung: 0, cancelled: 0, pulled: 0 };
  reach.serve('node.work.echo@1.0.0', (payload: Ask, context) => ({
    payload: payload instanceof Uint8Array ? { bytes: payload.length } : payload,
    capability: context.capability,
    version: context.version,
    caller: context.caller,
    left_ms: context.leftMs,
    trace_id: context.traceId,
    idempotency_key: context.idempotencyKey,
    sequence_id: context.sequenceId,
    affinity: context.affinity,
    content_type: context.contentType,
    path: context.headers['reach-path'],
    own: context.headers['x-own'] ?? null,
  }));
  reach.serve('node.work.fail@1.0.0', (payload: Ask) => {
    if (payload.unfit) return 1n;
    if (payload.gives_up) AbortSignal.abort().throwIfAborted();
    if (payload.crash) throw new Error('a secret of the agent');
    throw new AgentError(payload.status, { why: payload.why });
  });
  reach.serve('node.work.count@1.0.0', async function* (payload: Ask) {
    for (let i = 0; i < payload.n; i++) {
      if (i === payload.break_at) throw new AgentError(409, { at: i });
      seen.pulled++;
      const kind = payload.kind ?? 'text';
      yield kind === 'text' ? `${i} ` : kind === 'json' ? { i } : Buffer.alloc(payload.size);
      if (payload.pause_ms) await new Promise((done) => setTimeout(done, payload.pause_ms));
    }
  });
  reach.serve('node.work.hang@1.0.0', (payload: Ask, { signal }) => {
    seen.hung++;
    return new Promise((done, fail) => {
      const timer = setTimeout(() => done({ hung: true }), payload?.ms ?? 60_000);
      signal.addEventListener('abort', () => {
        clearTimeout(timer);
        seen.cancelled++;
        fail(new Error('nobody waits'));
      });
    });
  });
  reach.serve('node.work.hang_stream@1.0.0', async function* (_payload: Ask, { signal }) {
    try {
      yield 'first';
      await new Promise((done) => signal.addEventListener('abort', done));
    } finally {
      seen.cancelled++;
    }
  });
  reach.serve('node.work.seen@1.0.0', () => seen);
  reach.serve('node.work.relay@1.0.0', async (payload: Ask, context) => {
    const result = await reach.invoke(payload.target, payload.payload);
    return { left_ms: context.leftMs, trace_id: context.traceId, data: result.data, provider: result.provider };
  });
  reach.serve('node.work.relay_stream@1.0.0', async function* (payload: Ask) {
    yield* reach.stream(payload.target, payload.payload);
  });
  reach.serve('node.work.big@1.0.0', (payload: Ask) =>
    payload.raw ? Buffer.alloc(payload.bytes, 'x') : { text: 'x'.repeat(payload.bytes) },
  );
  reach.serve('node.work.words@1.0.0', async function* (payload: Ask) {
    for (const word of payload.words) yield `${word} ${payload.words.length}\n`;
  });
  reach.serve('node.work.definite@1.0.0', (_payload: Ask, context) => {
    context.definitelySuccess = true;
    context.status = 404;
    return { found: null };
  });
  t.teardown(() => reach.close());
  const serving = await reach.start({ ...(port === null ? {} : { port }), graceMs });
  return { reach, port: serving.port, lines };
}
