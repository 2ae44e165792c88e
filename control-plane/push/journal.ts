/**
 * Every version of the operators' document, kept in its own stream. Nothing here is read to decide anything; losing it loses
 * memory, not service. Who did what is in the audit log (control-plane/audit).
 */
import type { Bus } from '../../base/nats.ts';
import type { Logger } from '../../base/log.ts';
import { OPERATIONS_STREAM, type Subjects } from '../../proto/wire/subjects.ts';
import type { AppliedDocument } from '../registry/operators.ts';

/** An entry of the history: a document and what was done with it. */
export interface PolicyEntry extends AppliedDocument {
  readonly action: 'apply' | 'stage' | 'rollback' | 'import';
}

const POLICIES = 'policies';
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

  /** A sentence when it could not be kept. */
  async policies(entry: PolicyEntry): Promise<string | null> {
    return this.#append(POLICIES, entry);
  }

  /** Every version that is kept, oldest first. */
  async versions(): Promise<PolicyEntry[] | { readonly failed: string }> {
    const stored = await this.#bus.history(OPERATIONS_STREAM, this.#subjects.ops(POLICIES), MAX_VERSIONS);
    return 'failed' in stored ? stored : stored.map(({ data }) => parse<PolicyEntry>(data)).filter((entry) => entry !== null);
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
