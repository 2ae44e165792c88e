/** The bench measures others, so its own arithmetic and its own reading of HTTP are held to account here. */
import { createServer, type Server, type Socket } from 'node:net';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { compileSchema } from '../../../base/json-schema.ts';
import { bodyProblem, Connection, requestBytes, rpcBody, rpcProblem, type Target } from '../../bench/connection.ts';
import {
  figuresOf,
  type Latency,
  type Measured,
  median,
  type Pass,
  quantile,
  type Round,
  tableOf,
  targetsOf,
  type Window,
} from '../../bench/figures.ts';
import { turnAt } from '../../bench/load.ts';
import { streamFigures, streamGoals, type StreamPass, type StreamRound, streamTable } from '../../bench/stream/figures.ts';
import { type SecuredPasses, securedFigures, securedTable } from '../../bench/secured.ts';
import { wayFigures, waysHere, waysSettings, wayTable } from '../../bench/ways.ts';
import { readSidecarConfig } from '../../../sidecar/config.ts';
import { ANSWER, QUESTION, QUESTION_SCHEMA } from '../../bench/payload.ts';

const pass = (cpuPerCallUs: number): Pass => ({ calls: 1_000, elapsedMs: 200, cpuUs: cpuPerCallUs * 1_000 });
const round = (floorUs: number, sidecarUs: number): Round => ({
  direct: pass(15),
  floor: pass(floorUs),
  sidecar: pass(sidecarUs),
  mesh: pass(2 * sidecarUs),
});
const latency = (p50Ms: number, p90Ms: number, p99Ms: number): Latency => ({ p50Ms, p90Ms, p99Ms });
const window = (directP99Ms: number, sidecar: Latency): Window => ({
  direct: latency(0.1, 0.2, directP99Ms),
  floor: latency(0.2, 0.3, directP99Ms + 0.5),
  sidecar,
  mesh: latency(0.7, 0.9, directP99Ms + 2),
});
const measured = (rounds: readonly Round[], windows: readonly Window[]): Measured => ({
  rounds,
  windows,
  errors: 0,
  idleRssBytes: 61_230_000,
  loadedRssBytes: 99_960_000,
});

t.test('quantiles are nearest ranks and medians halve the middle', async (t) => {
  t.equal(quantile([1, 2, 3, 4], 0.5), 2);
  t.equal(quantile([1, 2, 3, 4], 0.99), 4);
  t.equal(quantile([7], 0), 7);
  t.ok(Number.isNaN(quantile([], 0.5)));
  t.equal(median([3, 1, 2]), 2);
  t.equal(median([4, 1, 2, 3]), 2.5);
  t.ok(Number.isNaN(median([])));
});

t.test('the CPU ratio is formed within a round, so that a machine that slows down does not change it', async (t) => {
  const rounds = [round(50, 60), round(100, 120), round(75, 90)];
  const figures = figuresOf(measured(rounds, [window(1, latency(0.4, 0.6, 1.5))]));
  t.equal(figures.cpu_ratio, 1.2);
  t.equal(figures.floor_cpu_us, 75);
  t.equal(figures.sidecar_cpu_us, 90);
  t.equal(figures.mesh_cpu_us, 180);
  t.equal(figures.max_per_s, 5_000);
});

t.test('the other ways in and out have fields of their own, formed like those of the plain path', async (t) => {
  const passes = { grpc: [pass(90), pass(100), pass(300)], json_rpc: [pass(60)] };
  const windows = [
    { direct: latency(0.1, 0, 0), grpc: latency(0.5, 0, 0), json_rpc: latency(0.3, 0, 0) },
    { direct: latency(0.2, 0, 0), grpc: latency(0.8, 0, 0), json_rpc: latency(0.6, 0, 0) },
  ];
  t.strictSame(wayFigures(passes, windows), {
    grpc_cpu_us: 100,
    json_rpc_cpu_us: 60,
    grpc_added_p50_ms: 0.5,
    json_rpc_added_p50_ms: 0.3,
  });
  t.match(wayTable(passes, windows), /grpc +5000 +100 +0\.5/);
  t.ok(waysHere().includes('grpc'));
  const read = readSidecarConfig(waysSettings('http://127.0.0.1:1', 2), 'ways.yaml');
  t.ok('config' in read && read.config.grpc !== null, JSON.stringify(read).slice(0, 500));
});

t.test('the tail is judged only in windows whose direct calls were quick', async (t) => {
  const windows = [window(1.5, latency(0.4, 0.6, 3)), window(2, latency(0.4, 0.6, 40)), window(9, latency(0.5, 0.7, 90))];
  const figures = figuresOf(measured([round(50, 60)], windows));
  t.equal(figures.p99_windows_valid, 1);
  t.equal(figures.added_p99_ms, 1.5);
  t.equal(figures.added_p50_ms, 0.3);
  t.equal(figures.added_p90_ms, 0.4);
  t.equal(figures.mesh_added_p50_ms, 0.6);
});

