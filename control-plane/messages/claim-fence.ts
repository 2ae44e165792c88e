/**
 * Holds the key of a task that waits in the queue while a person moves it or takes it out: a worker that comes online in that moment
 * finds it held, and of work that may be started once there is no second start. It is taken like a worker's claim, by
 * compare-and-set, and left as ended (whoever still has the message lets go of it) or as it was. If this process dies meanwhile it lapses as
 * a worker's does, and once work is in doubt, which is what it is then.
 */
import { LEDGER_WIRE, ledgerKey } from '../../proto/wire/ledger-key.ts';
import type { Envelope } from '../../proto/wire/envelope.ts';
import { LEDGER_STREAM } from '../../proto/wire/subjects.ts';
import { parse } from '../push/json.ts';
import type { MessageParts } from './parts.ts';

const LEASE_MS = 15_000;
/** No agent is called so. */
const OPERATOR = 'operator ';
const MAX_SEEN = 10_000;
const NEWLINE = 0x0a;

export interface Fence {
  readonly subject: string;
  readonly seq: number;
  readonly head: Readonly<Record<string, unknown>>;
}

export class ClaimFence {
  readonly #parts: MessageParts;
  /** Those of others, with when they were seen here first. */
  readonly #seen = new Map<string, { readonly seq: number; readonly at: number }>();

  constructor(parts: MessageParts) {
    this.#parts = parts;
  }

  /** `ended`: it is done with, and only lies there. A sentence when it may have been begun, or that cannot be known. */
  async take(envelope: Envelope, who: string): Promise<Fence | string> {
    const { bus, subjects, random } = this.#parts;
    const { source, capability, keyed, power_id, task_id } = envelope;
    const key = keyed ? power_id : task_id;
    const subject = subjects.idem(ledgerKey(source, capability, key));
    const before = await bus.lastAtLeader(LEDGER_STREAM, subject);
    if (before !== null && 'failed' in before) return before.failed;
    const known = before === null ? null : headOf(before.data);
    if (before !== null) {
      const said = known?.['state'];
      const state = typeof said === 'string' ? said : 'unreadable';
      if (state === 'executing' && isOperators(known?.['worker'])) {
        if (!this.#isLapsed(subject, before.seq)) return `somebody else is moving it: look again in ${LEASE_MS / 1_000} s`;
      } else if (state !== 'released') return `it may have been begun: its claim is ${state}`;
      if (known?.['ended'] === true && known['task'] === task_id) return 'ended';
    }
    const head = {
      wire: LEDGER_WIRE,
      key,
      caller: source,
      capability,
      version: envelope.version ?? '',
      hash: envelope.payload_hash,
      execution: 'idempotent',
      tries: 0,
      ...known,
      worker: `${OPERATOR}${who}`,
      task: task_id,
      state: 'executing',
      ended: false,
      nonce: `operator.${Math.floor(random.next() * 2 ** 48).toString(36)}`,
      step: 0,
      lease_ms: LEASE_MS,
    };
    const stored = await bus.append(subject, lineOf(head), { stream: LEDGER_STREAM, expectLastSubjectSeq: before?.seq ?? 0 });
    if ('seq' in stored) return { subject, seq: stored.seq, head };
    return 'failed' in stored ? stored.failed : 'it may have been begun: somebody has just claimed it';
  }

  /** One that has stood unchanged for the whole of a lease, by our own steady clock, is nobody's any more. */
  #isLapsed(subject: string, seq: number): boolean {
    const now = this.#parts.clock.now();
    const seen = this.#seen.get(subject);
    if (seen !== undefined && seen.seq === seq) return now - seen.at >= LEASE_MS;
    if (this.#seen.size >= MAX_SEEN) this.#seen.clear();
    this.#seen.set(subject, { seq, at: now });
    return false;
  }

  /** @param isGone the task is not where it was: whoever still has it there lets go. False: it is as it was before. */
  async leave({ subject, seq, head }: Fence, isGone: boolean): Promise<void> {
    const left = { ...head, state: 'released', step: 1, ended: isGone };
    await this.#parts.bus.append(subject, lineOf(left), { stream: LEDGER_STREAM, expectLastSubjectSeq: seq });
  }
}

function isOperators(worker: unknown): boolean {
  return typeof worker === 'string' && worker.startsWith(OPERATOR);
}

function headOf(record: Buffer): Readonly<Record<string, unknown>> | null {
  const at = record.indexOf(NEWLINE);
  return parse(at < 0 ? record : record.subarray(0, at)) as Readonly<Record<string, unknown>> | null;
}

function lineOf(head: object): Buffer {
  return Buffer.from(`${JSON.stringify(head)}\n`, 'utf8');
}
