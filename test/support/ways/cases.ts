/**
 * The one set of calls that every way in has to answer alike: the same fields, whatever the protocol. What is expected is
 * written down here once, and no way is compared with another.
 */
import { deepStrictEqual, equal, match, ok } from 'node:assert/strict';
import { Code, codeEntry } from '../../../proto/wire/codes.ts';
import { waitUntil } from '../settle.ts';
import { chainTo, spansOf } from '../span-chain.ts';
import { CUT_AFTER, LINES, REFUSED, type Seen } from '../transports/behaviour.ts';
import type { Ask, StartedWay, Told } from './way.ts';

export class WayWorld {
  readonly way: StartedWay;
  readonly seen: Seen;

  constructor(way: StartedWay, seen: Seen) {
    this.way = way;
    this.seen = seen;
  }

  async call(ask: Ask): Promise<Told> {
    const told = await this.way.client.call(ask);
    ok(told !== null, 'it did not leave');
    return told;
  }

  /** A refusal or failure: these fields and no others. */
  async fails(ask: Ask, code: Code, more: Partial<Told> = {}): Promise<void> {
    const { traceId: _, ...told } = await this.call(ask);
    const entry = codeEntry(code);
    deepStrictEqual(told, {
      code,
      name: entry.name,
      status: 0,
      data: null,
      provider: null,
      version: null,
      degraded: false,
      definitelySuccess: false,
      retryable: entry.retryable,
      ambiguous: false,
      ...more,
    });
  }

  /** The last call in the access log. */
  logged(): Readonly<Record<string, unknown>> {
    return this.way.rig.logged.filter((line) => line['msg'] === 'call').at(-1) as Record<string, unknown>;
  }

  async rest(): Promise<void> {
    await waitUntil('no call is under way', () => this.way.rig.quiet.inFlight() === 0, 3_000);
  }
}

interface WayCase {
  readonly what: string;
  readonly run: (world: WayWorld) => Promise<void>;
}

const at = (word: string): Pick<Told, 'provider' | 'version'> => ({ provider: `peer.ways.${word}`, version: '2.0.0' });
const linesOf = (text: string): string[] => text.split('\n').filter((line) => line !== '');

