/**
 * ReachRule (SPEC section 10): which messages, and what is done with them. The normal form, after reading; what people write
 * is read by `rule-reading.ts`, and matched by what `rule-tree.ts` compiles.
 */
export type Dispatch = 'random' | 'round_robin' | 'least_request' | 'sticky';

export interface RuleCondition {
  readonly messageType: string | null;
  readonly sourceRole: string | null;
  readonly targetRole: string | null;
  /** A capability name or a prefix pattern, as in policies. */
  readonly capability: string | null;
  readonly tags: Readonly<Record<string, string>>;
}

export type RuleFallback =
  | { readonly kind: 'queue_task' }
  | { readonly kind: 'notify_admin' }
  | { readonly kind: 'fail' }
  | { readonly kind: 'capability'; readonly target: string };

export interface Rule {
  readonly name: string;
  readonly when: RuleCondition;
  readonly dispatch: Dispatch;
  /** For `sticky`: `sequence_id`, `source` or a tag `tags.<name>`. */
  readonly stickyBy: string | null;
  readonly priority: 'high' | 'normal' | 'low' | null;
  /** null = none: the next matching rule is tried. */
  readonly fallback: RuleFallback | null;
}

/** A message as rules see it. */
export interface RuleSubject {
  readonly messageType: string;
  readonly sourceRole: string;
  /** Role that is addressed, or that of the addressed agent; null = a capability is addressed. */
  readonly targetRole: string | null;
  readonly capability: string | null;
  readonly tags: Readonly<Record<string, string>>;
}

/** Rules compiled. */
export interface RuleSet {
  /** Version of the operators' document; 0 = none. */
  readonly version: number;
  /** Those that match, the most specific first, ties in the order of the file. Cost does not depend on how many rules there are. */
  match(subject: RuleSubject): readonly Rule[];
}

const NONE: readonly Rule[] = Object.freeze([]);

export const NO_RULES: RuleSet = Object.freeze({ version: 0, match: () => NONE });
