/** What the API says of the audit log. */
import type { AuditRecord } from '../../proto/wire/audit.ts';

/** `id`: `a` (what operators did) or `r` (what was refused), and its position. */
export type AuditView = AuditRecord & { readonly id: string; readonly stored_at_ms: number };

export interface AuditAnswer {
  readonly entries: readonly AuditView[];
  readonly next: string | null;
  readonly looked: number;
}
