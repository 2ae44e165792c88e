/**
 * The one set of cases that every transport has to pass, through a whole sidecar: same call, same Result, same code. A
 * case that fails throws; what a protocol cannot do is said by its fixture, not here.
 */
import { deepStrictEqual, equal, match, ok } from 'node:assert/strict';
import { Code } from '../../../proto/wire/codes.ts';
import { NO_HEADERS } from '../../../sidecar/call/call.ts';
import type { Reply } from '../../../sidecar/call/reply.ts';
import { Exchange } from '../../../sidecar/transports/transport.ts';
import { eventsIn, openReading, type Reading, type ReadingOptions } from '../reading.ts';
import { type Answer, type Asking, CALLER, type Rig, TOKEN } from '../rig.ts';
import { waitUntil } from '../settle.ts';
import { chainTo, spansOf } from '../span-chain.ts';
import {
  type Asked,
  type Behaviour,
  CUT_AFTER,
  capabilityOf,
  EXACT,
  LINES,
  POUR_LINE_BYTES,
  POUR_LINES,
  REFUSED,
  BROKEN,
  type Seen,
  VALUE,
} from './behaviour.ts';
import type { TransportFixture } from './fixture.ts';

export class World {
  readonly rig: Rig;
  readonly seen: Seen;
  readonly fixture: TransportFixture;

  /** The sidecar that hosts the peer; null = it is reached directly. */
  readonly host: Rig | null;

  constructor(rig: Rig, seen: Seen, fixture: TransportFixture, host: Rig | null = null) {
    this.rig = rig;
    this.host = host;
    this.seen = seen;
    this.fixture = fixture;
  }

  call(behaviour: Behaviour | 'gone', asking: Asking = {}): Promise<Answer> {
    return this.rig.invoke(capabilityOf(behaviour), asking);
  }

  open(behaviour: Behaviour | 'gone', options: ReadingOptions = {}): Promise<Reading> {
    return openReading(this.rig, capabilityOf(behaviour), options);
  }

  /** What the peer heard of one call, sent with these headers. */
  async heard(headers: Readonly<Record<string, string>>): Promise<{ readonly asked: Asked; readonly json: Answer['json'] }> {
    const { json } = await this.call('hears', { headers });
    equal(json.code, 0, JSON.stringify(json));
    return { asked: this.seen.asked.at(-1) as Asked, json };
  }

  /** What no way in asks for yet: straight to the adapter, with what the attempt stage would give it. */
  cast(behaviour: Behaviour | 'gone', body: string): Promise<Reply> {
    const { engine, table } = this.rig.started.front;
    const candidate = table.current().capabilities.get(capabilityOf(behaviour))?.versions[0]?.candidates[0];
    ok(candidate !== undefined);
    const own = ['reach-deadline-ms', '3000', 'traceparent', `00-${TRACE}-b7ad6b7169203331-01`, 'reach-path', '', 'reach-caller', CALLER];
    const exchange = new Exchange(candidate, Buffer.from(body), 'application/json', NO_HEADERS, own, 3_000, 65_536, undefined);
    return engine.transports.for(candidate).cast(exchange);
  }

  /** The last line of the access log. */
  lastLogged(): Readonly<Record<string, unknown>> {
    return this.rig.logged.filter((line) => line['msg'] === 'call').at(-1) as Record<string, unknown>;
  }

  /** Settles when the peer has been asked once more. A script cannot tell: some time will do for it. */
  async nextAsked(): Promise<void> {
    const before = this.seen.asked.length;
    if (this.fixture.type === 'mock') await new Promise<void>((done) => setTimeout(done, 120));
    else await waitUntil('the peer has been asked', () => this.seen.asked.length > before);
  }

  async hasGone(before: number): Promise<void> {
    await waitUntil('the peer sees that its caller has gone', () => this.seen.gone > before, 3_000);
  }

  /** Failures that the breaker of a behaviour's provider has counted. */
  failures(behaviour: Behaviour | 'gone'): number {
    const { health, clock } = this.rig.started.front.engine;
    for (const cell of health.cells()) if (cell.capability === capabilityOf(behaviour)) return cell.failuresInWindow(clock.now());
    return 0;
  }
}

