/**
 * Watches the P95 of every capability: each whole minute, some capabilities at a time, so that a thousand of them cost no pause.
 * Before a rise fires it is looked at once more among those who called before and call now: a sidecar whose fast calls are not heard
 * any more, or a deploy that brings callers with other questions, changes a P95 and is no rise. Only calls for which a provider was
 * asked are looked at: what was refused, or had nobody left to go to, ends at once.
 */
import type { Clock } from '../../base/clock.ts';
import { Sketch } from '../../base/sketch.ts';
import type { Traffic, Window } from '../traffic/traffic.ts';
import { OTHER, UNKNOWN } from '../../proto/wire/digests.ts';
import type { Alert, Observation } from './alert.ts';
import { type AlertsConfig, limitsFor, type RiseSettings } from './config.ts';
import { judgeRise, minutesNeeded, type Rise } from './rise.ts';
import { countWords, ms } from './words.ts';

/** Capabilities that are judged in one go. */
const SLICE = 50;
/** One that is not well is looked at more closely, and costs as much as so many others. */
const SUSPECT = 25;
const MINUTE_MS = 60_000;
/** What has been so for a day is how it is: it is not held against what was before any more. */
const ACCEPTED_MS = 86_400_000;
/** A provider is called the slowest when it had so many attempts. */
const FEWEST_ATTEMPTS = 20;
const PERCENTILE = 0.95;
/** Parts of the baseline of those who called before and call now; the median of them counts. */
const ALIKE_PARTS = 3;
/** Weights are counted in thousandths of a call. */
const FINE = 1_000;

type Known = Exclude<Rise, { readonly kind: 'unknown' }>;

export class Rises {
  readonly #traffic: Traffic;
  readonly #config: AlertsConfig;
  readonly #clock: Clock;
  /** The minute that was judged last. */
  #judged = Number.NEGATIVE_INFINITY;
  #queue: string[] = [];

  constructor(traffic: Traffic, config: AlertsConfig, clock: Clock) {
    this.#traffic = traffic;
    this.#config = config;
    this.#clock = clock;
  }

