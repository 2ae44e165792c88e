import t, { type Test } from 'tap';
import { SeededRandom } from '../../../../../base/random.ts';
import { VirtualClock } from '../../../../../base/virtual-clock.ts';
import { ReachError } from '../../../../../sdk/typescript/error.ts';
import { Http } from '../../../../../sdk/typescript/http.ts';
import { settingsOf } from '../../../../../sdk/typescript/options.ts';
import { ownFailure } from '../../../../../sdk/typescript/result.ts';
import { Backoff, pause } from '../../../../../sdk/typescript/serve/backoff.ts';
import { Offer } from '../../../../../sdk/typescript/serve/offer.ts';
import { isFinal, Registration } from '../../../../../sdk/typescript/serve/registration.ts';
import { Code } from '../../../../../proto/wire/codes.ts';
import { TestAgent } from '../../../../support/agent.ts';
import { settle, waitUntil } from '../../../../support/settle.ts';

/** A sidecar as far as registration goes: what it is asked stands in `asked`, and `known` says whether it knows the agent. */
class Registrar {
  readonly asked: string[] = [];
  readonly bodies: unknown[] = [];
  known = false;
  hasRegistry = true;
  isAway = false;
  /** Status of every answer but that of health; 0 = it answers as it should. */
  refusal = 0;
  /** Requests whose answer has not been read yet. */
  underWay = 0;

  static async start(t: Test, clock: VirtualClock): Promise<{ registrar: Registrar; registration: Registration; lines: string[] }> {
    const registrar = new Registrar();
    const agent = await TestAgent.listen('registrar', ({ method, path, json }, response) => {
      if (registrar.isAway) {
        response.socket?.destroy();
        return undefined;
      }
      registrar.asked.push(`${method} ${path}`);
      if (path === '/v1/health') return { body: { registry: registrar.hasRegistry ? {} : null } };
      if (registrar.refusal > 0) {
        const code = registrar.refusal === 401 ? Code.unauthenticated : registrar.refusal === 403 ? Code.forbidden : Code.none_healthy;
        return { status: registrar.refusal, body: { code, error: { code, detail: 'not now' } } };
      }
      if (path === '/v1/capabilities') return { body: { caller: 'a.b.1', capabilities: [] } };
      if (path === '/v1/agents') {
        registrar.bodies.push(json);
        registrar.known = true;
        return { status: 201, body: { agent: 'a.b.1', state: 'in_force', lease_ms: 30_000 } };
      }
      if (method === 'DELETE') registrar.known = false;
      return registrar.known ? { body: {} } : { status: 404, body: { code: 4003 } };
    });
    const lines: string[] = [];
    const http = new Http(settingsOf({ url: agent.url, token: 'x', clock, random: new SeededRandom(1), log: (line) => lines.push(line) }));
    const ask = http.ask.bind(http);
    http.ask = (asked) => {
      registrar.underWay++;
      return ask(asked).finally(() => registrar.underWay--);
    };
    t.teardown(async () => {
      http.close();
      await agent.close();
    });
    const offers = [new Offer('a.b.c@1.0.0', { acl: 'public', execution: 'once' }), new Offer('a.b.d@1.0.0', {})];
    return { registrar, registration: new Registration(http, offers, { type: 'channel' }, ''), lines };
  }
}

t.test('an agent registers once, beats three times a lease, and again registers where it is not known', async (t) => {
  const clock = new VirtualClock();
  const { registrar, registration, lines } = await Registrar.start(t, clock);
  await registration.enter();
  t.strictSame(registrar.asked.splice(0), ['GET /v1/health', 'GET /v1/capabilities', 'POST /v1/agents']);
  t.strictSame(registrar.bodies[0], {
    contracts: [{ name: 'a.b.c', version: '1.0.0', acl: 'public', execution: 'once' }],
    provider: { agent_id: 'a.b.1', offers: ['a.b.c@1.0.0', 'a.b.d@1.0.0'], endpoint: { type: 'channel' } },
  });
  const leaving = new AbortController();
  const kept = registration.keep(leaving.signal);
  const beats = async (count: number): Promise<void> => waitUntil(`${count} requests`, () => registrar.asked.length >= count);
  await clock.advance(9_999);
  t.strictSame(registrar.asked, [], 'not before a third of the lease');
  await clock.advance(1);
  await beats(1);
  t.strictSame(registrar.asked.splice(0), ['POST /v1/agents/a.b.1/heartbeat']);

  registrar.known = false;
  // The answer has to be read before the next pause begins.
  await waitUntil('it registers again', async () => {
    await clock.advance(10_000);
    return registrar.asked.includes('POST /v1/agents');
  });
  registrar.asked.length = 0;

  registrar.isAway = true;
  await waitUntil('it says so, once', async () => {
    await clock.advance(10_000);
    return lines.length > 0;
  });
  registrar.isAway = false;
  await waitUntil('it beats again', async () => {
    await clock.advance(5_000);
    return registrar.asked.includes('POST /v1/agents/a.b.1/heartbeat');
  });
  t.strictSame(lines.length, 1);
  t.match(lines[0], /not registered at the sidecar: .*trying again/);

  leaving.abort();
  await kept;
  await registration.leave();
  t.equal(registrar.known, false);
  t.equal(registrar.asked.at(-1), 'DELETE /v1/agents/a.b.1');
  registrar.asked.length = 0;
  await registration.leave();
  t.strictSame(registrar.asked, [], 'one leave is enough');
});

