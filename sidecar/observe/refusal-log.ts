/**
 * Takes refusals to the audit log on NATS, as a chain of this sidecar. While NATS is away so many wait; what finds no room is
 * counted and stands in the process's log alone.
 */
import { type ChainBus, ChainedLog } from '../../base/chained-log.ts';
import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import { type AuditRecord, auditRecord, type AuditSaid, entryHash, entryText, readEntry } from '../../proto/wire/audit.ts';
import { REFUSED_STREAM, type Subjects } from '../../proto/wire/subjects.ts';

type Entry = Omit<AuditRecord, 'n' | 'prev'>;

/** Ten sums of all kinds. */
const MAX_WAITING = 640;
const TIMEOUT_MS = 2_000;

export class RefusalLog {
  readonly #chain: ChainedLog<Entry>;
  readonly #clock: Clock;
  readonly #writer: string;

  constructor(bus: ChainBus, subjects: Subjects, sidecar: string, clock: Clock, log: Logger) {
    this.#clock = clock;
    this.#writer = `sidecar:${sidecar}`;
    this.#chain = new ChainedLog<Entry>({
      bus,
      clock,
      stream: REFUSED_STREAM,
      subject: subjects.audit(sidecar, 'refused'),
      maxWaiting: MAX_WAITING,
      timeoutMs: TIMEOUT_MS,
      firstRetryMs: 500,
      mostRetryMs: 30_000,
      textOf: entryText,
      hashOf: entryHash,
      numberOf: (text) => readEntry(text)?.n ?? null,
      stored: () => {},
      failed: (why) => log.debug({ why }, 'the audit log takes no refusals at present: they wait, and stand in this log'),
    });
  }

  add(said: AuditSaid): void {
    this.#chain.add(auditRecord(said, this.#writer, this.#clock.wallMs()));
  }

  get lost(): number {
    return this.#chain.lost;
  }

  async stop(timeoutMs: number): Promise<void> {
    await this.#chain.flush(timeoutMs);
    this.#chain.close();
  }
}
