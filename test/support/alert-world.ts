/**
 * Alerts on a virtual clock: sidecars that tell of made-up traffic every ten seconds, the control plane's book of it, a leader that
 * watches and may be another one, and operators who are told, or cannot be reached. Nothing of it waits.
 */
import { createLog } from '../../base/log.ts';
import { SeededRandom } from '../../base/random.ts';
import { Sketch } from '../../base/sketch.ts';
import { VirtualClock } from '../../base/virtual-clock.ts';
import type { Alert } from '../../control-plane/alerts/alert.ts';
import type { Look } from '../../control-plane/alerts/backlogs.ts';
import { type AlertsConfig, DEFAULT_ALERTS } from '../../control-plane/alerts/config.ts';
import { AlertWatch } from '../../control-plane/alerts/watch.ts';
import type { AlertNotice } from '../../control-plane/messages/notice.ts';
import type { ProviderView, SidecarView } from '../../control-plane/registry/views.ts';
import type { Registry } from '../../control-plane/registry/registry.ts';
import { Traffic } from '../../control-plane/traffic/traffic.ts';
import {
  type BreakerDigest,
  type Digest,
  DIGEST_EVERY_MS,
  DIGEST_WIRE,
  type EdgeDigest,
  type ProviderDigest,
} from '../../proto/wire/digests.ts';

const quiet = createLog({ level: 'silent', to: 'stderr', service: 'test' }).logger;

/** Calls of one caller within ten seconds. */
export interface Told {
  readonly sidecar: string;
  readonly caller?: string;
  readonly capability?: string;
  readonly provider?: string;
  /** How long each took. */
  readonly times: readonly number[];
  readonly failures?: number;
  /** Answered by a fallback. */
  readonly degraded?: number;
  readonly breakers?: readonly Omit<BreakerDigest, 'at_ms'>[];
}

export const CAPABILITY = 'crm.order.query';
export const PROVIDER = 'crm.order.a';

/** One whose wall clock can be set. */
class SettableClock extends VirtualClock {
  aheadMs = 0;

  override wallMs(): number {
    return super.wallMs() + this.aheadMs;
  }
}

export class AlertWorld {
  readonly clock = new SettableClock();
  readonly random: SeededRandom;
  readonly config: AlertsConfig;
  traffic: Traffic;
  watch: AlertWatch;
  stored: string | null = null;
  writes = 0;
  /** In the order in which they came. */
  readonly received: AlertNotice[] = [];
  /** The receiver does not answer. */
  isDown = false;
  providers: ProviderView[] = [];
  sidecars: SidecarView[] = [];
  held: string | null = null;
  backlog: Look | null = null;
  readonly #seqs = new Map<string, { instance: string; seq: number }>();
  #traces = 0;

  constructor(config: AlertsConfig = DEFAULT_ALERTS, seed = 1) {
    this.config = config;
    this.random = new SeededRandom(seed);
    this.traffic = new Traffic(this.clock);
    this.watch = this.#lead();
  }

  /** Another replica leads from now on; with what it heard of traffic itself, or as a process that has just been started. */
  changeLeader(hasHeard: boolean): void {
    this.watch.end();
    if (!hasHeard) this.traffic = new Traffic(this.clock);
    this.watch = this.#lead();
  }

  /** Another process of that name: its numbers begin anew. */
  restart(sidecar: string): void {
    this.#seqs.set(sidecar, { instance: `i${this.#traces++}`, seq: 0 });
  }

  /** Ten seconds: sidecars tell, and the leader looks. */
  async pass(told: readonly Told[] = []): Promise<void> {
    await this.clock.advance(DIGEST_EVERY_MS);
    for (const one of told) this.traffic.take(this.digest(one));
    this.watch.tick();
    await this.clock.advance(0);
  }

  /** So many minutes of it. */
  async minutes(count: number, told: (second: number) => readonly Told[] = () => []): Promise<void> {
    for (let tens = 0; tens < count * 6; tens++) await this.pass(told(tens * 10));
  }

