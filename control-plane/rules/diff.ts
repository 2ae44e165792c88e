/** SKELETON. */
export interface DiffEntry {
  readonly kind: 'added' | 'removed' | 'changed';
  /** `policy crm.*` or `contract crm.order.query@2.0.0`. */
  readonly what: string;
  /** In words of the language, such as `retry.max`. */
  readonly fields: readonly { readonly field: string; readonly before: unknown; readonly after: unknown }[];
}
export interface DocumentDiff {
  readonly entries: readonly DiffEntry[];
  /** One line each, for people. */
  readonly lines: readonly string[];
}
