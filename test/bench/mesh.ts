/**
 * Which protocol two sidecars should speak: HTTP/1.1 on a pool of kept connections (undici, the product's own adapter),
 * HTTP/2 (node:http2, one session), gRPC (@grpc/grpc-js, unary and server streaming). Two processes, the same 1 KiB of
 * JSON both ways and the same headers, no policy. The protocols take turns within every round.
 *
 *     make bench-mesh                      the last line is one JSON object
 *     node dist/test/bench/mesh.js --quick      seconds: the figures are rough
 *
 * CPU is each process's own accounting; streams are 128 MiB in pieces of 64 KiB.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { median, quantile } from './figures.ts';
import { type HopOrder, type Paced, type Ports, PROTOCOLS, type Protocol } from './mesh/hop.ts';
import { Server } from './servers.ts';

interface Plan {
  readonly rounds: number;
  readonly passMs: number;
  readonly paceMs: number;
  readonly mib: number;
}

const FULL: Plan = { rounds: 5, passMs: 3_000, paceMs: 9_000, mib: 128 };
const QUICK: Plan = { rounds: 3, passMs: 800, paceMs: 2_500, mib: 64 };
const CONCURRENCY = 16;
const PACE_PER_SEC = 600;
const MB = 1_000_000;

/** What one protocol came to in one round. */
interface Seen {
  readonly callsPerSec: number;
  readonly askerUs: number;
  readonly hostUs: number;
  readonly mbPerSec: number;
  /** Of both ends together. */
  readonly streamUsPerMb: number;
}

async function round(asker: Server, host: Server, protocol: Protocol, plan: Plan): Promise<Seen> {
  const used = async (): Promise<[number, number]> => [(await asker.usage()).cpuUs, (await host.usage()).cpuUs];
  const order = <Answer>(what: HopOrder): Promise<Answer> => asker.ask<Answer>(what, 60_000);
  const [askerBefore, hostBefore] = await used();
  const { calls, elapsedMs } = await order<{ calls: number; elapsedMs: number }>({
    do: 'saturate',
    protocol,
    concurrency: CONCURRENCY,
    durationMs: plan.passMs,
  });
  const [askerAfter, hostAfter] = await used();
  const bytes = plan.mib * 1_048_576;
  const stream = await order<{ elapsedMs: number }>({ do: 'stream', protocol, bytes });
  const [askerEnd, hostEnd] = await used();
  return {
    callsPerSec: (calls / elapsedMs) * 1_000,
    askerUs: (askerAfter - askerBefore) / calls,
    hostUs: (hostAfter - hostBefore) / calls,
    mbPerSec: bytes / MB / (stream.elapsedMs / 1_000),
    streamUsPerMb: (askerEnd - askerAfter + hostEnd - hostAfter) / (bytes / MB),
  };
}

async function measure(asker: Server, host: Server, plan: Plan): Promise<void> {
  const seen: Record<Protocol, Seen[]> = { http1: [], http2: [], grpc: [] };
  for (let i = 0; i <= plan.rounds; i++)
    for (const protocol of PROTOCOLS) {
      const one = await round(asker, host, protocol, plan);
      // The first round warms all of them up.
      if (i > 0) seen[protocol].push(one);
    }
  const { times } = await asker.ask<Paced>({ do: 'pace', ratePerSec: PACE_PER_SEC, durationMs: plan.paceMs }, plan.paceMs + 20_000);
  const of = (protocol: Protocol, key: keyof Seen): number =>
    quantile(
      seen[protocol].map((each) => each[key]),
      0.5,
    );
  const rows = [['protocol', 'calls/s', 'asker us', 'host us', 'p50 ms', 'p99 ms', 'stream MB/s', 'stream us/MB']];
  const figures: Record<string, unknown> = { bench: 'mesh' };
  for (const protocol of PROTOCOLS) {
    const line = {
      calls_per_s: Math.round(of(protocol, 'callsPerSec')),
      asker_cpu_us: rounded(of(protocol, 'askerUs'), 1),
      host_cpu_us: rounded(of(protocol, 'hostUs'), 1),
      p50_ms: rounded(median(times[protocol]), 3),
      p99_ms: rounded(quantile(times[protocol], 0.99), 3),
      stream_mb_per_s: Math.round(of(protocol, 'mbPerSec')),
      stream_cpu_us_per_mb: Math.round(of(protocol, 'streamUsPerMb')),
    };
    figures[protocol] = line;
    rows.push([protocol, ...Object.values(line).map(String)]);
  }
  console.log(rows.map((row) => row.map((cell, at) => (at === 0 ? cell.padEnd(10) : cell.padStart(14))).join('')).join('\n'));
  console.log(`\n${JSON.stringify(figures)}`);
}

function rounded(value: number, digits: number): number {
  return Number(value.toFixed(digits));
}

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { quick: { type: 'boolean', default: false } } });
  const folder = mkdtempSync(join(tmpdir(), 'reach-bench-'));
  const start = (name: string, program: string, measured: boolean): Server =>
    Server.start(name, program, { measured, asModules: true, cwd: folder, outputFile: join(folder, `${name}.out`) });
  const host = start('host', 'test/bench/mesh/host.ts', true);
  const asker = start('asker', 'test/bench/mesh/asker.ts', false);
  const stop = async (): Promise<void> => {
    await asker.stop();
    await host.stop();
    rmSync(folder, { recursive: true, force: true });
  };
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => void stop().then(() => process.exit(130)));
  try {
    const [ports] = await Promise.all([host.ask<Ports>(null, 20_000), asker.ask(null, 20_000)]);
    await asker.ask({ do: 'open', ports });
    console.log(`bench mesh: ${CONCURRENCY} calls at once, 1 KiB both ways; ${cpus().length} CPUs, Node ${process.version}`);
    await measure(asker, host, values.quick ? QUICK : FULL);
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  } finally {
    await stop();
  }
}

await main();
