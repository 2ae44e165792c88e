import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { Generator, type GeneratorOptions } from '../../drills/generator.ts';
import { figuresOf, tableOf } from '../../drills/phases.ts';
import { waitUntil } from '../../support/settle.ts';
import { freePort } from '../../support/sockets.ts';

/** A sidecar as the generator sees it; `answer` may do otherwise than answer well. */
async function stub(
  t: Test,
  port: number,
  answer: (n: number, response: ServerResponse) => void,
): Promise<{ readonly port: number; close(): Promise<void> }> {
  const server = createServer((request, response) => {
    void numberIn(request).then((n) => answer(n, response));
  });
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  const close = async (): Promise<void> => {
    server.closeAllConnections();
    if (server.listening) await new Promise((done) => server.close(done));
  };
  t.teardown(close);
  return { port: (server.address() as AddressInfo).port, close };
}

async function numberIn(request: IncomingMessage): Promise<number> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return (JSON.parse(Buffer.concat(chunks).toString('utf8')) as { n: number }).n;
}

function good(n: number, response: ServerResponse, by = 'a.b.c'): void {
  response.end(JSON.stringify({ code: 0, degraded: false, data: { asked: n, by }, provider: 'a.b.c', attempts: [{}] }));
}

function start(t: Test, ports: readonly number[], ratePerSec = 200, options: GeneratorOptions = {}): Generator {
  const lanes = ports.map((port, i) => ({ name: `lane-${i}`, url: `http://127.0.0.1:${port}`, token: 'not-for-production' }));
  const generator = new Generator(lanes, ['a.b.c@^1.0'], ratePerSec, options);
  t.teardown(() => generator.end());
  return generator;
}

