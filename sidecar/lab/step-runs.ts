/** What the calls, or the messages, of one step do and did. */
import type { TraceLine } from '../../proto/wire/trace-line.ts';
import { Arrivals } from './arrivals.ts';
import { Crowd } from './crowd.ts';
import { Durations } from './durations.ts';
import { checkMessage, checkMessages } from './expectations.ts';
import { CallMaker } from './one-call.ts';
import { MessageMaker, type MessageRecord } from './one-message.ts';
import type { CallStep, Fate, SendStep, Step } from './scenario.ts';
import { Sessions } from './sessions.ts';
import { count, Tally } from './tally.ts';
import type { World } from './world.ts';

export interface StepReport {
  readonly step: Step;
  readonly beganAtMs: number;
  endedAtMs: number;
  /** Null for steps without calls. */
  readonly tally: Tally | null;
  /** Of a send step: messages by what became of them; null for all others. */
  readonly fates: ReadonlyMap<Fate, number> | null;
  readonly times: Durations | null;
  isGood: boolean;
}

/** Different things that may be wrong with the calls of one step before the rest is left out. */
const MAX_KINDS = 8;

export interface Wrong {
  times: number;
  readonly call: number;
  readonly decision: readonly TraceLine[] | null;
}

/** What is the same for both: who comes, and when. */
class TrafficRun {
  readonly crowd: Crowd;
  readonly arrivals: Arrivals | null;
  readonly sessions = new Sessions();
  /** By its words. */
  readonly wrong = new Map<string, Wrong>();
  begun = 0;
  ended = 0;
  /** Nothing more begins. */
  isIssued = false;

  constructor(step: CallStep | SendStep, seed: number) {
    const { load } = step;
    this.crowd = new Crowd(step, seed ^ Math.imul(step.number, 0x9e37_79b1));
    this.arrivals = load === null ? null : new Arrivals(load, this.crowd.random);
  }

  isWrong(what: string, call: number, decision: () => readonly TraceLine[] | null): void {
    const known = this.wrong.get(what);
    if (known !== undefined) known.times++;
    else if (this.wrong.size < MAX_KINDS) this.wrong.set(what, { times: 1, call, decision: decision() });
  }
}

export class CallRun extends TrafficRun {
  readonly step: CallStep;
  readonly report: StepReport;
  readonly tally = new Tally();
  readonly maker: CallMaker;
  /** The first that ended: what is told of a step as a whole is told with its decision. */
  example: { readonly call: number; readonly decision: readonly TraceLine[] } | null = null;
  /** The first that needed more than one attempt. */
  repeated: { readonly call: number; readonly decision: readonly TraceLine[] } | null = null;
  readonly served: { readonly providers: (string | null)[]; readonly versions: (string | null)[] } = { providers: [], versions: [] };

  constructor(world: World, step: CallStep, seed: number, moving: () => Readonly<Record<string, string>>) {
    super(step, seed);
    const now = world.clock.now();
    this.step = step;
    this.maker = new CallMaker(world, step, moving);
    this.report = { step, beganAtMs: now, endedAtMs: now, tally: this.tally, fates: null, times: this.tally.times, isGood: true };
  }
}

export class SendRun extends TrafficRun {
  readonly step: SendStep;
  readonly report: StepReport;
  readonly maker: MessageMaker;
  readonly #world: World;
  readonly records: MessageRecord[] = [];
  readonly fates = new Map<Fate, number>();
  readonly times = new Durations();
  readonly byProvider = new Map<string, number>();

  constructor(world: World, step: SendStep, seed: number) {
    super(step, seed);
    const now = world.clock.now();
    this.step = step;
    this.maker = new MessageMaker(world, step);
    this.#world = world;
    this.report = { step, beganAtMs: now, endedAtMs: now, tally: null, fates: this.fates, times: this.times, isGood: true };
  }

  /** Of its last hand-over; null = there was none, or it is not remembered. */
  decisionOf(record: MessageRecord): readonly TraceLine[] | null {
    return this.#world.handOvers.get(record.taskId)?.trace.lines() ?? null;
  }

  /** What is told of a step as a whole is told with one that came to something else than most, or with the first. */
  get example(): { readonly call: number; readonly decision: readonly TraceLine[] } | null {
    const most = [...this.fates].sort(([, a], [, b]) => b - a)[0]?.[0];
    const record = this.records.find(({ fate }) => fate !== most) ?? this.records.find(({ attempts }) => attempts > 1) ?? this.records[0];
    const decision = record === undefined ? null : this.decisionOf(record);
    return record === undefined || decision === null ? null : { call: record.n, decision };
  }

  /** Looks at what has become of all of them by now. Gives what is wrong with the step as a whole. */
  judge(): string[] {
    const { expect } = this.step;
    this.fates.clear();
    this.byProvider.clear();
    for (const record of this.records) {
      count(this.fates, record.fate);
      count(this.byProvider, record.by ?? 'none');
      this.sessions.add(record.session, record.by);
      if (record.elapsedMs !== null) this.times.add(record.elapsedMs);
      if (expect === null) continue;
      for (const what of checkMessage(expect, record)) this.isWrong(what, record.n, () => this.decisionOf(record));
    }
    return expect === null ? [] : checkMessages(expect, this.fates, this.byProvider, this.times, this.sessions, this.records.length);
  }
}