interface ConformanceCase {
  /** What is shown in the matrix. */
  readonly what: string;
  readonly run: (world: World) => Promise<void>;
}

const TRACE = '0af7651916cd43dd8448eb211c80319c';
const shown = (json: unknown): string => JSON.stringify(json);

function fails(json: Answer['json'], code: number, ambiguous: boolean): void {
  equal(json.code, code, shown(json));
  equal(json.error.code, code);
  equal(json.ambiguous, ambiguous, `ambiguous: ${shown(json)}`);
  ok(json.detail.length > 0, 'it says why');
  equal(json.attempts.length, 1, 'one attempt');
}

async function ownError(world: World, behaviour: 'refuses' | 'breaks', status: number, why: string): Promise<void> {
  const { json } = await world.call(behaviour);
  fails(json, Code.provider_error, false);
  equal(json.retryable, false);
  equal(json.attempts[0].started, 'done');
  equal(json.attempts[0].status, status, shown(json));
  ok(shown(json.data).includes(why), `the agent's own words: ${shown(json.data)}`);
}

/** The last event of a stream that was cut: its code, and that what came before came whole. */
async function cutBy(reading: Reading, code: number): Promise<readonly string[]> {
  const { cut, text } = await reading.rest();
  equal(cut, false, 'a stream of events always ends properly');
  const events = eventsIn(text);
  const last = events.at(-1);
  equal(last?.event, 'error', text.slice(-500));
  equal(JSON.parse(last?.data ?? '{}').code, code, last?.data ?? '');
  return events.slice(0, -1).flatMap(({ data }) => data.split('\n').filter((line) => line !== ''));
}

