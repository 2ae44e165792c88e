/**
 * Entries that are not in the hot copy, read from the stream by the control plane: a sidecar may not read streams, and the
 * control plane answers each about its own agents only.
 */
import type { Clock } from '../../base/clock.ts';
import { parseJson } from '../../base/jetstream.ts';
import type { Bus } from '../../base/nats.ts';
import { replyWords } from '../../base/bus-message.ts';
import { MESSAGE_WIRE } from '../../proto/wire/envelope.ts';
import type { InboxMessage, TaskAnswer, TaskAsk } from '../../proto/wire/messages.ts';
import type { Subjects } from '../../proto/wire/subjects.ts';
import { Entry, isForged, readMessage } from './entry.ts';

export interface HistoryPage {
  readonly entries: readonly Entry[];
  /** There is more behind the last one. */
  readonly more: boolean;
  /** Up to here everything has been looked at, also what is passed over; 0 = nothing. */
  readonly through: number;
  /** Of the stream: what is before is gone, what is after is ahead. */
  readonly first: number;
  readonly last: number;
}

const ASK_MS = 5_000;
/** Questions at once: after a restart all agents ask, and the control plane has other things to do. */
const AT_ONCE = 32;

export interface HistoryParts {
  readonly bus: Pick<Bus, 'request'>;
  readonly subjects: Subjects;
  readonly clock: Clock;
  readonly sidecar: string;
  readonly isLetIn: (message: InboxMessage, agent: string) => boolean;
}

export class History {
  readonly #parts: HistoryParts;
  readonly #waiting: (() => void)[] = [];
  #underway = 0;

  constructor(parts: HistoryParts) {
    this.#parts = parts;
  }

  /** Words when it cannot be read. */
  async read(agent: string, from: number, limit: number): Promise<HistoryPage | string> {
    if (this.#underway >= AT_ONCE) await new Promise<void>((go) => this.#waiting.push(go));
    else this.#underway++;
    try {
      return await this.#read(agent, from, limit);
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#underway--;
      else next();
    }
  }

  async #read(agent: string, from: number, limit: number): Promise<HistoryPage | string> {
    const { bus, subjects, clock, sidecar, isLetIn } = this.#parts;
    const ask: TaskAsk = { wire: MESSAGE_WIRE, what: 'inbox', sidecar, agent, from, limit };
    const reply = await bus.request(subjects.ctl('task'), Buffer.from(JSON.stringify(ask), 'utf8'), ASK_MS);
    if (reply.kind !== 'ok') return replyWords(reply, 'asking the control plane for older entries');
    const answer = parseJson(reply.message.data) as unknown as TaskAnswer | null;
    if (answer === null) return 'the control plane answers nothing that can be read';
    if (!answer.ok) return answer.why;
    if (answer.what !== 'inbox') return 'the control plane answers something else';
    const entries: Entry[] = [];
    for (const { seq, data, writer = null } of answer.entries) {
      const read = readMessage(Buffer.from(data, 'base64'));
      if (read === null || isForged(read, writer) || (read.head.kind === 'message' && !isLetIn(read.head, agent))) continue;
      const entry = new Entry(seq, read, clock.now());
      // When it was stored is not said; when it was written is.
      entry.toTell = { head: read.head, storedAtMs: read.head.kind === 'state' ? read.head.at_ms : read.head.accepted_at_ms };
      entries.push(entry);
    }
    return { entries, more: answer.more, through: answer.entries.at(-1)?.seq ?? 0, first: answer.first, last: answer.last };
  }
}