t.test('without a quiet window the tail is not judged, neither met nor missed', async (t) => {
  const noisy = measured([round(50, 60)], [window(5, latency(0.4, 0.6, 8))]);
  const figures = figuresOf(noisy);
  t.equal(figures.added_p99_ms, null);
  t.equal(targetsOf(figures).find((each) => each.name === 'added_p99_ms')?.met, null);
  t.match(tableOf(noisy, figures), /added_p99_ms +- +<= 2 +not judged/);
});

t.test('the table says of every target whether it is met', async (t) => {
  const bad = measured([round(50, 100)], [window(1, latency(0.9, 1, 1.5))]);
  const table = tableOf(bad, figuresOf(bad));
  t.match(table, /cpu_ratio +2 +<= 1\.35 +MISSED/);
  t.match(table, /added_p50_ms +0\.8 +<= 0\.5 +MISSED/);
  t.match(table, /mesh_added_p50_ms +0\.6 +<= 1 +met/);
  t.match(table, /idle_rss_mb +61\.2 +<= 70 +met/);
});

t.test('the last line has exactly the fields that were agreed', async (t) => {
  const figures = figuresOf(measured([round(50, 60)], [window(1, latency(0.4, 0.6, 1.5))]));
  const agreed =
    'bench floor_cpu_us sidecar_cpu_us cpu_ratio direct_p50_ms added_p50_ms added_p90_ms added_p99_ms p99_windows_valid mesh_cpu_us mesh_added_p50_ms errors idle_rss_mb loaded_rss_mb max_per_s';
  t.equal(Object.keys(figures).join(' '), agreed);
});

t.test('every path has a quarter of the slices, and none always follows the same other', async (t) => {
  const turns = Array.from({ length: 40 }, (_, slice) => turnAt(slice * 10 + 1, 10, 4));
  t.strictSame(
    [0, 1, 2, 3].map((path) => turns.filter((turn) => turn === path).length),
    [10, 10, 10, 10],
  );
  t.strictSame(turns.slice(0, 8), [0, 1, 2, 3, 1, 2, 3, 0]);
});

t.test('question and answer have 1,024 bytes, and the question fits its schema', async (t) => {
  t.equal(QUESTION.length, 1_024);
  t.equal(ANSWER.length, 1_024);
  const schema = compileSchema(QUESTION_SCHEMA);
  if ('problem' in schema) throw new Error(schema.problem);
  t.equal(schema.validator.validate(JSON.parse(QUESTION.toString())), null);
  const wrong = JSON.parse(QUESTION.toString()) as { order: { lines: { quantity: number }[] } };
  (wrong.order.lines[0] as { quantity: number }).quantity = 0;
  t.match(schema.validator.validate(wrong), [/quantity/]);
});

t.test("an answer is right only when it is the agent's own, in an envelope where one is due", async (t) => {
  const enveloped = (data: string): Buffer =>
    Buffer.from(
      `{"code":0,"status":200,"data":${data},"error":null,"provider":"crm.order.a1","attempts":[{}],"trace_id":"${'a'.repeat(32)}"}`,
    );
  t.equal(bodyProblem(ANSWER, false, ANSWER, true), null);
  t.match(bodyProblem(ANSWER, true, ANSWER, false), /not an envelope of success/);
  t.equal(bodyProblem(enveloped(ANSWER.toString()), true, ANSWER, true), null);
  t.match(bodyProblem(enveloped('{"state":"unknown"}'), true, ANSWER, true), /does not hold the answer/);
  t.match(bodyProblem(Buffer.from('{"code":3001}'), true, ANSWER, false), /not an envelope of success/);
  t.match(bodyProblem(Buffer.from('{"code":0'), true, ANSWER, false), /not an envelope of success/);
  t.match(bodyProblem(Buffer.from('{}'), false, ANSWER, false), /2 bytes, not 1024/);
  const rpc = (inner: Buffer): Buffer => Buffer.concat([Buffer.from('{"jsonrpc":"2.0","result":'), inner, Buffer.from(',"id":1}')]);
  t.equal(rpcProblem(rpc(enveloped(ANSWER.toString())), ANSWER, true), null);
  t.match(rpcProblem(rpc(enveloped('{}')), ANSWER, true), /does not hold the answer/);
  t.match(rpcProblem(Buffer.from('{"jsonrpc":"2.0","error":{"code":-32001},"id":1}'), ANSWER, false), /not the JSON-RPC result/);
  const asked = JSON.parse(
    rpcBody({ name: 'x', port: 0, path: '/rpc', headers: {}, enveloped: true, asks: 'a.b.c@^2.0' }, QUESTION).toString(),
  ) as { method: string; params: unknown };
  t.equal(asked.method, 'a.b.c@^2.0');
  t.equal(JSON.stringify(asked.params), QUESTION.toString());
});