  digest({
    sidecar,
    caller = `${sidecar.replace(/-/g, '')}.web.a`,
    capability = CAPABILITY,
    provider = PROVIDER,
    times,
    failures = 0,
    degraded = 0,
    breakers = [],
  }: Told): Digest {
    const said = this.#seqs.get(sidecar) ?? { instance: 'i', seq: 0 };
    said.seq++;
    this.#seqs.set(sidecar, said);
    const sketch = new Sketch();
    for (const ms of times) sketch.add(ms);
    const now = this.clock.wallMs();
    const slowest =
      times.length === 0
        ? []
        : [{ trace_id: (++this.#traces).toString(16).padStart(32, '0'), code: failures > 0 ? 3002 : 0, elapsed_ms: Math.max(...times) }];
    const edge: EdgeDigest = {
      caller,
      capability,
      version: '1.0.0',
      provider,
      calls: times.length,
      codes: failures > 0 ? [3002, failures] : [],
      retries: 0,
      degraded,
      times: sketch.pairs(),
      examples: slowest,
    };
    const served: ProviderDigest = { capability, version: '1.0.0', provider, attempts: times.length, failures, times: sketch.pairs() };
    return {
      wire: DIGEST_WIRE,
      sidecar,
      instance: said.instance,
      seq: said.seq,
      from_ms: now - DIGEST_EVERY_MS,
      to_ms: now,
      edges: times.length === 0 ? [] : [edge],
      providers: times.length === 0 || provider === '' ? [] : [served],
      breakers: breakers.map((each, i) => ({ ...each, at_ms: now - DIGEST_EVERY_MS + 1_000 + i })),
    };
  }

  /** So many durations around `ms`, log-normal; P95 is about 1.9 times it. */
  times(count: number, ms: number): number[] {
    return Array.from({ length: count }, () => ms * Math.exp(0.4 * this.#gauss()));
  }

  active(): readonly Alert[] {
    return this.watch.book.alerts.filter(({ state }) => state !== 'resolved');
  }

  /** What operators were told of each: `p95_rise crm.order.query firing`. */
  heard(): string[] {
    return this.received.map(({ alert, subject, state }) => `${alert} ${subject} ${state}`);
  }

  #gauss(): number {
    return Math.sqrt(-2 * Math.log(1 - this.random.next())) * Math.cos(2 * Math.PI * this.random.next());
  }

  #lead(): AlertWatch {
    return new AlertWatch({
      clock: this.clock,
      logger: quiet,
      random: this.random,
      config: this.config,
      epoch: 'e1',
      traffic: this.traffic,
      registry: () => ({ providers: () => this.providers, sidecars: () => this.sidecars, held: () => this.held }) as unknown as Registry,
      backlog: () => this.backlog,
      stored: () => (this.stored === null ? null : (JSON.parse(this.stored) as unknown)),
      write: ([message]) => {
        this.stored = message?.text ?? null;
        this.writes++;
        return Promise.resolve({ ok: true, seq: this.writes });
      },
      deliver: (notices) => {
        if (this.isDown) return Promise.resolve('ECONNREFUSED');
        this.received.push(...notices);
        return Promise.resolve(null);
      },
      onEvent: () => {},
    });
  }
}

export function provider(agent: string, more: Partial<ProviderView> = {}): ProviderView {
  return {
    agent,
    role: 'order',
    sidecar: 'shop-1',
    via: 'shop-1',
    status: 'online',
    why: null,
    offlineSinceMs: null,
    leaseLeftMs: 100_000,
    lastActivityMs: 1_000,
    inFlight: 0,
    offers: [`${CAPABILITY}@1.0.0`],
    address: 'http://127.0.0.1:1',
    transport: 'http',
    mesh: null,
    region: null,
    zone: null,
    tier: 'primary',
    weight: 1,
    drain: false,
    operator: null,
    probe: null,
    ...more,
  };
}

export function sidecar(name: string, status: SidecarView['status'], region: string | null = null): SidecarView {
  return {
    sidecar: name,
    instance: 'i',
    mesh: null,
    region,
    zone: null,
    status,
    lastBeatMs: 1_000,
    callers: [],
    agents: 1,
    agentsOnline: status === 'online' ? 1 : 0,
    capabilities: 1,
  };
}
