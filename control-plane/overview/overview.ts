/**
 * What is going on, and first what is wrong: made of what this replica hears and of what is stored, so that every replica can answer,
 * and for a second the same answer for everybody who asks. What it cannot know it names (`unknown`), rather than show a nought.
 */
import type { Clock } from '../../base/clock.ts';
import { Tail } from '../../proto/wire/subjects.ts';
import { type Alert, covers, type StoredAlerts } from '../alerts/alert.ts';
import type { Plane } from '../api/plane.ts';
import { shownOverrides } from '../api/overrides.ts';
import { agentProblems, breakerProblems } from './agent-problems.ts';
import { breakersOf } from './breakers.ts';
import { type CapabilityRow, capabilityProblems, capabilityRows, LATELY, rowsWorstFirst, unknownNames } from './capability-rows.ts';
import { fleetProblems, overrideProblems, rolloutProblems } from './fleet-problems.ts';
import { type OverviewAnswer, rowView, SPARK_MINUTES } from './overview-shapes.ts';
import { counted, type Problem, problem, worstFirst } from './problem.ts';
import type { QueueFacts, QueueLook } from './queue-facts.ts';

const FRESH_MS = 1_000;
const MAX_PROBLEMS = 200;
export const MAX_ROWS = 2_000;
export const USUAL_ROWS = 200;
/** From here on a stream is called nearly full. */
const NEARLY_FULL = 0.8;

interface Made {
  readonly atMs: number;
  readonly whole: Omit<OverviewAnswer, 'capabilities'>;
  readonly rows: readonly CapabilityRow[];
  /** As text, by how many rows were asked for. */
  readonly texts: Map<number, string>;
}

export class Overview {
  readonly #plane: Plane;
  readonly #clock: Clock;
  readonly #queue: Pick<QueueLook, 'facts'>;
  #made: Made | null = null;
  #making: Promise<Made> | null = null;

  constructor(plane: Plane, queue: Pick<QueueLook, 'facts'>) {
    this.#plane = plane;
    this.#clock = plane.clock;
    this.#queue = queue;
  }

  /** As JSON. @param limit capabilities that are told of, worst first */
  async text(limit: number): Promise<string> {
    const made = await this.#fresh();
    let text = made.texts.get(limit);
    if (text === undefined) {
      const { traffic } = this.#plane;
      const sparks = traffic.callsByMinute(SPARK_MINUTES);
      const seconds = traffic.seconds(LATELY);
      const answer: OverviewAnswer = { ...made.whole, capabilities: made.rows.slice(0, limit).map((row) => rowView(row, sparks, seconds)) };
      text = JSON.stringify(answer);
      made.texts.set(limit, text);
    }
    return text;
  }

  async #fresh(): Promise<Made> {
    const made = this.#made;
    if (made !== null && this.#clock.now() - made.atMs < FRESH_MS) return made;
    this.#making ??= this.#make();
    return this.#making;
  }