export const CASES = {
  echo: {
    what: 'Payload and answer, unchanged',
    run: async (world) => {
      const payload = { text: 'grüße ☕ \u2028', list: [1, null, 'x'], flag: true };
      const { status, json } = await world.call('echo', { payload });
      equal(status, 200, shown(json));
      deepStrictEqual(json.data, payload);
      equal(json.error, null);
      equal(json.provider, `peer.conf.echo`);
      equal(json.version, '2.0.0');
      equal(json.status, 200);
      equal(json.degraded, false);
      equal(json.definitely_success, false);
      equal(json.attempts.length, 1);
      equal(json.attempts[0].started, 'done');
    },
  },
  value: {
    what: 'Unicode, null, nested values',
    run: async (world) => {
      const { json } = await world.call('value');
      equal(json.code, 0, shown(json));
      deepStrictEqual(json.data, VALUE);
    },
  },
  exact: {
    what: 'Numbers beyond a double, byte for byte',
    run: async (world) => {
      const { json, bytes } = await world.call('exact', { body: EXACT });
      equal(json.code, 0, shown(json));
      ok(bytes.includes(`"data":${EXACT}`), bytes.toString('utf8'));
      equal(world.seen.asked.at(-1)?.body.toString('utf8'), EXACT, 'and on the way there');
    },
  },
  nothing: {
    what: 'An answer of null',
    run: async (world) => {
      const { json } = await world.call('nothing');
      equal(json.code, 0, shown(json));
      equal(json.data, null);
    },
  },
  empty: {
    what: 'An empty answer',
    run: async (world) => {
      const { json } = await world.call('empty');
      equal(json.code, 0, shown(json));
      ok(json.data === null || shown(json.data) === '{}', shown(json.data));
    },
  },
  concurrent: {
    what: '50 calls at once do not mix',
    run: async (world) => {
      const answers = await Promise.all(Array.from({ length: 50 }, (_, n) => world.call('echo', { payload: { n } })));
      answers.forEach(({ json }, n) => deepStrictEqual([json.code, json.data?.n], [0, n], shown(json)));
    },
  },
  refuses: {
    what: "The agent's own error, the caller's fault (6001)",
    run: async (world) => {
      await ownError(world, 'refuses', world.fixture.errorStatus.theirs, REFUSED.why);
      equal(world.failures('refuses'), 0, 'it does not count against the provider');
    },
  },
  breaks: {
    what: "The agent's own error, its own fault (6001)",
    run: async (world) => {
      await ownError(world, 'breaks', world.fixture.errorStatus.ours, BROKEN.why);
      equal(world.failures('breaks'), 1, 'it counts against the provider');
    },
  },
  sure: {
    what: 'An empty answer the agent stands by (`definitely_success`)',
    run: async (world) => {
      const { json } = await world.call('sure');
      equal(json.code, 0, shown(json));
      equal(json.definitely_success, true, shown(json));
      equal(world.failures('sure'), 0);
    },
  },
  slow: {
    what: "Slower than the contract's timeout (1003)",
    run: async (world) => {
      const { json, elapsedMs } = await world.call('slow');
      fails(json, Code.response_timeout, true);
      equal(json.retryable, false, 'what may have been done is not to be repeated');
      ok(elapsedMs < 2_000, `after ${elapsedMs} ms`);
    },
  },
  deadline: {
    what: 'The total deadline ends it (5001)',
    run: async (world) => {
      const { json, elapsedMs } = await world.call('hangs', { headers: { 'reach-deadline-ms': '400' } });
      fails(json, Code.deadline_exceeded, true);
      ok(elapsedMs < 1_500, `after ${elapsedMs} ms`);
    },
  },
  timeout_told: {
    what: 'A peer is told that time is up',
    run: async (world) => {
      const before = world.seen.gone;
      await world.call('hangs', { headers: { 'reach-deadline-ms': '400' } });
      await world.hasGone(before);
    },
  },
  cancel: {
    what: 'A caller that leaves ends the call here (5003)',
    run: async (world) => {
      const logged = world.rig.quiet.accessRecords();
      await world.call('hangs', { hangUp: world.nextAsked() }).then(
        () => ok(false, 'it was to leave'),
        () => undefined,
      );
      await waitUntil('the call has ended', () => world.rig.quiet.accessRecords() > logged && world.rig.quiet.inFlight() === 0, 2_000);
      equal(world.lastLogged()['code'], Code.cancelled);
    },
  },
  cancel_told: {
    what: 'A peer is told that its caller left',
    run: async (world) => {
      const before = world.seen.gone;
      await world.call('hangs', { hangUp: world.nextAsked() }).catch(() => undefined);
      await world.hasGone(before);
    },
  },
  gone: {
    what: 'Nobody there: never started, safe to repeat (1001; 2003 where it is known before anything is tried)',
    run: async (world) => {
      const { json } = await world.call('gone');
      if (world.fixture.knowsPresence === true) {
        equal(json.code, Code.none_healthy, shown(json));
        deepStrictEqual([json.ambiguous, json.retryable, json.attempts], [false, true, []]);
        return;
      }
      fails(json, Code.connect_timeout, false);
      equal(json.attempts[0].started, 'not_started', shown(json));
      equal(json.retryable, true);
    },
  },
  dies: {
    what: 'The connection breaks before the answer (1002)',
    run: async (world) => {
      const { json } = await world.call('dies');
      fails(json, Code.connection_lost, true);
      equal(json.retryable, false);
    },
  },
  halves: {
    what: 'The connection breaks within a whole answer (1004)',
    run: async (world) => {
      const { json } = await world.call('halves');
      fails(json, Code.bad_response, true);
    },
  },
  large: {
    what: 'An answer above the limit (1005)',
    run: async (world) => {
      const { json } = await world.call('large');
      fails(json, Code.response_too_large, true);
      match(json.detail, /limit/);
    },
  },
  malformed: {
    what: 'An answer that is none (1004)',
    run: async (world) => {
      const { json, bytes } = await world.call('malformed');
      equal(json?.code, Code.bad_response, bytes.toString('utf8'));
      equal(json.code, Code.bad_response, shown(json));
      ok(json.detail.length > 0);
    },
  },
  hears_deadline: {
    what: 'The time that is left arrives',
    run: async (world) => {
      const { asked } = await world.heard({ 'reach-deadline-ms': '4000' });
      ok(asked.deadlineMs !== null && asked.deadlineMs > 1_000 && asked.deadlineMs <= 4_000, `${asked.deadlineMs}`);
    },
  },
  hears_trace: {
    what: 'The trace context arrives',
    run: async (world) => {
      const { asked, json } = await world.heard({ traceparent: `00-${TRACE}-b7ad6b7169203331-01`, tracestate: 'a=1' });
      match(asked.headers['traceparent'] ?? '', new RegExp(`^00-${TRACE}-[0-9a-f]{16}-01$`));
      ok(!asked.headers['traceparent']?.includes('b7ad6b7169203331'), 'with a span of its own');
      equal(asked.headers['tracestate'], 'a=1');
      equal(json.trace_id, TRACE);
      const isHosted = world.host !== null;
      await waitUntil('the call has ended', () => world.rig.quiet.inFlight() === 0 && (world.host?.quiet.inFlight() ?? 0) === 0, 3_000);
      const spans = spansOf(world.host === null ? [world.rig] : [world.rig, world.host], TRACE);
      const stages = chainTo(spans, asked.headers['traceparent'], 'b7ad6b7169203331');
      deepStrictEqual(stages, isHosted ? ['attempt', 'inbound', 'attempt', 'outbound'] : ['attempt', 'outbound']);
      for (const flags of ['00', '02', '03']) {
        const again = await world.heard({ traceparent: `00-${TRACE}-b7ad6b7169203331-${flags}` });
        equal(again.asked.headers['traceparent']?.slice(-2), flags, 'the flags are those of the trace');
      }
    },
  },
  hears_path: {
    what: 'The path and the caller arrive',
    run: async (world) => {
      const { asked } = await world.heard({});
      match(asked.headers['reach-path'] ?? '', /peer\.hears\.do/);
      equal(asked.headers['reach-caller'], CALLER);
    },
  },
  hears_key: {
    what: 'The idempotency key arrives',
    run: async (world) => {
      const { asked } = await world.heard({ 'idempotency-key': 'key-of-the-work' });
      equal(asked.headers['idempotency-key'], 'key-of-the-work');
      equal(asked.headers['reach-power-id'], 'key-of-the-work');
    },
  },
  hears_headers: {
    what: "The caller's own headers arrive, its credential does not",
    run: async (world) => {
      const { asked } = await world.heard({ 'x-tenant': 'acme', cookie: 'session=1' });
      equal(asked.headers['x-tenant'], 'acme');
      equal(asked.headers['cookie'], undefined);
      ok(!shown(asked.headers).includes(TOKEN), shown(asked.headers));
    },
  },
  cast: {
    what: 'Handed over without waiting for an answer',
    run: async (world) => {
      const asked = world.seen.asked.length;
      const { code, status, body, stream } = await world.cast('echo', '{"n":7}');
      deepStrictEqual([code, body.length, stream], [0, 0, null]);
      ok(status >= 200 && status < 300, `${status}`);
      if (world.fixture.type !== 'mock') {
        await waitUntil('the peer has it', () => world.seen.asked.length > asked);
        equal(world.seen.asked.length, asked + 1);
        deepStrictEqual(JSON.parse(world.seen.asked.at(-1)?.body.toString('utf8') ?? ''), { n: 7 });
      }
      const gone = await world.cast('gone', '{}');
      deepStrictEqual([gone.code, gone.started], [Code.connect_timeout, 'not_started'], gone.detail);
    },
  },
  stream: {
    what: 'A stream, whole and in order',
    run: async (world) => {
      const reading = await world.open('flows');
      equal(reading.status, 200);
      const { cut, text } = await reading.rest();
      equal(cut, false);
      deepStrictEqual(text.trimEnd().split('\n').map(parsed), LINES.map(parsed));
    },
  },
  stream_steps: {
    what: 'Each piece as it comes; a stream may last longer than the timeout of an attempt',
    run: async (world) => {
      const reading = await world.open('steps');
      ok(await reading.until((text) => text.includes(JSON.parse(LINES[0] as string).word)), 'the first piece is here');
      await waitUntil('the peer waits', () => world.seen.isWaiting);
      await new Promise<void>((done) => setTimeout(done, 500));
      world.seen.release();
      const { cut, text } = await reading.rest();
      equal(cut, false);
      deepStrictEqual(text.trimEnd().split('\n').map(parsed), LINES.slice(0, 2).map(parsed));
    },
  },
  stream_empty: {
    what: 'A stream without a piece',
    run: async (world) => {
      const reading = await world.open('silent');
      equal(reading.status, 200);
      deepStrictEqual(await reading.rest(), { cut: false, text: '', bytes: 0 });
    },
  },
  stream_pace: {
    what: 'A slow reader holds the peer back',
    run: async (world) => {
      world.seen.pouredBytes = 0;
      const reading = await world.open('pours', { paused: true });
      let last = -1;
      // At rest: what the buffers on the way hold is taken, and nothing more.
      await waitUntil(
        'the peer is held back',
        async () => {
          const was = last;
          last = world.seen.pouredBytes;
          await new Promise<void>((done) => setTimeout(done, 100));
          return last > 0 && was === last && world.seen.pouredBytes === last;
        },
        6_000,
      );
      const whole = POUR_LINES * POUR_LINE_BYTES;
      ok(last < whole * 0.75, `${last} bytes of ${whole} were sent to a caller that reads nothing`);
      reading.resume();
      const { cut, bytes } = await reading.rest();
      equal(cut, false);
      equal(bytes, whole, 'and nothing is lost');
    },
  },
  stream_cut: {
    what: 'A cut stream is told as cut (1006)',
    run: async (world) => {
      const plain = await (await world.open('snaps')).rest();
      equal(plain.cut, true, 'plain chunks end without the last one');
      const lines = await cutBy(await world.open('snaps', { events: true }), Code.stream_interrupted);
      deepStrictEqual(lines.map(parsed), LINES.slice(0, CUT_AFTER).map(parsed), 'what came before the cut came whole');
    },
  },
  stream_deadline: {
    what: 'The total deadline ends a stream (5001)',
    run: async (world) => {
      const lines = await cutBy(
        await world.open('drips', { events: true, headers: { 'reach-deadline-ms': '500' } }),
        Code.deadline_exceeded,
      );
      ok(lines.length > 1);
    },
  },
  stream_cancel: {
    what: 'A caller that leaves a stream stops the peer',
    run: async (world) => {
      const before = world.seen.gone;
      const reading = await world.open('drips');
      ok(await reading.until(1));
      reading.leave();
      await world.hasGone(before);
      await waitUntil('the call has ended', () => world.rig.quiet.inFlight() === 0, 2_000);
      equal(world.lastLogged()['code'], Code.cancelled);
    },
  },
  stream_refused: {
    what: "The agent's own error instead of a stream (6001)",
    run: async (world) => {
      const reading = await world.open('refuses');
      equal(reading.status, world.fixture.errorStatus.theirs);
      equal(reading.headers['reach-code'], String(Code.provider_error));
      match((await reading.rest()).text, new RegExp(REFUSED.why));
    },
  },
  stream_gone: {
    what: 'Nobody there to stream (1001, 2003)',
    run: async (world) => {
      const reading = await world.open('gone');
      equal(reading.status, 503);
      const code = world.fixture.knowsPresence === true ? Code.none_healthy : Code.connect_timeout;
      equal(JSON.parse((await reading.rest()).text).code, code);
    },
  },
  stream_slow: {
    what: 'No first piece within the timeout (1003)',
    run: async (world) => {
      const reading = await world.open('slow');
      equal(JSON.parse((await reading.rest()).text).code, Code.response_timeout);
    },
  },
} as const satisfies Readonly<Record<string, ConformanceCase>>;

export type CaseId = keyof typeof CASES;
export const CASE_IDS = Object.keys(CASES) as readonly CaseId[];

function parsed(line: string): unknown {
  return JSON.parse(line);
}
