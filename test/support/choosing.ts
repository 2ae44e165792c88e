/** A chooser over a small table, with the few moves that its tests make. */
import { SeededRandom } from '../../base/random.ts';
import { VirtualClock } from '../../base/virtual-clock.ts';
import type { Policy, ProviderRecord, TableDocument } from '../../proto/language/types.ts';
import { Attempt } from '../../sidecar/call/attempt-record.ts';
import type { Call, HeaderView } from '../../sidecar/call/call.ts';
import { type Verdict, wordsOf } from '../../sidecar/call/verdict.ts';
import { Chooser } from '../../sidecar/choose/choose.ts';
import { Health } from '../../sidecar/health/health.ts';
import type { HealthCell } from '../../sidecar/health/cell.ts';
import { resolve } from '../../sidecar/resolve/resolve.ts';
import { compile } from '../../sidecar/table/compile.ts';
import type { Candidate, Snapshot } from '../../sidecar/table/snapshot.ts';
import { callOf, documentOf, policyOf, providerOf } from './route-table.ts';

export const NAME = 'crm.order.query';
const HERE = { name: 'here', region: 'eu', zone: 'a' };

/** Short breaker times, small numbers. */
export const BREAKER = {
  enabled: true,
  failureRatio: 0.5,
  windowMs: 60_000,
  slowRatio: 1,
  slowCallMs: 60_000,
  minCalls: 2,
  openMs: 10_000,
  probes: 2,
  successes: 1,
  ramp: [],
  rampStepMs: 1_000,
};

export class World {
  readonly clock = new VirtualClock();
  readonly health = new Health(this.clock, { consecutive: 3, forMs: 5_000 });
  readonly random: SeededRandom;
  readonly chooser: Chooser;
  table: Snapshot;
  #version = 0;
  #policies: readonly Policy[] = [];

  constructor(
    providers: readonly ProviderRecord[],
    policy: Partial<Policy> = {},
    parts: Partial<TableDocument> = {},
    seed = 1,
    affinity = { maxEntries: 1_000, ttlMs: 600_000 },
  ) {
    this.random = new SeededRandom(seed);
    this.chooser = new Chooser(this.clock, this.random, this.health, affinity);
    this.policy(policy);
    this.table = this.push(providers, parts);
  }

  /** What the operator says from the next push on. */
  policy(policy: Partial<Policy>): void {
    this.#policies = [policyOf('*', { breaker: BREAKER, slowStartMs: 0, ...policy })];
  }

  push(providers: readonly ProviderRecord[], parts: Partial<TableDocument> = {}): Snapshot {
    this.table = compile(documentOf(providers, { policies: this.#policies, ...parts }), this.health, HERE, ++this.#version);
    return this.table;
  }

  call(parts: Partial<Call> = {}, asked = NAME, headers?: HeaderView): Call {
    const call = callOf(this.clock, this.table, asked, parts, headers);
    resolve(call, this.random);
    return call;
  }

  /** Agent id of who serves, or the refusal. */
  pick(parts: Partial<Call> = {}, asked = NAME, headers?: HeaderView): string {
    const call = this.call(parts, asked, headers);
    const verdict = this.chooser.choose(call, this.clock.now());
    return verdict.reason.passes ? (call.chosen as Candidate).provider.agentId : String(verdict.reason.code);
  }

  verdict(parts: Partial<Call> = {}, asked = NAME, headers?: HeaderView): { name: string; code: number; words: string } {
    return shown(this.chooser.choose(this.call(parts, asked, headers), this.clock.now()));
  }

  counts(calls: number, parts: Partial<Call> = {}): Record<string, number> {
    const counts: Record<string, number> = {};
    for (let i = 0; i < calls; i++) {
      const who = this.pick(parts);
      counts[who] = (counts[who] ?? 0) + 1;
    }
    return counts;
  }

  cell(agentId: string, name = NAME): HealthCell {
    const found = this.table.capabilities
      .get(name)
      ?.versions.flatMap((version) => version.candidates)
      .find((one) => one.provider.agentId === agentId);
    return (found as Candidate).health;
  }

  break(agentId: string): void {
    const cell = this.cell(agentId);
    for (let i = 0; i < 2; i++) cell.end(cell.admit(this.clock.now()), 'failure', 1, this.clock.now());
    if (cell.stateName !== 'open') throw new Error('the breaker should be open');
  }
}

export function shown(verdict: Verdict): { name: string; code: number; words: string } {
  return { name: verdict.reason.name, code: verdict.reason.code, words: wordsOf(verdict.reason, verdict.a, verdict.b, verdict.c) };
}

export function tried(call: Call, ...agents: string[]): Call {
  for (const agentId of agents) {
    const candidate = call.lines.flatMap((line) => line.candidates).find((one) => one.provider.agentId === agentId);
    call.attempts.push(new Attempt(candidate as Candidate, 0, call.execution));
  }
  return call;
}

export function provider(agentId: string, parts: Partial<ProviderRecord> = {}): ProviderRecord {
  return providerOf(agentId, [`${NAME}@2.0.0`], parts);
}

export const P1 = 'crm.p.1';
export const P2 = 'crm.p.2';
export const P3 = 'crm.p.3';
export const three = (): ProviderRecord[] => [provider(P1), provider(P2), provider(P3)];

/** Within five standard deviations of a count by chance. */
export function near(t: { ok(value: unknown, message: string): unknown }, got: number | undefined, wanted: number, about: string): void {
  t.ok(Math.abs((got ?? 0) - wanted) <= 5 * Math.sqrt(wanted), `${about}: ${got ?? 0}, wanted about ${wanted}`);
}
