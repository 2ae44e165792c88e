/** The asking process of the mesh bench: does what it is ordered over IPC, and says what it saw. */
import type { Ask, Usage } from '../probe.ts';
import { callersFor } from './callers.ts';
import { type Caller, type HopOrder, type Paced, PROTOCOLS, type Protocol } from './hop.ts';

let callers: Record<Protocol, Caller> | null = null;

async function saturate(caller: Caller, concurrency: number, durationMs: number): Promise<{ calls: number; elapsedMs: number }> {
  const startedAt = performance.now();
  let calls = 0;
  const lane = async (): Promise<void> => {
    while (performance.now() - startedAt < durationMs) {
      await caller.call();
      calls++;
    }
  };
  await Promise.all(Array.from({ length: concurrency }, lane));
  return { calls, elapsedMs: performance.now() - startedAt };
}

/** One call of each protocol in turn, at a rate that leaves the machine idle in between. */
async function pace(all: Record<Protocol, Caller>, ratePerSec: number, durationMs: number): Promise<Paced> {
  const times: Record<Protocol, number[]> = { http1: [], http2: [], grpc: [] };
  const startedAt = performance.now();
  for (let i = 0; performance.now() - startedAt < durationMs; i++) {
    const protocol = PROTOCOLS[i % PROTOCOLS.length] as Protocol;
    const at = performance.now();
    await all[protocol].call();
    times[protocol].push(performance.now() - at);
    const dueAt = startedAt + ((i + 1) * 1_000) / ratePerSec;
    if (dueAt > performance.now()) await new Promise((done) => setTimeout(done, dueAt - performance.now()));
  }
  for (const protocol of PROTOCOLS) times[protocol].sort((a, b) => a - b);
  return { times };
}

async function obey(order: HopOrder): Promise<object> {
  if (order.do === 'open') {
    callers = callersFor(order.ports);
    return {};
  }
  if (callers === null) throw new Error('not open');
  if (order.do === 'saturate') return await saturate(callers[order.protocol], order.concurrency, order.durationMs);
  if (order.do === 'pace') return await pace(callers, order.ratePerSec, order.durationMs);
  const at = performance.now();
  await callers[order.protocol].stream(order.bytes);
  return { elapsedMs: performance.now() - at };
}

/** The bench's probe answers every message; this process takes orders, and so answers for itself. */
function usage(): Usage {
  const { user, system } = process.cpuUsage();
  return { cpuUs: user + system, rssBytes: process.memoryUsage.rss() };
}

process.on('message', (order: HopOrder | Ask) => {
  if ('ask' in order) {
    process.send?.(usage());
    return;
  }
  void obey(order).then(
    (answer) => process.send?.(answer),
    (error: unknown) => {
      console.error(error);
      process.exit(1);
    },
  );
});
process.on('disconnect', () => process.exit());
process.send?.({});