t.test('a sign of life that is refused is said, and is none', async (t) => {
  const clock = new VirtualClock();
  const { registrar, registration, lines } = await Registrar.start(t, clock);
  await registration.enter();
  const leaving = new AbortController();
  let ended: unknown = null;
  const kept = registration.keep(leaving.signal).catch((error: unknown) => (ended = error));
  const after = (ms: number, words: string, isTrue: () => boolean): Promise<void> =>
    waitUntil(words, async () => {
      await clock.advance(ms);
      return isTrue();
    });
  for (const status of [403, 503]) {
    lines.length = 0;
    registrar.refusal = status;
    await after(10_000, `${status} is said`, () => lines.length > 0);
    registrar.asked.length = 0;
    await after(5_000, 'it is tried again', () => registrar.asked.length > 4);
    t.equal(lines.length, 1, 'once');
    t.match(lines[0], /not registered at the sidecar: .*not now.*; trying again/);
    registrar.refusal = 0;
    registrar.asked.length = 0;
    await after(5_000, 'it is taken again', () => registrar.asked.length > 0);
    // The answer has to be read before the next pause begins; some of that may have passed then.
    await waitUntil('its answer is read', () => registrar.underWay === 0);
    await settle();
    registrar.asked.length = 0;
    const leftMs = (clock.nextAt() ?? 0) - clock.now();
    t.ok(leftMs >= 5_000 && leftMs <= 10_000, `after ${status}: it beats as before, not as one who looks for its sidecar (${leftMs} ms)`);
    await clock.advance(leftMs - 1);
    t.strictSame(registrar.asked, []);
  }
  t.equal(ended, null);

  lines.length = 0;
  registrar.refusal = 401;
  await after(10_000, 'it ends', () => ended !== null);
  t.match(ended, { code: Code.unauthenticated, message: /not now/ });
  t.match(lines, [/not registered at the sidecar any more: not now/]);
  registrar.asked.length = 0;
  await clock.advance(60_000);
  t.strictSame(registrar.asked, [], 'trying again would do no good');
  leaving.abort();
  await kept;
});

t.test('a registry that is gone after a restart is no refusal', async (t) => {
  const clock = new VirtualClock();
  const { registrar, registration, lines } = await Registrar.start(t, clock);
  await registration.enter();
  const leaving = new AbortController();
  const kept = registration.keep(leaving.signal);
  registrar.hasRegistry = false;
  registrar.refusal = 409;
  await waitUntil('it has looked', async () => {
    await clock.advance(10_000);
    return !registration.isKnown;
  });
  t.strictSame(lines, []);
  leaving.abort();
  await kept;
});

t.test('a sidecar without a registry is told nothing', async (t) => {
  const { registrar, registration } = await Registrar.start(t, new VirtualClock());
  registrar.hasRegistry = false;
  await registration.enter();
  await registration.leave();
  t.strictSame(registrar.asked, ['GET /v1/health']);
});

t.test('what is final is what would be refused again', async (t) => {
  const final = (code: Code): boolean => isFinal(new ReachError(ownFailure(code, '', false, 0)));
  for (const code of [4001, 4002, 4003, 4006] as const) t.ok(final(code), String(code));
  for (const code of [1001, 1002, 2003, 2006, 3004, 5001, 9001] as const) t.notOk(final(code), String(code));
  t.notOk(isFinal(new Error('else')));
});

t.test('pauses grow to a limit, are never in step, and end at once when they are not needed any more', async (t) => {
  const backoff = new Backoff(new SeededRandom(3));
  const pauses = Array.from({ length: 60 }, () => backoff.next());
  for (const [i, ms] of pauses.entries()) {
    const step = Math.min(5_000, 100 * 2 ** Math.min(i, 16));
    t.ok(ms >= step / 4 && ms <= step, `pause ${i} is ${ms}`);
  }
  t.ok(new Set(pauses.slice(10)).size > 40, 'they differ');
  backoff.reset();
  t.ok(backoff.next() <= 100);
  const clock = new VirtualClock();
  const stop = new AbortController();
  let over = 0;
  void pause(1_000, clock, stop.signal).then(() => over++);
  void pause(9_000, clock, stop.signal).then(() => over++);
  await clock.advance(1_000);
  t.equal(over, 1);
  stop.abort();
  await clock.advance(0);
  t.equal(over, 2);
  await pause(1_000, clock, stop.signal);
});
