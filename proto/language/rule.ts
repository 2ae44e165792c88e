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
