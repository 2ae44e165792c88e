/**
 * Program of case C024: very many calls through one sidecar, and what is left in memory after them. Run with --expose-gc;
 * prints one line of JSON. Two ways: calls made inside the process (with a provider that takes 1 ms), and calls over
 * one single connection of a caller, through a real provider.
 *
 *     node --expose-gc --import tsx test/cases/memory.ts <calls inside> <calls over the connection>
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { realClock } from '../../base/clock.ts';
import { createLog } from '../../base/log.ts';
import { SeededRandom } from '../../base/random.ts';
import { Call } from '../../sidecar/call/call.ts';
import { startSidecar } from '../../sidecar/sidecar.ts';

const SAMPLES = 10;
/** Under way at once, inside the process and on the one connection. */
const PARALLEL = 200;
const PIPELINED = 16;
const TOKEN = 'token-of-the-caller';

const [inside, overWire] = process.argv.slice(2).map(Number) as [number, number];
const collect = (globalThis as { gc?: () => void }).gc;
if (collect === undefined) throw new Error('run with --expose-gc');
const warnings: string[] = [];
process.on('warning', (warning) => warnings.push(`${warning.name}: ${warning.message}`));

async function heapUsed(): Promise<number> {
  // What was freed in one turn may let go of more in the next.
  for (let i = 0; i < 3; i++) {
    await new Promise((done) => setTimeout(done, 5));
    collect?.();
  }
  return process.memoryUsage().heapUsed;
}

let executions = 0;
const provider = createServer((request, response) => {
  executions++;
  request.resume();
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': '11' });
  response.end('{"ok":true}');
});
await new Promise<void>((done) => provider.listen(0, '127.0.0.1', done));

const folder = mkdtempSync(join(tmpdir(), 'reach-memory-'));
writeFileSync(
  join(folder, 'sidecar.yaml'),
  `sidecar: {name: one, listen: "127.0.0.1:0", state_dir: none, callers: [{agent: support.planner.1, token: ${TOKEN}}], log: {access: all}}
contracts:
  - {name: crm.order.query, version: "1.0.0", acl: public, execution: idempotent, limits: {per_caller: 1000, per_provider: 1000}}
  - {name: crm.order.remote, version: "1.0.0", acl: public, execution: idempotent}
providers:
  - {agent_id: crm.order.1, offers: ["crm.order.query@1.0.0"], endpoint: {type: mock, latency: 1ms, body: {ok: true}}}
  - {agent_id: crm.order.2, offers: ["crm.order.remote@1.0.0"], endpoint: {type: http, address: "http://127.0.0.1:${(provider.address() as AddressInfo).port}"}}
`,
);
const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
const log = createLog({ level: 'info', to: nowhere, service: 'one' });
const sidecar = await startSidecar(join(folder, 'sidecar.yaml'), log, realClock, new SeededRandom(1));
const { front } = sidecar;

/** Every twentieth caller leaves before the answer. */
async function callInside(n: number): Promise<number> {
  const headers = { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json', 'reach-deadline-ms': '5000' };
  const call = new Call('local', 'crm.order.query', headers, Buffer.from(`{"n":${n}}`), 'application/json', false, realClock);
  call.traceId = n.toString(16).padStart(32, '0');
  const done = front.pipeline.outbound(front.engine, call);
  if (n % 20 === 19) call.cancel();
  await done;
  return call.code;
}

const codes = new Map<number, number>();
const count = (code: number): void => void codes.set(code, (codes.get(code) ?? 0) + 1);

async function inProcess(): Promise<number[]> {
  const heaps: number[] = [];
  let n = 0;
  for (let sample = 1; sample <= SAMPLES; sample++) {
    const until = Math.round((inside * sample) / SAMPLES);
    await Promise.all(
      Array.from({ length: PARALLEL }, async () => {
        while (n < until) count(await callInside(n++));
      }),
    );
    heaps.push(await heapUsed());
  }
  return heaps;
}

/** Listeners on the sidecar's end of the caller's connection. */
function listeners(port: number): number {
  const sockets = (
    process as unknown as {
      _getActiveHandles(): {
        remotePort?: number;
        eventNames?: () => (string | symbol)[];
        listenerCount?: (name: string | symbol) => number;
      }[];
    }
  )._getActiveHandles();
  const socket = sockets.find((each) => each.remotePort === port);
  if (socket?.eventNames === undefined) throw new Error('the connection is not to be found');
  return socket.eventNames().reduce((sum, name) => sum + (socket.listenerCount?.(name) ?? 0), 0);
}

async function overOneConnection(): Promise<{ heaps: number[]; listeners: number[] }> {
  const heaps: number[] = [];
  const counted: number[] = [];
  const socket = connect(Number(new URL(sidecar.url).port), '127.0.0.1');
  await new Promise<void>((done) => socket.once('connect', () => done()));
  const request = Buffer.from(
    `POST /v1/invoke/crm.order.remote HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ${TOKEN}\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"n":"x"}`,
  );
  let sent = 0;
  let answered = 0;
  let until = 0;
  let wake: () => void = () => {};
  let held: Buffer = Buffer.alloc(0);
  const send = (): void => {
    if (sent < until) {
      sent++;
      socket.write(request);
    } else if (answered === until) wake();
  };
  socket.on('data', (chunk) => {
    held = held.length === 0 ? chunk : Buffer.concat([held, chunk]);
    for (;;) {
      const end = held.indexOf('\r\n\r\n');
      if (end < 0) return;
      const head = held.toString('latin1', 0, end);
      const total = end + 4 + Number(/content-length: (\d+)/i.exec(head)?.[1]);
      if (held.length < total) return;
      count(head.startsWith('HTTP/1.1 200 ') ? (JSON.parse(held.toString('utf8', end + 4, total)) as { code: number }).code : -1);
      held = held.subarray(total);
      answered++;
      send();
    }
  });
  for (let sample = 1; sample <= SAMPLES; sample++) {
    until = Math.round((overWire * sample) / SAMPLES);
    const rest = new Promise<void>((done) => (wake = done));
    for (let i = 0; i < PIPELINED; i++) send();
    await rest;
    heaps.push(await heapUsed());
    counted.push(listeners(socket.localPort as number));
  }
  socket.destroy();
  return { heaps, listeners: counted };
}

const heaps = await inProcess();
const afterInside = new Map(codes);
codes.clear();
const wire = await overOneConnection();
const { observation, engine } = front;
const quiet = {
  inFlight:
    observation.inFlight() + engine.limits.inFlight() + [...engine.health.providers()].reduce((sum, each) => sum + each.inFlight, 0),
  started: observation.started(),
  ended: observation.ended(),
  accessRecords: observation.accessRecords(),
};
await sidecar.stop(0);
await new Promise<void>((done) => provider.close(() => done()));
rmSync(folder, { recursive: true });
process.stdout.write(
  `${JSON.stringify({ inside: { heaps, codes: Object.fromEntries(afterInside) }, wire: { ...wire, codes: Object.fromEntries(codes) }, executions, quiet, warnings, listeners: process.listenerCount('exit') })}\n`,
);
