/** What the API answers about rules: reachctl reads the same. */
import type { RuleFinding } from '../../proto/language/rule-lint.ts';
import type { RecordedMessage } from '../../proto/wire/messages.ts';
import type { Trial } from '../rules/trial.ts';

/** A rule as it would stand in a file, and how many messages it decided. */
export interface RuleShown {
  readonly name: string;
  readonly when?: Readonly<Record<string, unknown>>;
  readonly action: { readonly dispatch: string; readonly sticky_by?: string; readonly priority?: string };
  readonly fallback?: { readonly if_no_available_agent: string | { readonly capability: string } };
  readonly hits: number;
}

export interface RulesOf {
  /** Of the operators' document; 0 = there were never any. */
  readonly version: number;
  /** Accepted by sidecars that use these rules, also those that no rule decided. */
  readonly messages: number;
  readonly for_ms: number;
  /** Sidecars that use them. */
  readonly sidecars: number;
  readonly rules: readonly RuleShown[];
}

export interface RulesAnswer extends RulesOf {
  readonly staged: (RulesOf & { readonly share: number }) | null;
}

export interface LintAnswer {
  /** null = of a document that is not in force. */
  readonly version: number | null;
  readonly rules: number;
  readonly messages: number;
  readonly for_ms: number;
  readonly findings: readonly RuleFinding[];
}

export interface RecordedMessagesAnswer {
  readonly messages: readonly RecordedMessage[];
  readonly asked: number;
  /** Those that did not answer. */
  readonly silent: readonly string[];
  /** Sidecars that were not asked, since there are so many. */
  readonly left_out: number;
}

export type TrialAnswer = Trial;