  /** What is due now. @param active alerts that are not over: they are judged also when nobody calls any more */
  look(active: readonly Alert[]): Observation[] {
    const minute = Math.floor(this.#clock.now() / MINUTE_MS);
    // What was not reached within its minute comes first in the next: else the same ones were never reached.
    if (minute !== this.#judged && this.#queue.length === 0) {
      this.#judged = minute;
      this.#queue = [...new Set([...this.#traffic.capabilities({ minutes: 2 }), ...active.map(({ subject }) => subject)])];
    }
    const byName = new Map(active.map((one) => [one.subject, one]));
    const seen: Observation[] = [];
    for (let room = SLICE; room > 0; ) {
      const name = this.#queue.pop();
      if (name === undefined) break;
      const settings = limitsFor(this.#config, name).p95;
      if (name === OTHER || name === UNKNOWN || !settings.enabled) continue;
      const one = this.#judge(name, settings, byName.get(name) ?? null);
      room -= one.look === '' ? 1 : SUSPECT;
      seen.push(one);
    }
    return seen;
  }

  #judge(name: string, settings: RiseSettings, alert: Alert | null): Observation {
    const minutes = this.#traffic
      .minutes(name, minutesNeeded(settings) + 1)
      .slice(0, -1)
      .map(({ figures }) => ({ times: figures?.answered ?? null, unusual: figures?.unusualShare ?? 0 }));
    const isAccepted = alert !== null && alert.firedMs !== null && this.#clock.wallMs() - alert.firedMs > ACCEPTED_MS;
    const rise = judgeRise(minutes, settings, isAccepted ? null : (alert?.held ?? null));
    if (rise.kind === 'unknown') return { ...nothing(name), words: `P95 of ${name}: too few calls to tell for an hour` };
    const known = { ...nothing(name), value: round(rise.p95Ms), limit: round(rise.limitMs), held: rise.baselineMs };
    if (rise.kind === 'calm') {
      const words = isAccepted
        ? `P95 of ${name} has been about ${ms(rise.p95Ms)} for a day: that is what it is held against from now on`
        : `P95 of ${name} is near its ${ms(rise.baselineMs)} of before again`;
      return { ...known, grade: 'good', words };
    }
    // Nobody asks for the words of what raises nothing.
    if (rise.kind === 'between' && alert === null) return { ...known, grade: 'between' };
    const window: Window = { minutes: settings.forMs / MINUTE_MS, endsMinutesAgo: 0 };
    const isNew = alert === null || alert.state === 'pending';
    const isBad = rise.kind === 'risen' && (!isNew || this.#isAlikeToo(name, settings));
    const figures = this.#traffic.capability(name, window);
    const examples = (figures?.examples ?? []).toSorted((a, b) => b.elapsed_ms - a.elapsed_ms);
    const traceId = examples[0]?.trace_id ?? null;
    return {
      ...known,
      grade: isBad ? 'bad' : rise.kind === 'rising' ? 'rising' : 'between',
      words: this.#words(name, settings, rise, window),
      traceId,
      look: traceId === null ? `reachctl capabilities show ${name}` : `reachctl trace ${traceId}`,
      beganMs: isBad ? this.#clock.wallMs() - settings.forMs : null,
    };
  }

  /**
   * Whether it has risen also for those who called before and call now: what was before is weighed by how much each of them calls now.
   * Where they are too few, all that call are believed.
   */
  #isAlikeToo(name: string, { forMs, baselineMs, minCalls, rise }: RiseSettings): boolean {
    const span = forMs / MINUTE_MS + 1;
    const now = this.#byCaller(name, { minutes: span, endsMinutesAgo: 0 });
    const each = Math.max(1, Math.floor(baselineMs / MINUTE_MS / ALIKE_PARTS));
    const parts = Array.from({ length: ALIKE_PARTS }, (_, i) => this.#byCaller(name, { minutes: each, endsMinutesAgo: span + i * each }));
    const verdicts = parts.flatMap((before) => {
      const alike = new Sketch();
      for (const [caller, times] of now) if (before.has(caller)) alike.merge(times);
      const { calls, p95Ms } = weighed(before, now);
      if (alike.count < minCalls || calls * ALIKE_PARTS < minCalls) return [];
      return [(alike.quantile(PERCENTILE) as number) > p95Ms * (1 + rise / 2)];
    });
    return verdicts.filter(Boolean).length * 2 >= verdicts.length;
  }

  #byCaller(name: string, window: Window): Map<string, Sketch> {
    const by = new Map<string, Sketch>();
    for (const { caller, figures } of this.#traffic.edges(window, name)) {
      if (caller === OTHER) continue;
      const sum = by.get(caller);
      if (sum === undefined) {
        const first = new Sketch();
        first.merge(figures.answered);
        by.set(caller, first);
      } else sum.merge(figures.answered);
    }
    return by;
  }

  #words(name: string, { forMs }: RiseSettings, { baselineMs, p95Ms, calls, kind }: Known, window: Window): string {
    const slowest = this.#slowest(name, window);
    const began = kind === 'rising' ? 'is rising' : 'rose';
    return (
      `P95 of ${name} ${began} from ${ms(baselineMs)} to ${ms(p95Ms)} over ${forMs / MINUTE_MS} min; ${countWords(calls, 'call')}` +
      (slowest === null ? '' : `; the slowest provider is ${slowest}`)
    );
  }

  #slowest(name: string, window: Window): string | null {
    let slowest: { readonly provider: string; readonly p95: number } | null = null;
    for (const { provider, figures } of this.#traffic.providers(window, name)) {
      if (provider === OTHER || figures.attempts < FEWEST_ATTEMPTS) continue;
      const p95 = figures.times.quantile(PERCENTILE);
      if (p95 !== null && p95 > (slowest?.p95 ?? 0)) slowest = { provider, p95 };
    }
    return slowest === null ? null : `${slowest.provider} (P95 ${ms(slowest.p95)})`;
  }
}

/** The P95 that there was if each caller had called as much as now. */
function weighed(
  before: ReadonlyMap<string, Sketch>,
  now: ReadonlyMap<string, Sketch>,
): { readonly calls: number; readonly p95Ms: number } {
  const sum = new Sketch();
  let calls = 0;
  for (const [caller, times] of before) {
    const weight = (now.get(caller)?.count ?? 0) / times.count;
    if (weight === 0 || !Number.isFinite(weight)) continue;
    calls += times.count;
    const pairs = times.pairs();
    for (let i = 0; i < pairs.length; i += 2) sum.addBucket(pairs[i] as number, Math.round((pairs[i + 1] as number) * weight * FINE));
  }
  return { calls, p95Ms: sum.quantile(PERCENTILE) ?? 0 };
}

function nothing(name: string): Observation {
  return {
    kind: 'p95_rise',
    subject: name,
    grade: 'unknown',
    words: '',
    value: 0,
    limit: 0,
    capability: name,
    agent: null,
    sidecar: null,
    traceId: null,
    look: '',
    held: null,
    beganMs: null,
  };
}

function round(value: number): number {
  return Number(value.toPrecision(3));
}