t.test('the generator of a drill', async (t) => {
  await t.test('counts every call once, shared evenly among the lanes', async (t) => {
    const [one, two] = [await stub(t, 0, good), await stub(t, 0, good)];
    const generator = start(t, [one.port, two.port]);
    await waitUntil('forty calls', () => generator.calls.length >= 40);
    await generator.end();
    t.strictSame(generator.failures, []);
    t.equal(generator.reconnects, 0);
    t.equal(generator.inFlight, 0);
    const onFirst = generator.calls.filter(({ lane }) => lane === 0).length;
    t.ok(Math.abs(2 * onFirst - generator.calls.length) <= 1, `${onFirst} of ${generator.calls.length}`);
  });

  await t.test('sends a call again whose connection was refused, and counts each refusal', async (t) => {
    const port = await freePort();
    const generator = start(t, [port]);
    await waitUntil('refusals', () => generator.reconnects >= 3);
    t.strictSame([generator.calls.length, generator.failures.length], [0, 0]);
    await stub(t, port, good);
    await waitUntil('answers', () => generator.calls.length >= 10);
    await generator.end();
    t.strictSame(generator.failures, []);
    t.equal(
      generator.calls.reduce((sum, { refusals }) => sum + refusals, 0),
      generator.reconnects,
      'no refusal is counted that belongs to no call',
    );
  });

  await t.test('does not send a call again that was cut off under way: it has failed', async (t) => {
    const server = await stub(t, 0, (n, response) => (n === 3 ? void response.destroy() : good(n, response)));
    const generator = start(t, [server.port]);
    await waitUntil('ten calls', () => generator.calls.length >= 10);
    await generator.end();
    t.equal(generator.failures.length, 1);
    t.equal(generator.reconnects, 0);
  });

  await t.test('sends idempotent calls again that were cut off or turned away, when told so, and keeps each such try', async (t) => {
    const seen = new Set<number>();
    const stopping = { code: 2006, detail: 'this sidecar is stopping and takes no new calls' };
    const blocked = { ...stopping, detail: 'blocked by ada: this sidecar is stopping nobody', attempts: [{}] };
    const server = await stub(t, 0, (n, response) => {
      const isAgain = seen.has(n);
      seen.add(n);
      if (isAgain || n < 102 || n > 104) return good(n, response);
      if (n === 102) return void response.destroy();
      response.writeHead(503).end(JSON.stringify(n === 103 ? stopping : blocked));
    });
    const generator = start(t, [server.port], 200, { repeatsCut: true, from: 100 });
    await waitUntil('ten calls', () => generator.calls.length >= 10 && generator.cuts.length + generator.turnedAway.length === 2);
    await generator.end();
    t.match(generator.cuts, [{ n: 102, lane: 'lane-0' }]);
    t.match(generator.turnedAway, [{ n: 103, lane: 'lane-0', words: /stopping/ }]);
    t.match(generator.failures, [{ words: /2006 blocked by ada/ }], 'what was tried is not taken for a call that was turned away');
    t.match(
      generator.calls
        .filter(({ cuts, refusals }) => cuts + refusals > 0)
        .map(({ n, cuts, refusals }) => [n, cuts, refusals])
        .sort(),
      [
        [102, 1, 0],
        [103, 0, 1],
      ],
    );
  });

  await t.test('begins nothing in a lane that is paused', async (t) => {
    const server = await stub(t, 0, good);
    const generator = start(t, [server.port]);
    await waitUntil('calls', () => generator.calls.length >= 3);
    generator.pause('lane-0');
    await waitUntil('nothing under way', () => generator.inFlight === 0);
    const held = generator.calls.length;
    await sleep(50);
    t.equal(generator.calls.length, held);
    generator.resume('lane-0');
    await waitUntil('what has become due', () => generator.calls.length > held + 5);
    t.throws(() => generator.pause('nowhere'), /no lane nowhere/);
    await generator.end();
    t.strictSame(generator.failures, []);
  });

  await t.test('takes nothing for an answer that is none', async (t) => {
    const words = new Map<number, string>([
      [0, JSON.stringify({ code: 3001, error: { detail: 'breaker open' } })],
      [1, JSON.stringify({ code: 0, degraded: true, data: { asked: 1, by: 'a.b.c' }, provider: 'a.b.c', attempts: [] })],
      [2, JSON.stringify({ code: 0, degraded: false, data: { asked: 99, by: 'a.b.c' }, provider: 'a.b.c', attempts: [] })],
      [4, 'not JSON'],
    ]);
    const server = await stub(t, 0, (n, response) => {
      const text = words.get(n);
      if (n === 3) good(n, response, 'somebody.else.x');
      else if (text === undefined) good(n, response);
      else response.end(text);
    });
    const generator = start(t, [server.port]);
    await waitUntil('five failures', () => generator.failures.length >= 5);
    await generator.end();
    t.equal(generator.failures.length, 5);
    const told = generator.failures.map((failure) => failure.words).join('\n');
    for (const part of [/3001 breaker open/, /degraded/, /answer to another call/, /answered by somebody\.else\.x/, /JSON/])
      t.match(told, part);
  });

  await t.test('acts between two calls of one lane, while the others go on', async (t) => {
    const answers: (() => void)[] = [];
    const slow = await stub(t, 0, (n, response) => void answers.push(() => good(n, response)));
    const quick = await stub(t, 0, good);
    const generator = start(t, [slow.port, quick.port]);
    await waitUntil('calls under way', () => answers.length >= 3);
    let acted = false;
    const between = generator.between('lane-0', async () => {
      acted = true;
      const held = answers.length;
      const quickBefore = generator.calls.filter(({ lane }) => lane === 1).length;
      await sleep(60);
      t.equal(answers.length, held, 'nothing is sent in the held lane');
      t.ok(generator.calls.filter(({ lane }) => lane === 1).length > quickBefore, 'the other lane goes on');
    });
    await sleep(20);
    t.notOk(acted, 'not while something is under way there');
    const release = setInterval(() => answers.splice(0).forEach((answer) => answer()), 5);
    t.teardown(() => clearInterval(release));
    await between;
    await generator.end();
    t.strictSame(generator.failures, []);
  });
});

t.test('the table of a drill puts every call into the phase in which it was due', async (t) => {
  const call = (dueMs: number, tookMs: number, refusals = 0, attempts = 1) => ({
    n: dueMs,
    cuts: 0,
    dueMs,
    endedMs: dueMs + tookMs,
    tookMs,
    lane: 0,
    provider: 'a.b.c',
    refusals,
    attempts,
  });
  const figures = figuresOf(
    [
      { name: 'calm', fromMs: 0 },
      { name: 'storm', fromMs: 1_000 },
    ],
    3_000,
    [call(0, 1), call(999, 500), call(1_000, 3, 2), call(2_500, 4, 0, 2)],
    [{ dueMs: 1_500, lane: 'one', words: 'lost' }],
  );
  t.match(figures, [
    { name: 'calm', seconds: 1, calls: 2, failed: 0, again: 0, elsewhere: 0, p50Ms: 1, p99Ms: 500, mostMs: 500 },
    { name: 'storm', seconds: 2, calls: 2, failed: 1, again: 1, elsewhere: 1, p50Ms: 3, p99Ms: 4, mostMs: 4 },
  ]);
  t.match(tableOf(figures), /^phase +seconds +calls[^\n]*\ncalm +1\.0 +2 +0[^\n]*\nstorm +2\.0 +2 +1/);
  t.match(tableOf(figuresOf([{ name: 'nothing', fromMs: 0 }], 10, [], [])), /nothing +0\.0 +0 +0 +0 +0 +- +- +-$/);
});
