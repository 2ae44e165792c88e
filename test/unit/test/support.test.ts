import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import t from 'tap';
import { assertQuiet, disturbances, type Quiet, takeBase } from '../../support/invariants.ts';
import { nodeArgs, repoFile } from '../../support/paths.ts';
import { settle, waitUntil } from '../../support/settle.ts';
import { freePort, startNode } from '../../support/sockets.ts';

const atRest: Quiet = { inFlight: () => 0, started: () => 3, ended: () => 3, accessRecords: () => 2, calls: () => 2 };

t.test('after a case', async (t) => {
  t.test('an engine at rest and providers asked as often as expected are quiet', async (t) => {
    const before = takeBase();
    await assertQuiet(t, { before, engines: [atRest], providers: [{ name: 'order-1', count: 2, expected: 2 }] });
  });

  t.test('a call in flight, an attempt without end, a missing record and a repeated execution are each named', async (t) => {
    const before = takeBase();
    const restless: Quiet = { inFlight: () => 1, started: () => 3, ended: () => 2, accessRecords: () => 1, calls: () => 2 };
    t.strictSame(disturbances({ before, engines: [restless], providers: [{ name: 'order-1', count: () => 2, expected: 1 }] }), [
      'in flight: 1, not 0',
      'attempts ended: 2, not 3',
      'access records: 1, not 2',
      'requests to order-1: 2, not 1',
    ]);
  });

  t.test('a socket left open is found, also an unrefd one, unless the case says that it may stay', async (t) => {
    const before = takeBase();
    const server = createServer((accepted) => accepted.unref()).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address() as { port: number };
    const socket = connect(address.port, '127.0.0.1');
    await Promise.all([once(socket, 'connect'), once(server, 'connection')]);
    t.match(disturbances({ before }).join('\n'), /open TCPSocketWrap/);
    socket.unref();
    server.unref();
    if (process.platform === 'linux') {
      t.match(disturbances({ before }), [/^open socket: /]);
      t.strictSame(disturbances({ before, mayStayOpen: { socket: 3 } }), []);
    }
    socket.destroy();
    server.close();
    await assertQuiet(t, { before });
  });

  t.test('a timer left running is found', async (t) => {
    const before = takeBase();
    const timer = setTimeout(() => undefined, 60_000);
    t.match(disturbances({ before }), [/^open Timeout: /]);
    clearTimeout(timer);
    await assertQuiet(t, { before });
  });
});

t.test('what nobody caught is found after the fact', async (t) => {
  const code = `
    const { takeBase, disturbances } = await import(process.argv[1]);
    const before = takeBase();
    process.on('uncaughtException', () => {});
    Promise.reject(new Error('lost'));
    setImmediate(() => { throw new Error('loose'); });
    for (let i = 0; i < 11; i++) process.on('exit', () => {});
    setTimeout(() => process.stdout.write(JSON.stringify(disturbances({ before }))), 20);`;
  const module = nodeArgs('test/support/invariants.ts');
  const program = startNode([...module.slice(0, -1), '--input-type=module', '-e', code, module.at(-1) ?? '']);
  t.teardown(() => program.stop());
  t.match(await program.ended(), { code: 0 });
  const found = JSON.parse(program.stdout) as string[];
  t.match(found.join('\n'), /nobody caught unhandledRejection: Error: lost/);
  t.match(found.join('\n'), /nobody caught uncaughtException: Error: loose/);
  t.match(found.join('\n'), /warning: Possible EventEmitter memory leak/);
});

t.test('programs', async (t) => {
  t.test('what one says can be awaited, and it is stopped by its pid', async (t) => {
    const program = startNode(['-e', 'console.log("port 4711"); console.error("a word"); setInterval(() => {}, 1000)']);
    t.equal((await program.said(/port (\d+)/))[1], '4711');
    await program.said(/a word/);
    t.strictSame(await program.stop(), { code: null, signal: 'SIGTERM' });
    program.signal('SIGTERM');
    t.strictSame(await program.stop(), { code: null, signal: 'SIGTERM' }, 'stopping twice is harmless');
  });

  t.test('one that ends without the word fails the wait with all that it said', async (t) => {
    const program = startNode(['-e', 'console.error("cannot bind"); process.exit(3)']);
    await t.rejects(program.said(/ready/), { message: /ended without saying ready[^]*cannot bind/ });
    t.equal(program.exit?.code, 3);
  });

  t.test('one that does not hear SIGTERM is killed', async (t) => {
    const program = startNode(['-e', 'process.on("SIGTERM", () => {}); console.log("up"); setInterval(() => {}, 1000)']);
    await program.said(/up/);
    t.strictSame(await program.stop(100), { code: null, signal: 'SIGKILL' });
  });
});

t.test('a free port can be bound', async (t) => {
  const port = await freePort();
  const server = createServer().listen(port, '127.0.0.1');
  await once(server, 'listening');
  server.close();
  t.ok(port > 0);
});

t.test('waiting is bounded and says for what', async (t) => {
  let turns = 0;
  await waitUntil('three turns', () => ++turns === 3, 1_000, 1);
  t.equal(turns, 3);
  await t.rejects(
    waitUntil('the end of days', () => false, 5, 1),
    { message: 'not within 5 ms: the end of days' },
  );
  let later = false;
  setImmediate(() => {
    later = true;
  });
  await settle();
  t.ok(later, 'settle lets a turn go by');
});

t.test('files are named from the top of the tree', async (t) => {
  t.match(repoFile('package.json'), /package\.json$/);
});
