/** A scenario after reading: the normal form that the lab runs. Times are milliseconds of virtual time. */
import type { Problem, TableDocument } from '../../proto/language/types.ts';
import type { Lane } from '../../proto/wire/envelope.ts';
import type { TaskState } from '../../proto/wire/messages.ts';
import type { SidecarConfig } from '../config.ts';
import type { Load } from './arrivals.ts';
import type { Comparison } from './comparison.ts';
import type { Quantile } from './durations.ts';

/** Bounds of percentiles; a name that stands not in it is not bounded. */
export type Quantiles = ReadonlyMap<Quantile, Comparison>;

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
  /** Each session met one provider: sessions that met more. */
  readonly brokenSessions: Comparison | null;
  readonly latency: Quantiles;
  /** Calls that began in a second, over the time of the step. */
  readonly perSecond: Comparison | null;
}

/** What becomes of a message for whoever sent it: `refused` = it was not taken, `review` = it waits for a person. */
export type Fate = TaskState | 'refused' | 'review';

/** What every message of a step must have come to, and the step as a whole. `null` = not said. */
export interface SendExpectation {
  readonly state: Fate | null;
  /** Of the refusal, or of the end. */
  readonly code: number | null;
  /** Agents that may have had it last; `null` in the list = nobody. */
  readonly providers: readonly (string | null)[] | null;
  readonly version: string | null;
  readonly rule: string | null;
  readonly lane: Lane | null;
  readonly replay: boolean | null;
  readonly attempts: Comparison | null;
  /** From being accepted to its end. */
  readonly elapsed: Comparison | null;
  readonly detail: readonly string[];
  /** The whole distribution. */
  readonly states: ReadonlyMap<Fate, Comparison> | null;
  readonly byProvider: ReadonlyMap<string, Comparison> | null;
  readonly brokenSessions: Comparison | null;
  readonly latency: Quantiles;
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
  /** `agent capability` → the states that its breaker has been in, in order. */
  readonly breakerPath: ReadonlyMap<string, readonly string[]> | null;
  /** `agent capability` → how long its breaker has been open in all. */
  readonly openFor: ReadonlyMap<string, Comparison> | null;
  /** Label of a step, or a capability → percentiles of its calls. */
  readonly latency: ReadonlyMap<string, Quantiles> | null;
  /** Calls that agents made of one another. */
  readonly agentCalls: Comparison | null;
  /** Messages by what became of them; `sent` is all of them. */
  readonly messages: ReadonlyMap<Fate | 'sent', Comparison> | null;
  /** Executions under each idempotency key. */
  readonly executionsPerKey: Comparison | null;
  /** Rule → what the linter says of it; '' = nothing. */
  readonly lint: ReadonlyMap<string, string> | null;
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

/** How often, by whom and with what: of calls and of messages alike. */
export interface Traffic {
  /** One after the other by chance, or by session. */
  readonly callers: readonly string[];
  /** See templates.ts for the words in its texts. */
  readonly payload: unknown;
  readonly headers: Readonly<Record<string, string>>;
  /** Of generated load what is to be expected. */
  readonly times: number;
  /** null = a call begins when one has ended. */
  readonly everyMs: number | null;
  readonly parallel: number;
  /** null = scripted by `times`, `everyMs`, `parallel`. */
  readonly load: Load | null;
  readonly sessions: { readonly count: number; readonly from: number; readonly to: number } | null;
}

export interface CallStep extends StepBase, Traffic {
  readonly kind: 'call';
  /** More than one: by chance, each as likely. */
  readonly asked: readonly string[];
  readonly stream: boolean;
  readonly cancelAfterMs: number | null;
  readonly deadlineMs: number | null;
  readonly task: string | null;
  readonly taskStep: string | null;
  readonly expect: CallExpectation | null;
}

export interface SendStep extends StepBase, Traffic {
  readonly kind: 'send';
  /** null = whoever has the role, or the agent. */
  readonly asked: string | null;
  readonly role: string | null;
  readonly agent: string | null;
  readonly messageType: string | null;
  readonly lane: Lane | null;
  /** With the words of templates.ts; null = none. */
  readonly key: string | null;
  /** So many of each, one after the other, under the same key. */
  readonly copies: number;
  readonly tags: Readonly<Record<string, string>>;
  readonly sequenceId: string | null;
  readonly retryable: boolean;
  readonly deadlineMs: number | null;
  readonly expiresMs: number | null;
  readonly expect: SendExpectation | null;
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

export type Step = CallStep | SendStep | TableStep | WaitStep | CheckStep;

/** A number of the run that is told by its name. */
export interface Figure {
  readonly name: string;
  readonly quantile: Quantile;
  /** Label of a step, or a capability. */
  readonly of: string;
}

export interface Scenario {
  readonly file: string;
  readonly name: string;
  /** Of several runs of one file: which; null = it is the only one. */
  readonly variant: string | null;
  readonly description: string;
  readonly seed: number;
  readonly config: SidecarConfig;
  readonly document: TableDocument;
  readonly tasks: ReadonlyMap<string, TaskSetting>;
  readonly steps: readonly Step[];
  readonly expect: StateExpectation | null;
  readonly figures: readonly Figure[];
  /** Every agent that any state of the table has. */
  readonly agents: readonly string[];
}

export type ScenarioReading = { readonly scenario: Scenario } | { readonly problems: readonly Problem[] };
/** One file: one run, or one for each of its variants. */
export type ScenariosReading = { readonly scenarios: readonly Scenario[] } | { readonly problems: readonly Problem[] };