  async #make(): Promise<Made> {
    try {
      const queue = await this.#queue.facts();
      const made = this.#from(queue);
      this.#made = made;
      return made;
    } finally {
      this.#making = null;
    }
  }

  #from(queue: QueueFacts): Made {
    const { clock, traffic, fleet, overrides } = this.#plane;
    const now = clock.now();
    const registry = this.#plane.registry();
    const providers = registry.providers();
    const breakers = breakersOf(traffic, now);
    const rows = rowsWorstFirst(capabilityRows(traffic, providers, breakers));
    const sidecars = fleet.rows(now);
    const left = new Set(registry.sidecars().flatMap(({ sidecar, status }) => (status === 'left' ? [sidecar] : [])));
    const standing = (wanted: string): number => sidecars.filter((row) => row.standing === wanted && !left.has(row.sidecar)).length;
    const problems = worstFirst([
      ...capabilityProblems(rows, traffic.providers(LATELY)),
      ...unknownNames(traffic),
      ...breakerProblems(breakers, rows, clock.wallMs() - now),
      ...agentProblems(providers),
      ...fleetProblems(sidecars, left),
      ...overrideProblems(shownOverrides(overrides)),
      ...rolloutProblems(registry.rollout()),
      ...this.#queueProblems(queue),
      ...this.#ownProblems(),
      ...alertProblems(this.#plane.mirror.state<StoredAlerts>(Tail.alerts), clock.wallMs()),
    ]);
    const total = traffic.total(LATELY);
    const seconds = traffic.seconds(LATELY);
    const figures = this.#plane.leading?.messages.figures ?? null;
    const whole: Made['whole'] = {
      at_ms: Math.round(clock.wallMs()),
      replica: this.#plane.name,
      leads: this.#plane.leading !== null,
      unknown: this.#unknown(queue),
      problems: problems.slice(0, MAX_PROBLEMS).map(({ severity, kind, words, capability, agent, sidecar, traceId, sinceMs }) => ({
        severity,
        kind,
        words,
        capability,
        agent,
        sidecar,
        trace_id: traceId,
        since_ms: sinceMs,
      })),
      problems_total: problems.length,
      totals: {
        calls_per_s: total.calls / seconds,
        error_share: total.errorShare,
        p95_ms: total.times.count === 0 ? null : total.times.quantile(0.95),
        agents: providers.length,
        agents_offline: providers.filter(({ status }) => status === 'offline').length,
        capabilities: rows.length,
        sidecars: { current: standing('current'), behind: standing('behind'), stale: standing('stale'), missing: standing('missing') },
        messages: {
          waiting: figures === null ? queue.tasks : Object.values(figures.waiting).reduce((sum, count) => sum + count, 0),
          parked: figures?.parkedPools ?? null,
          dead: queue.dead,
          in_doubt: queue.inDoubt,
          review: queue.review,
        },
      },
    };
    return { atMs: now, whole, rows: rows.slice(0, MAX_ROWS), texts: new Map() };
  }

  /** What this replica cannot know, in sentences. */
  #unknown(queue: QueueFacts): string[] {
    const { clock, traffic, leading, natsConnected } = this.#plane;
    const unknown: string[] = [];
    const minutes = Math.floor((clock.now() - traffic.sinceMs) / 60_000);
    if (minutes < 15)
      unknown.push(
        `This replica listens since ${minutes === 0 ? 'less than a minute' : counted(minutes, 'minute')}: what was before, also breakers that opened before, it cannot know`,
      );
    if (!natsConnected) unknown.push('NATS is away from this replica: it hears nobody, and shows what it heard last');
    if (leading === null) unknown.push('This replica does not lead: which pools are parked, and what is held back, the leader alone knows');
    if (queue.tasks === null) unknown.push('How many messages wait is not known at present');
    if (queue.dead === null) unknown.push('How many messages are kept for people is not known at present, or they are too many to count');
    return unknown;
  }

  #queueProblems({ dead, inDoubt, review }: QueueFacts): Problem[] {
    const problems: Problem[] = [];
    if (inDoubt !== null && inDoubt > 0)
      problems.push(
        problem(
          'warning',
          'kept',
          `${counted(inDoubt, 'task')} ${inDoubt === 1 ? 'is' : 'are'} in doubt: whoever worked on it vanished, and a person has to say whether it may run again`,
          inDoubt,
        ),
      );
    if (review !== null && review > 0)
      problems.push(
        problem(
          'warning',
          'kept',
          `${counted(review, 'task')} ${review === 1 ? 'waits' : 'wait'} for a person (review): nobody was there to take it`,
          review,
        ),
      );
    if (dead !== null && dead > 0)
      problems.push(problem('warning', 'kept', `${counted(dead, 'dead letter')}: given up after all tries`, dead));
    const figures = this.#plane.leading?.messages.figures;
    if (figures === undefined) return problems;
    if (figures.parkedPools > 0)
      problems.push(
        problem(
          'warning',
          'parked',
          `${counted(figures.parkedPools, 'pool')} ${figures.parkedPools === 1 ? 'has' : 'have'} tasks and nobody who works on them`,
          figures.parkedPools,
        ),
      );
    for (const [stream, fill] of figures.fill)
      if (fill >= NEARLY_FULL)
        problems.push(problem('critical', 'queue_full', `The stream ${stream} is ${Math.round(fill * 100)} % full`, fill));
    return problems;
  }

  /** Of the control plane itself. */
  #ownProblems(): Problem[] {
    const { leading, clock } = this.#plane;
    const held = (leading?.held ?? []).map(({ reason, sinceMs }) =>
      problem('critical', 'held', `Held back until an operator confirms it: ${reason}`, 1_000, {
        sinceMs: sinceMs === null ? null : Math.round(clock.wallMs() - (clock.now() - sinceMs)),
      }),
    );
    const said = this.#plane.warnings().filter((words) => !words.startsWith('held back: '));
    return [...held, ...said.map((words) => problem('warning', 'control_plane', words, 0))];
  }
}

/** Those that fire and are not silenced. That an agent is offline stands there already. */
function alertProblems(stored: StoredAlerts | null, wallMs: number): Problem[] {
  if (stored === null) return [];
  const shows = (alert: Alert): boolean =>
    alert.state === 'firing' && alert.kind !== 'agent_offline' && !stored.silences.some((silence) => covers(silence, alert, wallMs));
  return stored.alerts
    .filter(shows)
    .map(({ words, capability, agent, sidecar, traceId, sinceMs }) =>
      problem('warning', 'alert', words, 1, { capability, agent, sidecar, traceId, sinceMs }),
    );
}
