/**
 * Runs a scenario: time is moved from event to event, as fast as the machine can. A step begins when all steps before it
 * have ended, or at its own time; calls under way do not keep a step with a time from beginning.
 */
import type { TraceLine } from '../../proto/wire/trace-line.ts';
import { checkCall, checkState, checkStep, readsTrace, type Served, type State } from './expectations.ts';
import { brokenInvariants } from './invariants.ts';
import type { Outcome } from './one-call.ts';
import { MessageBook } from './message-book.ts';
import { MessageRecord } from './one-message.ts';
import type { CallStep, Fate, Scenario, SendStep, Step, TableStep } from './scenario.ts';
import { History, stateOf } from './run-state.ts';
import { CallRun, SendRun, type StepReport } from './step-runs.ts';
import type { Tally } from './tally.ts';
import { type Move, World, type WorldOptions } from './world.ts';

/** An expectation that does not hold. */
export interface Failure {
  /** Null for the run as a whole. */
  readonly step: number | null;
  /** Line of the scenario file; 0 for the run as a whole. */
  readonly line: number;
  /** What was found and what was expected. */
  readonly what: string;
  /** How often, for what is expected of every call. */
  readonly times: number;
  /** The first call that it does not hold for, and what was decided about it. */
  readonly call: number | null;
  /** The step that this call is of, where it is an example of the whole run; null = of `step`. */
  readonly callOf: number | null;
  readonly decision: readonly TraceLine[] | null;
}

export interface RunReport {
  readonly scenario: Scenario;
  readonly virtualMs: number;
  readonly tally: Tally;
  readonly steps: readonly StepReport[];
  readonly moves: readonly Move[];
  readonly executions: ReadonlyMap<string, number>;
  /** Calls that agents made of one another. */
  readonly agentCalls: number;
  readonly messages: ReadonlyMap<Fate, number>;
  /** By name, in milliseconds. */
  readonly figures: ReadonlyMap<string, number>;
  readonly failures: readonly Failure[];
  readonly ok: boolean;
}

/** Messages that nobody has done anything about for so long are left where they are: the scenario goes on. */
const STUCK_MS = 3_600_000;
/** After the end, for what waits out a time: acknowledgements that are never going to come. */
const AFTER_MS = 120_000;

class Runner {
  readonly #scenario: Scenario;
  readonly #world: World;
  readonly #reports: StepReport[] = [];
  readonly #history = new History();
  readonly #failures: Failure[] = [];
  /** When each step that changed the table ran: overrides expire by it. */
  readonly #ranAtWallMs = new Map<number, number>();
  readonly #book: MessageBook;
  #issued = 0;
  #submitting = 0;

