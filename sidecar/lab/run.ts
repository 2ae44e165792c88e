/**
 * Runs a scenario: time is moved from event to event, as fast as the machine can. A step begins when all steps before it
 * have ended, or at its own time; calls under way do not keep a step with a time from beginning.
 */
import type { TraceLine } from '../../proto/wire/trace-line.ts';
import { checkCall, checkState, checkStep, readsTrace, type Served, type State } from './expectations.ts';
import { brokenInvariants } from './invariants.ts';
import { CallMaker, type Outcome } from './one-call.ts';
import type { CallStep, Scenario, Step, TableStep } from './scenario.ts';
import { Tally } from './tally.ts';
import { type Move, World } from './world.ts';

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
  readonly decision: readonly TraceLine[] | null;
}

export interface StepReport {
  readonly step: Step;
  readonly beganAtMs: number;
  endedAtMs: number;
  /** Null for steps without calls. */
  readonly tally: Tally | null;
  isGood: boolean;
}

export interface RunReport {
  readonly scenario: Scenario;
  readonly virtualMs: number;
  readonly tally: Tally;
  readonly steps: readonly StepReport[];
  readonly moves: readonly Move[];
  readonly executions: ReadonlyMap<string, number>;
  readonly failures: readonly Failure[];
  readonly ok: boolean;
}

/** Different things that may be wrong with the calls of one step before the rest is left out. */
const MAX_KINDS = 8;

/** What the calls of one step do and did. */
class StepRun {
  readonly step: CallStep;
  readonly report: StepReport;
  readonly tally = new Tally();
  readonly served: { readonly providers: (string | null)[]; readonly versions: (string | null)[] } = { providers: [], versions: [] };
  /** By its words. */
  readonly wrong = new Map<string, { times: number; readonly call: number; readonly decision: readonly TraceLine[] }>();
  begun = 0;
  ended = 0;

  constructor(step: CallStep, beganAtMs: number) {
    this.step = step;
    this.report = { step, beganAtMs, endedAtMs: beganAtMs, tally: this.tally, isGood: true };
  }
}

class Runner {
  readonly #scenario: Scenario;
  readonly #world: World;
  readonly #reports: StepReport[] = [];
  readonly #runs: StepRun[] = [];
  readonly #failures: Failure[] = [];
  readonly #tasks = new Map<string, { readonly beganAtMs: number; endedAtMs: number }>();
  /** When each step that changed the table ran: overrides expire by it. */
  readonly #ranAtWallMs = new Map<number, number>();
  #issued = 0;
  #underWay = 0;

  constructor(scenario: Scenario) {
    this.#scenario = scenario;
    this.#world = new World(scenario);
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
    this.#judge();
    return this.#report();
  }