export const WAY_CASES = {
  success: {
    what: 'A call and its Result',
    run: async (world) => {
      const payload = { text: 'grüße ☕', list: [1, null] };
      const { traceId, ...told } = await world.call({ capability: 'peer.echo.do@^2.0', payload: JSON.stringify(payload) });
      match(traceId, /^[0-9a-f]{32}$/);
      deepStrictEqual(told, {
        code: 0,
        name: '',
        status: 200,
        data: payload,
        ...at('echo'),
        degraded: false,
        definitelySuccess: false,
        retryable: false,
        ambiguous: false,
      });
    },
  },
  definitely: {
    what: '`definitely_success`',
    run: async (world) => {
      const told = await world.call({ capability: 'peer.sure.do' });
      deepStrictEqual([told.code, told.data, told.definitelySuccess], [0, [], true]);
    },
  },
  degraded: {
    what: 'A degraded answer from the fallback',
    run: async (world) => {
      const told = await world.call({ capability: 'peer.lesser.do' });
      deepStrictEqual([told.code, told.data, told.degraded, told.provider], [0, { text: 'later' }, true, null]);
    },
  },
  no_provider: {
    what: '2001: nobody offers it',
    run: (world) => world.fails({ capability: 'peer.nobody.do' }, Code.no_provider),
  },
  no_version: {
    what: '2002: not in this version',
    run: (world) => world.fails({ capability: 'peer.echo.do@^9.0' }, Code.no_matching_version),
  },
  none_healthy: {
    what: '2003: nobody can be used',
    run: (world) => world.fails({ capability: 'peer.drained.do' }, Code.none_healthy),
  },
  blocked: {
    what: '2006: an operator has blocked it',
    run: (world) => world.fails({ capability: 'peer.blocked.do' }, Code.blocked_by_operator),
  },
  unauthenticated: {
    what: '4001: an unknown credential',
    run: (world) => world.fails({ capability: 'peer.echo.do', token: 'somebody-elses' }, Code.unauthenticated),
  },
  forbidden: {
    what: '4002: the ACL says no',
    run: (world) => world.fails({ capability: 'peer.closed.do' }, Code.forbidden),
  },
  invalid: {
    what: '4003: the payload breaks the contract',
    run: (world) => world.fails({ capability: 'peer.strict.do', payload: '{"no":"id"}' }, Code.invalid_request),
  },
  too_large: {
    what: '4005: the payload is above the limit',
    run: (world) => world.fails({ capability: 'peer.small.do', payload: JSON.stringify({ x: 'x'.repeat(2_000) }) }, Code.payload_too_large),
  },
  bad_name: {
    what: '4006: no good name',
    run: (world) => world.fails({ capability: 'peer.echo' }, Code.bad_name),
  },
  no_key: {
    what: '4009: the conversation key is missing',
    run: (world) => world.fails({ capability: 'peer.keyed.do' }, Code.affinity_key_missing),
  },
  busy: {
    what: '3002, 3003: too many in flight, of this caller or at the provider',
    run: async (world) => {
      const before = world.seen.asked.length;
      let leaves = (): void => undefined;
      const leave = new Promise<void>((done) => {
        leaves = done;
      });
      const first = world.way.client.call({ capability: 'peer.single.do', leave });
      await waitUntil('the first is under way', () => world.seen.asked.length > before);
      await world.fails({ capability: 'peer.single.do' }, Code.caller_busy);
      const second = world.way.client.call({ capability: 'peer.crowded.do', leave });
      await waitUntil('the second is under way', () => world.seen.asked.length > before + 1);
      await world.fails({ capability: 'peer.crowded.do' }, Code.provider_busy);
      leaves();
      deepStrictEqual([await first, await second], [null, null]);
      await world.rest();
    },
  },
  connect: {
    what: '1001: the provider is not there',
    run: (world) => world.fails({ capability: 'peer.gone.do' }, Code.connect_timeout, at('gone')),
  },
  lost: {
    what: '1002: the connection broke',
    run: (world) => world.fails({ capability: 'peer.dies.do' }, Code.connection_lost, { ...at('dies'), retryable: false, ambiguous: true }),
  },
  slow: {
    what: '1003: the provider is too slow',
    run: (world) =>
      world.fails({ capability: 'peer.slow.do' }, Code.response_timeout, { ...at('slow'), retryable: false, ambiguous: true }),
  },
  deadline: {
    what: '5001: the time that the caller gave is over',
    run: (world) =>
      world.fails({ capability: 'peer.hangs.do', deadlineMs: 400 }, Code.deadline_exceeded, { ...at('hangs'), ambiguous: true }),
  },
  provider_error: {
    what: "6001: the agent's own error, its status and body",
    run: (world) => world.fails({ capability: 'peer.refuses.do' }, Code.provider_error, { ...at('refuses'), status: 422, data: REFUSED }),
  },
  left: {
    what: '5003: a caller that leaves, and the peer is told',
    run: async (world) => {
      const before = world.seen.gone;
      const asked = world.seen.asked.length;
      const leave = waitUntil('the peer has been asked', () => world.seen.asked.length > asked);
      equal(await world.way.client.call({ capability: 'peer.hangs.do', leave }), null);
      await waitUntil('the peer is told', () => world.seen.gone > before, 3_000);
      await world.rest();
      equal(world.logged()['code'], Code.cancelled);
    },
  },
  key: {
    what: 'The idempotency key is passed on',
    run: async (world) => {
      await world.call({ capability: 'peer.hears.do', key: 'key-of-the-work' });
      equal(world.seen.asked.at(-1)?.headers['idempotency-key'], 'key-of-the-work');
    },
  },
  trace: {
    what: "The caller's trace goes on",
    run: async (world) => {
      const trace = '0af7651916cd43dd8448eb211c80319d';
      const { traceId } = await world.call({ capability: 'peer.hears.do', traceparent: `00-${trace}-b7ad6b7169203331-01` });
      equal(traceId, trace);
      match(world.seen.asked.at(-1)?.headers['traceparent'] ?? '', new RegExp(`^00-${trace}-(?!b7ad6b7169203331)[0-9a-f]{16}-01$`));
      await world.rest();
      const { rig, others } = world.way;
      const stages = chainTo(spansOf([rig, ...others], trace), world.seen.asked.at(-1)?.headers['traceparent'], 'b7ad6b7169203331');
      deepStrictEqual(stages, others.length === 0 ? ['attempt', 'outbound'] : ['attempt', 'inbound', 'attempt', 'outbound']);
      for (const flags of ['00', '02', '03']) {
        await world.call({ capability: 'peer.hears.do', traceparent: `00-${trace}-b7ad6b7169203331-${flags}` });
        equal(world.seen.asked.at(-1)?.headers['traceparent']?.slice(-2), flags, 'the flags are those of the trace');
      }
    },
  },
  deadline_passed: {
    what: "The caller's time is passed on",
    run: async (world) => {
      await world.call({ capability: 'peer.hears.do', deadlineMs: 3_000 });
      const left = world.seen.asked.at(-1)?.deadlineMs ?? 0;
      ok(left > 500 && left <= 3_000, `${left}`);
    },
  },
  stream_whole: {
    what: 'A stream, whole and in order',
    run: async (world) => {
      const { how, text, code } = await world.way.client.stream({ capability: 'peer.flows.do' });
      deepStrictEqual([how, code], ['whole', 0]);
      deepStrictEqual(linesOf(text), LINES);
    },
  },
  stream_cut: {
    what: 'A cut stream is told as cut',
    run: async (world) => {
      const { how, text, code } = await world.way.client.stream({ capability: 'peer.snaps.do' });
      equal(how, 'cut');
      ok(code === null || code === Code.stream_interrupted, `${code}`);
      deepStrictEqual(linesOf(text), LINES.slice(0, CUT_AFTER));
    },
  },
  stream_left: {
    what: 'A caller that leaves a stream, and the peer is told',
    run: async (world) => {
      const before = world.seen.gone;
      equal((await world.way.client.stream({ capability: 'peer.drips.do', leaveAfterFirst: true })).how, 'left');
      await waitUntil('the peer is told', () => world.seen.gone > before, 3_000);
      await world.rest();
      equal(world.logged()['code'], Code.cancelled);
    },
  },
  stream_refused: {
    what: 'A refusal instead of a stream',
    run: async (world) => {
      const { how, code } = await world.way.client.stream({ capability: 'peer.closed.do' });
      deepStrictEqual([how, code], ['refused', Code.forbidden]);
    },
  },
  cast: {
    what: 'A cast: accepted, or refused, with the same words',
    run: async (world) => {
      const trace = '0af7651916cd43dd8448eb211c80319c';
      const headers = {
        'reach-priority': 'high',
        'idempotency-key': 'key-of-the-message',
        traceparent: `00-${trace}-b7ad6b7169203331-01`,
      };
      const cast = { capability: 'peer.hears.do', payload: '{"n":1}', headers };
      const { client } = world.way;
      // There is no NATS here: a message is durable nowhere.
      equal((await client.cast(cast)).code, Code.delivery_unavailable);
      equal((await client.cast({ ...cast, headers: { ...headers, 'reach-priority': 'urgent' } })).code, Code.invalid_request);
      const before = world.seen.asked.length;
      deepStrictEqual(await client.cast({ ...cast, headers: { ...headers, 'reach-best-effort': '1' } }), {
        code: 0,
        durable: 'none',
        state: 'accepted',
        capability: 'peer.hears.do',
        lane: 'high',
        rule: null,
        powerId: 'key-of-the-message',
        traceId: trace,
      });
      await waitUntil('it is carried out', () => world.seen.asked.length > before);
      equal(world.seen.asked.at(-1)?.headers['idempotency-key'], 'key-of-the-message');
      await world.rest();
    },
  },
  explain: {
    what: 'Explain: who would serve, and why not',
    run: async (world) => {
      deepStrictEqual(await world.way.client.explain({ capability: 'peer.echo.do' }), { provider: 'peer.ways.echo', code: 0 });
      deepStrictEqual(await world.way.client.explain({ capability: 'peer.drained.do' }), { provider: null, code: Code.none_healthy });
    },
  },
} as const satisfies Readonly<Record<string, WayCase>>;

export type CaseId = keyof typeof WAY_CASES;
export const WAY_CASE_IDS = Object.keys(WAY_CASES) as readonly CaseId[];
