/**
 * What stands in a recording: everything that a decision was made of, once, and the calls with what was decided. A file is
 * whole by itself: it begins with its head, and whatever a call refers to stands before it in the same file.
 *
 * Instants are on the scale of the recording process's monotonic clock, as exact as they were read. Of a payload, header or
 * query nothing is here but what the redaction rules name; what a decision took from them is here as what it came to (does
 * it fit the schema, which owner does the conversation key hash to), not as the value.
 */
import type { Contract, Override, Policy, ProviderRecord } from '../../proto/language/types.ts';
import type { TraceLine } from '../../proto/wire/trace-line.ts';
import type { CellDump } from '../health/cell.ts';
import type { ProviderDump } from '../health/provider.ts';
import type { TurnsDump } from '../choose/turns.ts';

/** Rises when an old program could not make sense of a file any more. */
export const RECORDING_FORMAT = 1;

/** The settings that decisions read. */
export interface RecordedConfig {
  readonly name: string;
  readonly region: string | null;
  readonly zone: string | null;
  readonly aclAudit: boolean;
  readonly maxDeadlineMs: number;
  readonly maxHops: number;
  readonly lateMs: number;
  readonly retryBudget: { readonly ratio: number; readonly minPerSec: number };
  readonly ejection: { readonly consecutive: number; readonly forMs: number };
  readonly affinity: { readonly maxEntries: number; readonly ttlMs: number };
}

export interface FileRecord {
  readonly k: 'file';
  readonly format: number;
  /** Version of the program that wrote it. */
  readonly program: string;
  readonly wall_ms: number;
  readonly config: RecordedConfig;
  /** Of the health view, before anything of it stands in this file. */
  readonly rev: number;
  /** Of all traces; 1 = every call that the rest of the filter lets through. */
  readonly share: number;
}

export type RecordedProvider = { readonly record: ProviderRecord; readonly mesh: boolean };

/** What a table says of one capability. Of providers their endpoint is left out: a recording leads nowhere. */
export interface PartRecord {
  readonly k: 'part';
  readonly id: number;
  readonly name: string;
  readonly contracts: readonly Contract[];
  readonly policies: readonly Policy[];
  /** The part that `providers` and `gone` are a change of; null = it has just these. */
  readonly base: number | null;
  readonly providers: readonly RecordedProvider[];
  readonly gone: readonly string[];
}

export interface OverridesRecord {
  readonly k: 'overrides';
  readonly id: number;
  readonly list: readonly Override[];
}

/** What has changed in the health view since the revision before. */
export interface HealthRecord {
  readonly k: 'health';
  readonly rev: number;
  /** The revision that stands before it in the file, or that the file began with: where it is another one, something is missing. */
  readonly before: number;
  readonly cells: readonly (readonly [agentId: string, capability: string, CellDump])[];
  readonly providers: readonly (readonly [agentId: string, ProviderDump])[];
}

/** Of a body what may be kept. */
export interface RecordedBody {
  readonly bytes: number;
  readonly type: string;
  /** With the values that may be kept. */
  readonly json?: unknown;
  /** Place → digits: numbers in `json` that a double does not hold, which are not the same there. Absent = there are none. */
  readonly numbers?: Readonly<Record<string, string>>;
  /** As it came, byte by byte. */
  readonly base64?: string;
  /** It stands here without anything left out. */
  readonly whole: boolean;
}

/** Between two things that the call waited for: what it waited for, and what it read of the clocks then. */
export interface Stretch {
  readonly after: 'begin' | 'arrived' | 'claim' | 'answer' | 'timer' | 'chunk' | 'end';
  /** Of a timer, its delay; of an answer, the attempt. */
  readonly n: number;
  readonly now: number[];
  readonly wall: number[];
}

export interface ChoiceRecord {
  /** What the health view was. */
  readonly rev: number;
  /** By version that may serve. */
  readonly lines: readonly {
    readonly capability: string;
    readonly version: string;
    readonly repeatable_at: number | null;
    readonly turns: TurnsDump | null;
  }[];
  /** Who held the conversation, oldest first: whether it has been registered all the time, and whether it offers what is asked. null = there is no key. */
  readonly bound: readonly (readonly [agentId: string, isSame: boolean, offersIt: boolean])[] | null;
}

export interface VerdictRecord {
  readonly stage: string;
  readonly reason: string;
  readonly words: string;
  readonly passes: boolean;
  readonly code: number;
  readonly args: readonly (string | number | null | readonly string[])[];
}

