/**
 * The claim on an idempotency key: the last gate before an attempt and the only one that may wait, so that a refused
 * caller cannot fill the ledger. A repeat gets the first answer; a twin waits for it within its own time; another payload, a key
 * that carries another agent's name, or work that nobody knows the end of is refused. Twins in this sidecar are told by each
 * other and ask nobody. What the record is made of is the ledger's (`sidecar/ledger`).
 */
import type { Call } from '../call/call.ts';
import type { Verdict } from '../call/verdict.ts';

export interface Ledger {
  /** Called only for calls with a key. */
  claim(call: Call): Promise<Verdict>;
  /** The call has been decided; the claim becomes done, released or unknown. Ends when that is recorded, or is taking too long to be waited for. */
  record(call: Call): Promise<void>;
  /** As `record`, where nobody waits: a streamed body has ended. Harmless when it has been recorded. */
  settle(call: Call): void;
}