/** A server that answers every request with these pieces, one write each. */
async function answering(pieces: readonly (string | Buffer)[], thenCloses = false): Promise<Server> {
  const server = createServer((socket: Socket) => {
    socket.on('error', () => {});
    socket.on('data', () => {
      pieces.forEach((piece, at) => setImmediate(() => setTimeout(() => socket.write(piece), at)));
      if (thenCloses) setTimeout(() => socket.destroy(), pieces.length + 1);
    });
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  return server;
}

async function exchange(t: Test, pieces: readonly (string | Buffer)[], thenCloses = false): Promise<string | null> {
  const server = await answering(pieces, thenCloses);
  const target: Target = { name: 'stub', port: (server.address() as AddressInfo).port, path: '/', headers: {}, enveloped: false };
  return await new Promise<string | null>((resolve, reject) => {
    const connection = new Connection(target, requestBytes(target, QUESTION), ANSWER, (_, problem) => {
      connection.close();
      server.close();
      resolve(problem);
    });
    t.teardown(() => connection.close());
    connection.open().then(() => connection.send(performance.now()), reject);
  });
}

t.test('the load reads answers in any pieces and calls nothing a success that is none', async (t) => {
  const head = `HTTP/1.1 200 OK\r\nContent-Length: ${ANSWER.length}\r\n\r\n`;
  t.equal(await exchange(t, [Buffer.concat([Buffer.from(head), ANSWER])]), null);
  t.equal(await exchange(t, [head.slice(0, 20), head.slice(20), ANSWER.subarray(0, 100), ANSWER.subarray(100)]), null);
  t.match(await exchange(t, ['HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nbusy']), /503: busy/);
  t.match(await exchange(t, ['HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n']), /without content-length/);
  t.match(await exchange(t, [`${head}${ANSWER.toString()}x`]), /more bytes/);
  t.match(await exchange(t, [head, ANSWER.subarray(0, 10)], true), /closed before the answer was complete/);
});

t.test('the figures of a stream: ratios are formed within a round, memory is the most of all', async (t) => {
  const pass = (mbPerSec: number, grewMb: number): StreamPass => ({
    bytes: 100_000_000,
    elapsedMs: 100_000 / mbPerSec,
    cpuUs: 50_000,
    grewBytes: grewMb * 1_000_000,
  });
  const round = (pipe: number, sidecar: number, grewMb: number): StreamRound => ({
    pipe: pass(pipe, 99),
    sidecar: pass(sidecar, grewMb),
    frames: pass(pipe, 1),
    mesh: pass(pipe / 2, 2),
  });
  const firstMs = { direct: [1, 1, 9], pipe: [2, 2, 2], sidecar: [1.5, 1.75, 9], frames: [1, 1, 1], mesh: [3, 3, 3] };
  const measured = { rounds: [round(1_000, 700, 3), round(100, 80, 5), round(500, 300, 4)], firstMs };
  const figures = streamFigures(measured);
  t.match(figures, {
    bench: 'stream',
    first_chunk_added_ms: 0.75,
    mb_per_s_ratio: 0.7,
    rss_growth_mb: 5,
    mb_per_s: 300,
    pipe_mb_per_s: 500,
    frames_ratio: 1,
    mesh_ratio: 0.5,
    mesh_first_chunk_added_ms: 2,
  });
  t.ok(streamGoals(figures).every((goal) => goal.isMet));
  t.match(streamTable(measured, figures), /mb_per_s_ratio +0\.7 +>= 0\.6 +met/);
  t.same(
    streamGoals({ ...figures, first_chunk_added_ms: 1.001, mb_per_s_ratio: 0.599, rss_growth_mb: 32 }).map((goal) => goal.isMet),
    [false, false, false],
  );
});

t.test('what identities and TLS cost is a ratio within a round, and said beside what it may be', async (t) => {
  const passes: SecuredPasses = {
    mesh: [pass(100), pass(200), pass(120)],
    mesh_tls: [pass(140), pass(260), pass(240)],
    static: [pass(60), pass(60), pass(60)],
    identity: [pass(60), pass(66), pass(66)],
  };
  const window = { direct: latency(0.1, 0.2, 1), mesh: latency(0.6, 1, 2), mesh_tls: latency(0.8, 1, 2) };
  const figures = securedFigures(passes, [window]);
  t.strictSame(figures, {
    mesh_tls_cpu_us: 240,
    mesh_tls_ratio: 1.4,
    mesh_tls_added_p50_ms: 0.7,
    static_cpu_us: 60,
    identity_cpu_us: 66,
    identity_cpu_ratio: 1.1,
  });
  const table = securedTable(passes, figures);
  t.match(table, /mesh_tls_ratio +1\.4 +<= 1\.5 +met/);
  t.match(table, /identity_cpu_ratio +1\.1 +<= 1\.05 +MISSED/);
});
