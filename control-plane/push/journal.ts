/**
 * What operators did, kept in its own stream: every version of their document, and who did what when, with the state
 * before and after. Nothing here is read to decide anything; losing it loses memory, not service.
 */
import type { Bus } from '../../base/nats.ts';
import type { Logger } from '../../base/log.ts';
import { OPERATIONS_STREAM, type Subjects } from '../../proto/wire/subjects.ts';
import type { AppliedDocument } from '../registry/operators.ts';

export interface AuditEntry {
  /** Wall clock, milliseconds. */
  readonly atMs: number;
  readonly who: string;
  /** Such as `provider.drain`, `policies.apply`. */
  readonly what: string;
  /** The provider, capability or version that it was done to; '' = the whole. */
  readonly target: string;
  readonly before: unknown;
  readonly after: unknown;
  readonly reason: string;
}

/** An entry of the history: a document and what was done with it. */
export interface PolicyEntry extends AppliedDocument {
  readonly action: 'apply' | 'stage' | 'rollback' | 'import';
}

const POLICIES = 'policies';
const AUDIT = 'audit';
const MAX_VERSIONS = 10_000;

export class Journal {
  readonly #bus: Bus;
  readonly #subjects: Subjects;
  readonly #logger: Logger;

  constructor(bus: Bus, subjects: Subjects, logger: Logger) {
    this.#bus = bus;
    this.#subjects = subjects;
    this.#logger = logger;
  }

  /** Also a line in the log, so that it is seen when NATS does not take it. */
  async audit(entry: AuditEntry): Promise<void> {
    this.#logger.info({ audit: { who: entry.who, what: entry.what, target: entry.target, reason: entry.reason } }, 'an operator acted');
    await this.#append(AUDIT, entry);
  }

  /** A sentence when it could not be kept. */
  async policies(entry: PolicyEntry): Promise<string | null> {
    return this.#append(POLICIES, entry);
  }

  /** Every version that is kept, oldest first. */
  async versions(): Promise<PolicyEntry[] | { readonly failed: string }> {
    const stored = await this.#bus.history(OPERATIONS_STREAM, this.#subjects.ops(POLICIES), MAX_VERSIONS);
    return 'failed' in stored ? stored : stored.map(({ data }) => parse<PolicyEntry>(data)).filter((entry) => entry !== null);
  }

  /** The newest entries, newest first. */
  async audits(limit: number): Promise<AuditEntry[] | { readonly failed: string }> {
    const subject = this.#subjects.ops(AUDIT);
    const last = await this.#bus.last(OPERATIONS_STREAM, subject);
    if (last === null) return [];
    if ('failed' in last) return last;
    // Other entries stand between them, so one looks further back until there are enough.
    for (let back = limit; ; back *= 4) {
      const from = Math.max(1, last.seq - back);
      const stored = await this.#bus.history(OPERATIONS_STREAM, subject, back + 1, from);
      if ('failed' in stored) return stored;
      if (stored.length < limit && from > 1) continue;
      return stored
        .slice(-limit)
        .reverse()
        .map(({ data }) => parse<AuditEntry>(data))
        .filter((entry) => entry !== null);
    }
  }

  async #append(tail: string, entry: unknown): Promise<string | null> {
    const appended = await this.#bus.append(this.#subjects.ops(tail), Buffer.from(JSON.stringify(entry), 'utf8'), {
      stream: OPERATIONS_STREAM,
    });
    if ('seq' in appended) return null;
    const why = 'failed' in appended ? appended.failed : 'refused';
    this.#logger.error({ why, entry: tail }, 'what an operator did could not be kept in the journal');
    return why;
  }
}

function parse<T>(data: Buffer): T | null {
  try {
    return JSON.parse(data.toString('utf8')) as T;
  } catch {
    return null;
  }
}