/** One request to a provider, and how the adapter said that it went. */
export interface SendRecord {
  readonly code: number;
  readonly started: 'not_started' | 'started' | 'done';
  readonly status: number;
  readonly detail: string;
  readonly reused: boolean;
  readonly retry_after_ms: number;
  /** Those that decide something. */
  readonly own: Readonly<Record<string, string>>;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: RecordedBody | null;
  readonly stream: StreamRecord | null;
}

export interface StreamRecord {
  readonly bytes: number;
  readonly chunks: number;
  /** The beginning, base64, where it may be kept. */
  readonly head: string | null;
  /** null = it had not ended when the call did. */
  readonly ended: { readonly by: 'end' | 'cut' | 'unread'; readonly code: number; readonly detail: string } | null;
}

export interface AttemptRecord {
  readonly provider: string;
  readonly capability: string;
  readonly version: string;
  readonly at_ms: number;
  readonly elapsed_ms: number;
  readonly code: number;
  readonly status: number;
  readonly started: string;
  readonly detail: string;
}

/** What was decided, in the form that is compared. */
export interface Decision {
  readonly code: number;
  readonly status: number;
  readonly capability: string | null;
  /** Who answered; null = nobody did. */
  readonly provider: string | null;
  readonly version: string | null;
  readonly degraded: boolean;
  readonly retry_after_ms: number;
  readonly attempts: readonly AttemptRecord[];
  readonly trace: readonly TraceLine[];
}

export interface CallRecord {
  readonly k: 'call';
  readonly end: 'outbound' | 'inbound';
  /** Of `inbound`: whom the caller's end has chosen. */
  readonly host: { readonly agent: string; readonly version: string } | null;
  readonly way: string;
  readonly asked: string;
  readonly trace_id: string;
  readonly stream: boolean;
  readonly http: { readonly method: string; readonly target: string } | null;
  readonly started_at: number;
  readonly wall_ms: number;
  readonly seed: number;
  /** Of the health view, when it came. */
  readonly rev: number;
  /** Our own headers that decide something. */
  readonly own: Readonly<Record<string, string>>;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: RecordedBody;
  readonly caller: { readonly agent: string; readonly via: string | null } | null;
  /** What the first stage found out about who calls. */
  readonly identify: VerdictRecord | null;
  /** Times that its way in set. */
  readonly attempt_ms: number;
  readonly total_ms: number;
  readonly late_ms: number;
  /** It had a key; which one is not kept. */
  readonly has_key: boolean;
  /** Hashes of the conversation key, by capability: each may have its own place for it. One that is not here had none. */
  readonly conversations: Readonly<Record<string, { readonly canary: number; readonly owner: number }>>;
  readonly parts: readonly number[];
  /** From which look at the table on which overrides were in force. */
  readonly overrides: readonly (readonly [look: number, id: number])[];
  /** Whether a provider that was asked for by name stands in the table. */
  readonly pin_known: boolean;
  /** By version: what was wrong with the payload; null = nothing. */
  readonly fits: Readonly<Record<string, VerdictRecord | null>>;
  readonly stretches: readonly Stretch[];
  readonly choices: readonly ChoiceRecord[];
  /** The health view after each attempt that failed. */
  readonly after: readonly (number | null)[];
  readonly in_flight: Readonly<Record<string, number>>;
  readonly quotas: readonly (readonly [what: string, VerdictRecord | null, retryAfterMs: number, words: string | null])[] | null;
  readonly claims: readonly {
    readonly verdict: VerdictRecord;
    readonly claim: string;
    readonly answer: { readonly status: number; readonly provider: string; readonly version: string } | null;
    readonly retry_after_ms: number;
    readonly rev: number;
  }[];
  /** Calls and retries of the last ten seconds. */
  readonly budget: readonly [calls: number, retries: number];
  /** The same when a retry was asked for. */
  readonly takes: readonly (readonly [calls: number, retries: number])[];
  readonly work: { readonly ends_at: number; readonly total_ms: number; readonly agent: string } | null;
  readonly left: { readonly at: number; readonly cut_by: string | null } | null;
  /** By attempt: what was sent, and how long it might take. */
  readonly sends: readonly { readonly timer_ms: number; readonly sends: readonly SendRecord[] }[];
  /** The answer that is none of a provider's: the static text of a fallback. */
  readonly definitely: boolean;
  /** Why it cannot be decided anew; '' = it can. */
  readonly unfit: string;
  readonly decision: Decision;
}

export type AnyRecord = FileRecord | PartRecord | OverridesRecord | HealthRecord | CallRecord;
