/**
 * The claim on an idempotency key: the last gate before an attempt and the only one that may wait, so that a refused
 * caller cannot fill the ledger. Until durable messages bring the ledger, a key is passed on to the provider and nothing
 * more is promised; the trace says so.
 */
import type { Call } from '../call/call.ts';
import { passing, Verdict } from '../call/verdict.ts';

export interface Ledger {
  /** Called only for calls with a key. */
  claim(call: Call): Promise<Verdict>;
  /** The call has ended with `call.code`; the claim becomes done, released or unknown. */
  settle(call: Call): void;
}

const notKept = passing(
  'claim',
  'not_kept',
  'the key is passed to the provider; no ledger is configured, so repeats are not recognised here',
);

export const nullLedger: Ledger = {
  claim: () => Promise.resolve(new Verdict(notKept)),
  settle: () => undefined,
};
