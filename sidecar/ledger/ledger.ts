/**
 * The claim on a key, for calls and messages alike: who works on it, and what came of it. One record a key in AR_IDEM, each
 * change conditional on the last one, so that of two who try only one succeeds. What the record promises is R9.5; who may
 * take over what is decided by the users (claim, deliver), the mechanism is here.
 */
import type { Execution } from '../../proto/language/types.ts';

/** What is written into a claim. */
export interface ClaimAsk {
  /** `ledgerKey(source, capability, key)`: one subject token. */
  readonly id: string;
  /** Agent id of the caller. */
  readonly caller: string;
  readonly capability: string;
  readonly version: string;
  readonly payloadHash: string;
  readonly execution: Execution;
  /** For people: the key as given. */
  readonly key: string;
  readonly taskId: string;
  /** Who is going to get it; '' = not known yet. */
  readonly worker: string;
}

/** `lapsed`: nothing was heard of the ledger for a whole lease, so that somebody else may have it; `fenced`: somebody else has. */
export type LostBy = 'lapsed' | 'fenced';

/**
 * A claim that is held. Every method but `held` gives false when the claim is no longer ours (fenced), or when the end could not be
 * written yet: it goes on being written in the background, and the lease is extended no more. Whoever says no end must `abandon` it.
 */
export interface Claim {
  readonly id: string;
  /** Hand-overs so far, this one included. */
  readonly tries: number;
  /** False as soon as it may be lost. Extended in the background, confirmed, until it is settled, lost or abandoned. */
  readonly held: boolean;
  /**
   * Called when the claim is lost while work goes on. Work that others may start again is to be stopped; what nobody starts again
   * may go on after `lapsed`: the ledger decides whether its end is taken, and the claim may be held again.
   */
  onLost: ((by: LostBy) => void) | null;
  /** Records the result; `too_large` when its bytes were not kept (the record says so). */
  done(result: KeptResult): Promise<'stored' | 'too_large' | 'fenced' | 'unreachable'>;
  /** It provably did not start, or was definitively refused: the key is free again; tries are remembered when `countsAsTry`. */
  release(countsAsTry: boolean): Promise<boolean>;
  /** As `release`, and this very task has ended: should the queue bring it again, it is not begun again. */
  ended(): Promise<boolean>;
  /** It may have been carried out: nobody runs it again by itself. */
  unknown(detail: string): Promise<boolean>;
  /** Whoever had it has nothing more to say: the lease runs out. */
  abandon(): void;
}

export interface KeptResult {
  readonly code: number;
  readonly status: number;
  readonly contentType: string;
  readonly provider: string;
  readonly version: string;
  readonly detail: string;
  readonly body: Buffer;
  /** Where the body was too large for the ledger: how many bytes it had. */
  readonly leftOutBytes: number;
  /** null = it has none. */
  readonly marks: KeptMarks | null;
}

/** What an answer said beside its body. */
export interface KeptMarks {
  /** Another capability stood in. */
  readonly degraded: boolean;
  /** `definitely_success`. */
  readonly definitely: boolean;
  /** Of the provider's, those that a repeat gets; null = none. */
  readonly headers: Readonly<Record<string, string>> | null;
}

export type Claimed =
  | { readonly kind: 'claimed'; readonly claim: Claim }
  /** Recorded before: the same answer again. */
  | { readonly kind: 'done'; readonly result: KeptResult; readonly taskId: string }
  /** Somebody works on it; ask again after `againInMs`. */
  | { readonly kind: 'executing'; readonly againInMs: number; readonly taskId: string; readonly worker: string }
  /** Its worker vanished, and the work may not be started again: in doubt. `moved`: this very call has put it there. */
  | { readonly kind: 'in_doubt'; readonly moved: boolean; readonly taskId: string; readonly tries: number; readonly worker: string }
  /** This very task has ended, and its sender was told how. */
  | { readonly kind: 'ended' }
  /** Used with another payload. */
  | { readonly kind: 'reused'; readonly why: string }
  | { readonly kind: 'full'; readonly why: string }
  | { readonly kind: 'unreachable'; readonly why: string };

export interface TaskLedger {
  /** @param tries hand-overs known from elsewhere (a first one that was not recorded). */
  claim(ask: ClaimAsk, tries?: number): Promise<Claimed>;
  /** What is recorded, without claiming. */
  look(id: string): Promise<Claimed | null>;
  close(): Promise<void>;
}
