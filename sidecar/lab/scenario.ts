/** A scenario after reading: the normal form that the lab runs. Times are milliseconds of virtual time. */
import type { Problem, TableDocument } from '../../proto/language/types.ts';
import type { SidecarConfig } from '../config.ts';
import type { Comparison } from './comparison.ts';

/** What every call of a step must have come to, and what the step as a whole. `null` = not said. */
export interface CallExpectation {
  readonly code: number | null;
  readonly status: number | null;
  readonly capability: string | null;
  /** Any of these; `null` in the list stands for "nobody" (a static answer, a refusal). */
  readonly providers: readonly (string | null)[] | null;
  readonly version: string | null;
  readonly degraded: boolean | null;
  readonly definitelySuccess: boolean | null;
  readonly ambiguous: boolean | null;
  readonly attempts: Comparison | null;
  readonly elapsed: Comparison | null;
  /** Must be contained in the answer's data; undefined = not said. */
  readonly data: unknown;
  /** Words that the failure's detail must contain. */
  readonly detail: readonly string[];
  /** `reason` or `stage.reason`. */
  readonly reasons: readonly string[];
  readonly notReasons: readonly string[];
  readonly succeeded: Comparison | null;
  /** The whole distribution: what is not named must not occur. */
  readonly codes: ReadonlyMap<number, Comparison> | null;
  readonly byProvider: ReadonlyMap<string, Comparison> | null;
  readonly byVersion: ReadonlyMap<string, Comparison> | null;
  readonly sameProvider: boolean;
  /** Label of another step: call n of both must have met the same provider (or version). */
  readonly sameProviderAs: string | null;
  readonly sameVersionAs: string | null;
}

/** What must be true of the whole run so far. */
export interface StateExpectation {
  readonly calls: Comparison | null;
  readonly succeeded: Comparison | null;
  readonly codes: ReadonlyMap<number, Comparison> | null;
  readonly attempts: Comparison | null;
  readonly retries: Comparison | null;
  readonly fallbacks: Comparison | null;
  readonly inFlight: Comparison | null;
  /** Agent id, or `agent capability`. */
  readonly executions: ReadonlyMap<string, Comparison> | null;
  /** `agent capability` → state of its breaker. */
  readonly breaker: ReadonlyMap<string, string> | null;
  /** `agent capability` → how often its breaker opened. */
  readonly opened: ReadonlyMap<string, Comparison> | null;
  /** Task → time from its first call's start to its last call's end. */
  readonly tasks: ReadonlyMap<string, Comparison> | null;
}

/** One piece of work in several calls: its time begins with its first call and is handed on as what is left. */
export interface TaskSetting {
  readonly deadlineMs: number;
  /** As in `Reach-Budget`; '' = none. */
  readonly budget: string;
}

interface StepBase {
  /** From 1. */
  readonly number: number;
  readonly line: number;
  readonly label: string | null;
  readonly note: string;
  /** From the start of the scenario, whatever is still under way; null = when all steps before have ended. */
  readonly atMs: number | null;
  /** Added to that. */
  readonly afterMs: number;
}

export interface CallStep extends StepBase {
  readonly kind: 'call';
  readonly asked: string;
  readonly caller: string;
  /** `$n` in its texts is the number of the call within the step, from 1. */
  readonly payload: unknown;
  readonly headers: Readonly<Record<string, string>>;
  readonly stream: boolean;
  readonly times: number;
  /** null = a call begins when one has ended. */
  readonly everyMs: number | null;
  readonly parallel: number;
  readonly cancelAfterMs: number | null;
  readonly deadlineMs: number | null;
  readonly task: string | null;
  readonly taskStep: string | null;
  readonly expect: CallExpectation | null;
}

/** Everything that changes the table, a mock's behaviour included. */
export interface TableStep extends StepBase {
  readonly kind: 'table';
  readonly document: TableDocument;
  /** What it does, for the report. */
  readonly words: string;
  /** Overrides of `document` that end some time after the step that made them: by name. */
  readonly expiries: ReadonlyMap<string, { readonly madeBy: number; readonly forMs: number }>;
}

export interface WaitStep extends StepBase {
  readonly kind: 'wait';
  readonly ms: number;
}

export interface CheckStep extends StepBase {
  readonly kind: 'check';
  readonly expect: StateExpectation;
}

export type Step = CallStep | TableStep | WaitStep | CheckStep;

export interface Scenario {
  readonly file: string;
  readonly name: string;
  readonly description: string;
  readonly seed: number;
  readonly config: SidecarConfig;
  readonly document: TableDocument;
  readonly tasks: ReadonlyMap<string, TaskSetting>;
  readonly steps: readonly Step[];
  readonly expect: StateExpectation | null;
}

export type ScenarioReading = { readonly scenario: Scenario } | { readonly problems: readonly Problem[] };