  constructor(scenario: Scenario, options: WorldOptions) {
    this.#scenario = scenario;
    this.#book = new MessageBook();
    this.#world = new World(scenario, {
      ...options,
      ended: (event) => {
        options.ended?.(event);
        this.#world.witness.lastAt = this.#world.clock.now();
        this.#book.ended(event, this.#world.clock.now());
      },
      kept: (entry) => {
        options.kept?.(entry);
        this.#book.kept(entry);
      },
    });
  }

  async run(): Promise<RunReport> {
    const { clock } = this.#world;
    for (const step of this.#scenario.steps) {
      if (step.atMs === null) {
        await this.#rest();
        await clock.advance(step.afterMs);
      } else if (clock.now() > step.atMs) {
        this.#fail(
          step,
          `was to begin at ${step.atMs} ms, and the steps before it ended only at ${Math.round(clock.now())} ms: give it after instead of at, or a later time`,
        );
      } else await clock.advanceTo(step.atMs);
      await this.#begin(step);
    }
    await this.#rest();
    const virtualMs = clock.now();
    const judged = this.#judge();
    if (this.#world.office !== null) {
      await this.#world.office.close();
      await clock.advance(AFTER_MS);
    }
    for (const what of brokenInvariants(this.#world, this.#issued)) this.#fail(null, `invariant broken: ${what}`);
    return this.#report(virtualMs, judged);
  }

  /** Moves time until every call and every message has ended. */
  async #rest(): Promise<void> {
    const { clock, witness } = this.#world;
    await clock.advance(0);
    let quietFrom = clock.now();
    while (this.#isBusy()) {
      const next = clock.nextAt();
      if (next === null) return; // calls that nothing will ever end: the invariants say so
      await clock.advanceTo(next);
      if (this.#callsGoOn()) quietFrom = clock.now();
      else if (clock.now() - Math.max(quietFrom, witness.lastAt) > STUCK_MS) return;
    }
  }

  #isBusy(): boolean {
    return this.#callsGoOn() || this.#book.open > 0;
  }

  #callsGoOn(): boolean {
    if (this.#history.underWay > 0 || this.#submitting > 0 || this.#world.agentCalls.open > 0) return true;
    for (const run of this.#history.runs) if (!run.isIssued) return true;
    for (const run of this.#history.sends) if (!run.isIssued) return true;
    return false;
  }

  async #begin(step: Step): Promise<void> {
    const { clock } = this.#world;
    if (step.kind === 'call') return this.#calls(step);
    if (step.kind === 'send') return this.#messages(step);
    const now = clock.now();
    const report: StepReport = { step, beganAtMs: now, endedAtMs: now, tally: null, fates: null, times: null, isGood: true };
    this.#reports.push(report);
    if (step.kind === 'wait') await clock.advance(step.ms);
    else if (step.kind === 'table') this.#install(step);
    else {
      const wrong = checkState(step.expect, stateOf(this.#world, this.#history));
      report.isGood = wrong.length === 0;
      for (const what of wrong) this.#fail(step, what);
    }
    report.endedAtMs = clock.now();
  }

  #install(step: TableStep): void {
    const wallMs = this.#world.clock.wallMs();
    this.#ranAtWallMs.set(step.number, wallMs);
    const overrides = step.document.overrides.map((override) => {
      const expiry = step.expiries.get(override.name);
      return expiry === undefined
        ? override
        : { ...override, expiresAtMs: (this.#ranAtWallMs.get(expiry.madeBy) as number) + expiry.forMs };
    });
    this.#world.install({ ...step.document, overrides }, step.words);
  }

  #calls(step: CallStep): void {
    const run = new CallRun(this.#world, step, this.#scenario.seed, () => this.#timeLeft(step));
    this.#history.runs.push(run);
    this.#reports.push(run.report);
    this.#issue(run, () => this.#nextCall(run));
  }

  #messages(step: SendStep): void {
    const run = new SendRun(this.#world, step, this.#scenario.seed);
    this.#history.sends.push(run);
    this.#reports.push(run.report);
    this.#issue(run, () => this.#nextMessages(run));
  }

  /** Begins what a step has to begin, each at its time. */
  #issue(run: CallRun | SendRun, begin: () => void): void {
    const { clock } = this.#world;
    const { step, arrivals } = run;
    const { everyMs } = step;
    if (arrivals !== null) {
      const beganAt = clock.now();
      const wait = (): void => {
        const arrival = arrivals.next();
        if (arrival === null) {
          run.isIssued = true;
          return;
        }
        clock.after(Math.max(0, beganAt + arrival.atMs - clock.now()), () => {
          for (let i = 0; i < arrival.calls; i++) begin();
          wait();
        });
      };
      wait();
      return;
    }
    const beat = (): void => {
      for (let i = 0; i < step.parallel && run.begun < step.times; i++) begin();
      if (run.begun >= step.times) run.isIssued = true;
      else if (everyMs !== null) clock.after(everyMs, beat);
    };
    beat();
  }

  #nextCall(run: CallRun): void {
    const n = ++run.begun;
    this.#issued++;
    this.#history.underWay++;
    const { task } = run.step;
    if (task !== null && !this.#history.tasks.has(task))
      this.#history.tasks.set(task, { beganAtMs: this.#world.clock.now(), endedAtMs: this.#world.clock.now() });
    run.maker.make(run.crowd.next(n)).then(
      (outcome) => {
        this.#ended(run, outcome);
        const { everyMs, load, times } = run.step;
        if (everyMs !== null || load !== null) return;
        if (run.begun < times) this.#nextCall(run);
        if (run.begun >= times) run.isIssued = true;
      },
      (error: unknown) => {
        this.#history.underWay--;
        run.ended++;
        run.isIssued = true;
        this.#world.witness.bugs.push(error instanceof Error ? (error.stack ?? error.message) : String(error));
      },
    );
  }

  /** One, in as many copies as the step says. */
  #nextMessages(run: SendRun): void {
    const words = run.crowd.next(++run.begun);
    const submission = run.maker.submissionOf(words);
    if (submission.key !== null) this.#history.keys.add(submission.key);
    for (let copy = 0; copy < run.step.copies; copy++) {
      const record = new MessageRecord(words.n, words.session, this.#world.clock.now());
      run.records.push(record);
      this.#submitting++;
      run.maker.send(submission, record).then(
        () => this.#submitted(run, record),
        (error: unknown) => {
          this.#submitting--;
          this.#world.witness.bugs.push(error instanceof Error ? (error.stack ?? error.message) : String(error));
        },
      );
    }
  }

  #submitted(run: SendRun, record: MessageRecord): void {
    this.#submitting--;
    const { everyMs, load, times } = run.step;
    this.#book.submitted(record, run.report, this.#world.clock.now());
    run.report.endedAtMs = this.#world.clock.now();
    if (everyMs === null && load === null && run.begun < times) this.#nextMessages(run);
    if (run.begun >= times && load === null) run.isIssued = true;
  }

  #timeLeft(step: CallStep): Readonly<Record<string, string>> {
    const setting = step.task === null ? undefined : this.#scenario.tasks.get(step.task);
    if (setting === undefined) return step.taskStep === null ? NOTHING : { 'reach-step': step.taskStep };
    const begun = this.#history.tasks.get(step.task as string) as { readonly beganAtMs: number };
    const leftMs = Math.max(0, Math.floor(setting.deadlineMs - (this.#world.clock.now() - begun.beganAtMs)));
    const headers: Record<string, string> = { 'reach-deadline-ms': String(leftMs), 'reach-deadline-total-ms': String(setting.deadlineMs) };
    if (setting.budget !== '') headers['reach-budget'] = setting.budget;
    if (step.taskStep !== null) headers['reach-step'] = step.taskStep;
    return headers;
  }

  #ended(run: CallRun, outcome: Outcome): void {
    const { step } = run;
    const now = this.#world.clock.now();
    this.#history.underWay--;
    run.ended++;
    run.report.endedAtMs = now;
    const task = step.task === null ? undefined : this.#history.tasks.get(step.task);
    if (task !== undefined) task.endedAtMs = now;
    const { call } = outcome.result;
    if (call.powerId !== null) this.#history.keys.add(call.powerId);
    const trace = step.expect !== null && readsTrace(step.expect) ? call.trace.lines() : null;
    run.tally.add(outcome, trace);
    run.sessions.add(outcome.session, outcome.result.provider);
    run.served.providers[outcome.n - 1] = outcome.result.provider;
    run.served.versions[outcome.n - 1] = outcome.result.version;
    run.example ??= { call: outcome.n, decision: call.trace.lines() };
    if (run.repeated === null && call.attempts.length > 1) run.repeated = { call: outcome.n, decision: call.trace.lines() };
    if (step.expect === null) return;
    for (const what of checkCall(step.expect, outcome, trace ?? [])) run.isWrong(what, outcome.n, () => call.trace.lines());
  }

  /** The state that was judged. */
  #judge(): State {
    const labelled = new Map<string, Served>();
    for (const run of this.#history.runs) if (run.step.label !== null) labelled.set(run.step.label, run.served);
    for (const run of this.#history.runs) {
      const { step, report, sessions } = run;
      const wrong =
        step.expect === null
          ? []
          : checkStep(step.expect, run.tally, run.served, labelled, sessions, step.load?.totalMs ?? report.endedAtMs - report.beganAtMs);
      this.#tellWrong(run, wrong);
    }
    for (const run of this.#history.sends) this.#tellWrong(run, run.judge());
    const state = stateOf(this.#world, this.#history);
    if (this.#scenario.expect !== null) for (const what of checkState(this.#scenario.expect, state)) this.#fail(null, what);
    return state;
  }

  #tellWrong(run: CallRun | SendRun, wrong: readonly string[]): void {
    const { step } = run;
    for (const [what, { times, call, decision }] of run.wrong)
      this.#failures.push({ step: step.number, line: step.line, what, times, call, callOf: null, decision });
    const { example } = run;
    for (const what of wrong)
      this.#failures.push({
        step: step.number,
        line: step.line,
        what,
        times: 1,
        call: example?.call ?? null,
        callOf: null,
        decision: example?.decision ?? null,
      });
    run.report.isGood = wrong.length === 0 && run.wrong.size === 0;
  }

  #fail(step: Step | null, what: string): void {
    const { example } = this;
    const at = { step: step?.number ?? null, line: step?.line ?? 0, what, times: 1 };
    if (example === null || what.startsWith('invariant')) this.#failures.push({ ...at, call: null, callOf: null, decision: null });
    else this.#failures.push({ ...at, ...example });
  }

  /** What is told of the run so far is told with a call that needed more than one attempt, or else with the first. */
  get example(): { readonly call: number; readonly callOf: number; readonly decision: readonly TraceLine[] } | null {
    const run = this.#history.runs.find((each) => each.repeated !== null) ?? this.#history.runs[0];
    const example = run?.repeated ?? run?.example ?? null;
    return run === undefined || example === null ? null : { ...example, callOf: run.step.number };
  }

  #report(virtualMs: number, state: State): RunReport {
    const executions = new Map<string, number>();
    for (const { agentId } of this.#world.witness.seen) executions.set(agentId, state.executions(agentId));
    const figures = new Map<string, number>();
    for (const { name, quantile, of } of this.#scenario.figures) figures.set(name, Math.round(state.times(of).at(quantile)));
    return {
      scenario: this.#scenario,
      virtualMs,
      tally: state.tally,
      steps: this.#reports,
      moves: this.#world.moves,
      executions,
      agentCalls: state.agentCalls,
      messages: state.messages,
      figures,
      failures: this.#failures.sort((a, b) => (a.step ?? Number.MAX_SAFE_INTEGER) - (b.step ?? Number.MAX_SAFE_INTEGER)),
      ok: this.#failures.length === 0,
    };
  }
}

const NOTHING: Readonly<Record<string, string>> = Object.freeze({});

/** @param options answers from elsewhere than the mocks' scripts */
export function runScenario(scenario: Scenario, options: WorldOptions = {}): Promise<RunReport> {
  return new Runner(scenario, options).run();
}
