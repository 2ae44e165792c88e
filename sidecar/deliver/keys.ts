/**
 * A task's key in the ledger, from the claim on: how it is asked for, and how it is left. Whoever has a claim leaves it in one of
 * these ways, or says that it has nothing more to say; what cannot be written at once the claim goes on writing.
 */
import type { Clock } from '../../base/clock.ts';
import type { Claim, ClaimAsk, KeptResult } from '../ledger/ledger.ts';
import type { Report } from './hand-over.ts';
import type { InHand } from './in-hand.ts';
import type { TaskParts } from './parts.ts';

const RECORD_PAUSE_MS = 500;
/** Longer than a server is away on an ordinary bad day: what is given up here is in doubt afterwards. */
const RECORD_FOR_MS = 300_000;

export function askFor({ envelope, seat, execution }: InHand, parts: Pick<TaskParts, 'ledgerKey'>): ClaimAsk {
  const key = envelope.keyed ? envelope.power_id : envelope.task_id;
  return {
    id: parts.ledgerKey(envelope.source, envelope.capability, key),
    caller: envelope.source,
    capability: envelope.capability,
    version: seat.candidate.version.text,
    payloadHash: envelope.payload_hash,
    execution,
    key,
    taskId: envelope.task_id,
    worker: seat.slots.agentId,
  };
}

/** False = what came of it is not taken: somebody else has the work, or nobody can tell. */
export async function recordDone(task: InHand, claim: Claim, report: Report, clock: Clock): Promise<boolean> {
  const kept: KeptResult = {
    code: report.code,
    status: report.status,
    contentType: report.contentType,
    provider: task.seat.slots.agentId,
    version: task.seat.candidate.version.text,
    detail: report.detail,
    body: report.body,
    leftOutBytes: 0,
    marks: null,
  };
  const until = clock.now() + RECORD_FOR_MS;
  for (;;) {
    const stored = await claim.done(kept);
    if (stored === 'stored' || stored === 'too_large') {
      task.claim = null;
      return true;
    }
    if (stored === 'fenced' || clock.now() > until) return false;
    await new Promise<void>((done) => void clock.after(RECORD_PAUSE_MS, done));
  }
}

/** False when the claim is not ours any more. */
export async function release(task: InHand, countsAsTry: boolean): Promise<boolean> {
  const { claim } = task;
  if (claim === null) return true;
  task.claim = null;
  claim.onLost = null;
  return await claim.release(countsAsTry);
}

/** Its sender was told how it failed: it is not begun again, even if the queue brings it again; the key is free for others. */
export async function endKey(task: InHand): Promise<boolean> {
  const { claim } = task;
  if (claim === null) return true;
  task.claim = null;
  claim.onLost = null;
  return await claim.ended();
}

/** Nobody is to begin it again by itself. */
export async function doubt(task: InHand, detail: string): Promise<boolean> {
  const { claim } = task;
  if (claim === null) return true;
  task.claim = null;
  claim.onLost = null;
  return await claim.unknown(detail);
}

export function abandon(task: InHand): void {
  task.claim?.abandon();
  task.claim = null;
}
