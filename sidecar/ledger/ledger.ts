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

/** A claim that is held: proof of it is `revision`. Every method but `held` gives false when the claim is no longer ours (fenced). */
export interface Claim {
  readonly id: string;
  /** Hand-overs so far, this one included. */
  readonly tries: number;
  /** False as soon as it is known to be lost. Extended in the background, confirmed, until it is settled or lost. */
  readonly held: boolean;
  /** Called once when the claim is lost while work goes on; the work is to be stopped. */
  onLost: (() => void) | null;
  /** Records the result; `kept: false` when it was too large to be kept (the record says so). False = fenced, or unreachable for longer than it may. */
  done(result: KeptResult): Promise<'stored' | 'too_large' | 'fenced' | 'unreachable'>;
  /** It provably did not start, or was definitively refused: the key is free again; tries are remembered when `countsAsTry`. */
  release(countsAsTry: boolean): Promise<boolean>;
  /** It may have been carried out: nobody runs it again by itself. */
  unknown(detail: string): Promise<boolean>;
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
}

export type Claimed =
  | { readonly kind: 'claimed'; readonly claim: Claim }
  /** Recorded before: the same answer again. */
  | { readonly kind: 'done'; readonly result: KeptResult; readonly taskId: string }
  /** Somebody works on it; ask again after `againInMs`. */
  | { readonly kind: 'executing'; readonly againInMs: number; readonly taskId: string; readonly worker: string }
  /** Its worker vanished, and the work may not be started again: in doubt. `moved`: this very call has put it there. */
  | { readonly kind: 'in_doubt'; readonly moved: boolean; readonly taskId: string; readonly tries: number; readonly worker: string }
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
