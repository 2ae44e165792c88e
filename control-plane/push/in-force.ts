/**
 * Which list of overrides is in force at which sidecar, from what they say the moment it is, and in every report. What was said
 * last by the newest process of a sidecar counts: one that was restarted may have begun with an older list.
 */
import type { InForce, RefusedList } from '../../proto/wire/overrides.ts';
import type { Report } from '../../proto/wire/registry.ts';

interface Said {
  readonly instance: string;
  readonly epoch: string;
  readonly seq: number;
  readonly refused: RefusedList | null;
  /** It is of a version that knows overrides. */
  readonly knows: boolean;
}

const MAX_SIDECARS = 100_000;

export class InForceBook {
  /** The list that everybody is to have. */
  epoch = '';
  seq = 0;
  /** It has no override: who has never had a list has it in force. */
  isEmpty = true;
  readonly #said = new Map<string, Said>();
  /** Called after each word of a sidecar. */
  readonly onSaid = new Set<(sidecar: string) => void>();

  take({ sidecar, instance, epoch, seq, refused }: InForce): void {
    this.#put(sidecar, { instance, epoch, seq, refused: refused ?? null, knows: true });
  }

  report({ sidecar, instance, overrides }: Report): void {
    this.#put(sidecar, {
      instance,
      epoch: overrides?.epoch ?? '',
      seq: overrides?.seq ?? 0,
      refused: overrides?.refused ?? null,
      knows: overrides !== undefined,
    });
  }

  forget(sidecar: string): void {
    this.#said.delete(sidecar);
  }

  /** Null = it has never said. */
  seqOf(sidecar: string): number | null {
    const said = this.#said.get(sidecar);
    return said === undefined || !said.knows ? null : said.seq;
  }

  /** Why a sidecar does not have the list of this sequence (of the present epoch) in force; null = it has. */
  lacks(sidecar: string, seq: number): string | null {
    if (seq === 0) return null;
    const said = this.#said.get(sidecar);
    if (this.isEmpty && (said === undefined || said.seq === 0)) return null;
    if (said === undefined) return 'it has said nothing yet';
    if (!said.knows) return 'it is of a version that knows no overrides';
    if (said.epoch === this.epoch && said.seq >= seq) return null;
    if (said.refused !== null) return `it cannot use the list: ${said.refused.why}`;
    return said.seq === 0 ? 'it has heard of none' : 'it has an older list';
  }

  #put(sidecar: string, said: Said): void {
    const before = this.#said.get(sidecar);
    if (before === undefined && this.#said.size >= MAX_SIDECARS) return;
    this.#said.set(sidecar, said);
    for (const listener of this.onSaid) listener(sidecar);
  }
}
