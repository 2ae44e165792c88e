/**
 * What one decision (resolve and choose) costs with 1,000 providers and 100 policies, by load mode, without and with a
 * conversation key, known and new. Prints a table; the last line is the worst of the modes for machines to read.
 *
 * Time is the process's own CPU time, which a busy machine does not distort; each figure is the median of several runs.
 */
import { realClock } from '../../base/clock.ts';
import { SeededRandom } from '../../base/random.ts';
import type { LoadMode, Policy, ProviderRecord } from '../../proto/language/types.ts';
import type { Call } from '../../sidecar/call/call.ts';
import { Chooser } from '../../sidecar/choose/choose.ts';
import { Health } from '../../sidecar/health/health.ts';
import { resolve } from '../../sidecar/resolve/resolve.ts';
import { compile } from '../../sidecar/table/compile.ts';
import type { Snapshot } from '../../sidecar/table/snapshot.ts';
import { callOf, documentOf, policyOf, providerOf } from '../support/route-table.ts';

const PROVIDERS = 1_000;
const POLICIES = 100;
const DECISIONS = Number(process.env['DECISIONS'] ?? 20_000);
const RUNS = 5;
const MODES: readonly LoadMode[] = ['least_request', 'round_robin', 'random', 'primary_backup', 'sticky'];

interface Shape {
  readonly name: string;
  readonly capabilities: number;
  readonly unevenWeights: boolean;
}

const SHAPES: readonly Shape[] = [
  { name: '1 capability', capabilities: 1, unevenWeights: false },
  { name: '1 capability, uneven', capabilities: 1, unevenWeights: true },
  { name: '200 capabilities', capabilities: 200, unevenWeights: false },
];

type Key = 'none' | 'known' | 'new';

const random = new SeededRandom(1);
let worst = 0;
console.log(`${'shape'.padEnd(24)}${'mode'.padEnd(18)}${'key'.padEnd(8)}us/decision`);
for (const shape of SHAPES) {
  for (const mode of MODES) {
    for (const key of ['none', 'known', 'new'] as const) {
      const us = measure(shape, mode, key);
      worst = Math.max(worst, us);
      console.log(`${shape.name.padEnd(24)}${mode.padEnd(18)}${key.padEnd(8)}${us.toFixed(2)}`);
    }
  }
}
console.log(JSON.stringify({ bench: 'decide', providers: PROVIDERS, us_per_decision: Math.round(worst * 100) / 100 }));

function measure(shape: Shape, mode: LoadMode, key: Key): number {
  const health = new Health(realClock, { consecutive: 5, forMs: 10_000 });
  const table = tableOf(shape, mode, health);
  health.warm();
  const chooser = new Chooser(realClock, random, health, { maxEntries: 100_000, ttlMs: 3_600_000 });
  const calls = callsOf(table, shape, key);
  decide(chooser, calls);
  const runs: number[] = [];
  for (let run = 0; run < RUNS; run++) {
    if (key === 'new') for (const [i, call] of calls.entries()) call.affinityKey = `session-${run}-${i}`;
    const before = process.cpuUsage();
    decide(chooser, calls);
    const { user, system } = process.cpuUsage(before);
    runs.push((user + system) / calls.length);
  }
  return runs.sort((a, b) => a - b)[RUNS >> 1] as number;
}

function decide(chooser: Chooser, calls: readonly Call[]): void {
  const now = realClock.now();
  for (const call of calls) {
    if (!resolve(call, random).reason.passes || !chooser.choose(call, now).reason.passes)
      throw new Error('a decision failed: the bench measures nothing');
  }
}

function nameOf(i: number): string {
  return `bench.object_${i}.query`;
}

function tableOf(shape: Shape, mode: LoadMode, health: Health): Snapshot {
  const providers: ProviderRecord[] = [];
  for (let i = 0; i < PROVIDERS; i++) {
    const offer = nameOf(i % shape.capabilities);
    providers.push(
      providerOf(`bench.worker.${i}`, [`${offer}@2.${i % 3}.0`], {
        weight: shape.unevenWeights ? 1 + (i % 7) : 1,
        region: i % 2 === 0 ? 'eu' : 'us',
        zone: `z${i % 4}`,
      }),
    );
  }
  // One capability: all 1,000 in one version and one place, the dearest case for every mode.
  if (shape.capabilities === 1)
    for (const [i, one] of providers.entries())
      providers[i] = { ...one, offers: [{ name: nameOf(0), version: '2.0.0' }], region: 'eu', zone: 'z0' };
  const policies: Policy[] = [policyOf('*', { load: mode }), policyOf('bench.*', { canary: { '2.1.0': 0.05 } })];
  for (let i = policies.length; i < POLICIES; i++) policies.push(policyOf(nameOf(i), { load: mode, timeoutMs: 1_000 + i }));
  return compile(documentOf(providers, { policies }), health, { name: 'bench', region: 'eu', zone: 'z0' }, 1);
}

function callsOf(table: Snapshot, shape: Shape, key: Key): Call[] {
  const calls: Call[] = [];
  for (let i = 0; i < DECISIONS; i++) {
    const asked = `${nameOf(i % shape.capabilities)}@^2.0`;
    const traceId = i.toString(16).padStart(32, '0');
    calls.push(callOf(realClock, table, asked, { traceId, affinityKey: key === 'none' ? null : `session-${i % 10_000}` }));
  }
  return calls;
}