  /** Moves time until every call has ended. */
  async #rest(): Promise<void> {
    const { clock } = this.#world;
    await clock.advance(0);
    while (this.#isBusy()) {
      const next = clock.nextAt();
      if (next === null) return; // calls that nothing will ever end: the invariants say so
      await clock.advanceTo(next);
    }
  }

  #isBusy(): boolean {
    return this.#underWay > 0 || this.#runs.some((run) => run.begun < run.step.times);
  }

  async #begin(step: Step): Promise<void> {
    const { clock } = this.#world;
    if (step.kind === 'call') return this.#calls(step);
    const report: StepReport = { step, beganAtMs: clock.now(), endedAtMs: clock.now(), tally: null, isGood: true };
    this.#reports.push(report);
    if (step.kind === 'wait') await clock.advance(step.ms);
    else if (step.kind === 'table') this.#install(step);
    else {
      const wrong = checkState(step.expect, this.#state());
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
    const { clock } = this.#world;
    const run = new StepRun(step, clock.now());
    this.#runs.push(run);
    this.#reports.push(run.report);
    const maker = new CallMaker(this.#world, step, () => this.#timeLeft(step));
    const { everyMs } = step;
    if (everyMs === null) {
      for (let i = 0; i < step.parallel && run.begun < step.times; i++) this.#next(run, maker);
      return;
    }
    const beat = (): void => {
      for (let i = 0; i < step.parallel && run.begun < step.times; i++) this.#next(run, maker);
      if (run.begun < step.times) clock.after(everyMs, beat);
    };
    beat();
  }

  #next(run: StepRun, maker: CallMaker): void {
    const n = ++run.begun;
    this.#issued++;
    this.#underWay++;
    const { task } = run.step;
    if (task !== null && !this.#tasks.has(task))
      this.#tasks.set(task, { beganAtMs: this.#world.clock.now(), endedAtMs: this.#world.clock.now() });
    maker.make(n).then(
      (outcome) => {
        this.#ended(run, outcome);
        if (run.step.everyMs === null && run.begun < run.step.times) this.#next(run, maker);
      },
      (error: unknown) => {
        this.#underWay--;
        run.ended++;
        this.#world.witness.bugs.push(error instanceof Error ? (error.stack ?? error.message) : String(error));
      },
    );
  }

  #timeLeft(step: CallStep): Readonly<Record<string, string>> {
    const setting = step.task === null ? undefined : this.#scenario.tasks.get(step.task);
    if (setting === undefined) return NOTHING;
    const begun = this.#tasks.get(step.task as string) as { readonly beganAtMs: number };
    const leftMs = Math.max(0, Math.floor(setting.deadlineMs - (this.#world.clock.now() - begun.beganAtMs)));
    const headers: Record<string, string> = { 'reach-deadline-ms': String(leftMs), 'reach-deadline-total-ms': String(setting.deadlineMs) };
    if (setting.budget !== '') headers['reach-budget'] = setting.budget;
    if (step.taskStep !== null) headers['reach-step'] = step.taskStep;
    return headers;
  }

  #ended(run: StepRun, outcome: Outcome): void {
    const { step } = run;
    const now = this.#world.clock.now();
    this.#underWay--;
    run.ended++;
    run.report.endedAtMs = now;
    const task = step.task === null ? undefined : this.#tasks.get(step.task);
    if (task !== undefined) task.endedAtMs = now;
    const { call } = outcome.result;
    const trace = step.expect !== null && readsTrace(step.expect) ? call.trace.lines() : null;
    run.tally.add(outcome, trace);
    run.served.providers[outcome.n - 1] = outcome.result.provider;
    run.served.versions[outcome.n - 1] = outcome.result.version;
    if (step.expect === null) return;
    for (const what of checkCall(step.expect, outcome, trace ?? [])) {
      const known = run.wrong.get(what);
      if (known !== undefined) known.times++;
      else if (run.wrong.size < MAX_KINDS) run.wrong.set(what, { times: 1, call: outcome.n, decision: call.trace.lines() });
    }
  }

  #judge(): void {
    const labelled = new Map<string, Served>();
    for (const run of this.#runs) if (run.step.label !== null) labelled.set(run.step.label, run.served);
    for (const run of this.#runs) {
      const { step } = run;
      for (const [what, { times, call, decision }] of run.wrong)
        this.#failures.push({ step: step.number, line: step.line, what, times, call, decision });
      const wrong = step.expect === null ? [] : checkStep(step.expect, run.tally, run.served, labelled);
      for (const what of wrong) this.#fail(step, what);
      run.report.isGood = wrong.length === 0 && run.wrong.size === 0;
    }
    if (this.#scenario.expect !== null) for (const what of checkState(this.#scenario.expect, this.#state())) this.#fail(null, what);
    for (const what of brokenInvariants(this.#world, this.#issued)) this.#fail(null, `invariant broken: ${what}`);
  }

  #fail(step: Step | null, what: string): void {
    this.#failures.push({ step: step?.number ?? null, line: step?.line ?? 0, what, times: 1, call: null, decision: null });
  }

  #state(): State {
    const tally = new Tally();
    for (const run of this.#runs) tally.addAll(run.tally);
    const { mock, moves } = this.#world;
    return {
      tally,
      inFlight: this.#underWay,
      executions: (cell) => {
        const [agent, capability] = cell.split(' ') as [string, string | undefined];
        return mock.executions(agent, capability);
      },
      breaker: (cell) => this.#world.breakerOf(cell),
      opened: (cell) => moves.filter((move) => move.cell === cell && move.to === 'open').length,
      taskMs: (task) => {
        const span = this.#tasks.get(task);
        return span === undefined ? 0 : span.endedAtMs - span.beganAtMs;
      },
    };
  }

  #report(): RunReport {
    const state = this.#state();
    const executions = new Map<string, number>();
    for (const { agentId } of this.#world.witness.seen) executions.set(agentId, state.executions(agentId));
    return {
      scenario: this.#scenario,
      virtualMs: this.#world.clock.now(),
      tally: state.tally,
      steps: this.#reports,
      moves: this.#world.moves,
      executions,
      failures: this.#failures.sort((a, b) => (a.step ?? Number.MAX_SAFE_INTEGER) - (b.step ?? Number.MAX_SAFE_INTEGER)),
      ok: this.#failures.length === 0,
    };
  }
}

const NOTHING: Readonly<Record<string, string>> = Object.freeze({});

export function runScenario(scenario: Scenario): Promise<RunReport> {
  return new Runner(scenario).run();
}
