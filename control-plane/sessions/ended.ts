/**
 * Sessions that were ended early, as the replicas tell one another: one message of AR_CP, which any replica may write (nobody has
 * to lead for a person to sign out), with the sequence it was made from. What somebody else has written meanwhile is taken in and
 * written along. It only ever grows by sessions that are over: whoever hears of one it did not know refuses it from then on.
 */
import type { Clock } from '../../base/clock.ts';
import type { Bus } from '../../base/nats.ts';
import { CONTROL_STREAM, type Subjects } from '../../proto/wire/subjects.ts';
import type { Ended, EndedOf, Sessions } from './sessions.ts';

const WIRE = 1;
const TRIES = 5;
const TIMEOUT_MS = 1_000;
const MAX_OPERATORS = 1_000;

/** What is needed of the bus. */
export type EndedBus = Pick<Bus, 'connected' | 'append' | 'lastAtLeader' | 'subscribe'>;

export interface EndedParts {
  readonly bus: EndedBus;
  readonly subjects: Subjects;
  readonly sessions: Sessions;
  readonly clock: Clock;
}

export class EndedBook {
  readonly #parts: EndedParts;
  #isListening = false;

  constructor(parts: EndedParts) {
    this.#parts = parts;
  }

  /** There is a connection: reads what there is, and hears from then on. */
  async arrive(): Promise<void> {
    const { bus, subjects, sessions } = this.#parts;
    if (!this.#isListening) {
      this.#isListening = true;
      bus.subscribe(subjects.sessions, ({ data }) => sessions.take(readEnded(data)));
    }
    await this.#read();
  }

  /** Writes what was ended here. Null = every replica has it, or will when it starts; else why not. */
  async share(): Promise<string | null> {
    const { bus, subjects, sessions } = this.#parts;
    let why = 'NATS is away';
    for (let left = TRIES; left > 0 && bus.connected; left--) {
      const seq = await this.#read();
      if (seq === null) why = 'NATS does not answer';
      else {
        const data = Buffer.from(JSON.stringify({ wire: WIRE, ended: sessions.ended }), 'utf8');
        const written = await bus.append(subjects.sessions, data, {
          stream: CONTROL_STREAM,
          expectLastSubjectSeq: seq,
          timeoutMs: TIMEOUT_MS,
        });
        if ('seq' in written) return null;
        why = 'failed' in written ? written.failed : 'other replicas write at the same time';
      }
    }
    return `${why}: another replica may still take a copy of the cookie, until the session is over`;
  }

  /** @returns its sequence, 0 = there is none; null = no answer */
  async #read(): Promise<number | null> {
    const { bus, subjects, sessions } = this.#parts;
    const found = await bus.lastAtLeader(CONTROL_STREAM, subjects.sessions, TIMEOUT_MS);
    if (found === null) return 0;
    if ('failed' in found) return null;
    sessions.take(readEnded(found.data));
    return found.seq;
  }
}

/** What cannot be read counts for nothing. */
function readEnded(data: Buffer): Ended {
  let value: unknown;
  try {
    value = JSON.parse(data.toString('utf8')) as unknown;
  } catch {
    return {};
  }
  const { wire, ended } = isMap(value) ? value : {};
  if (wire !== WIRE || !isMap(ended)) return {};
  const read: [string, EndedOf][] = [];
  for (const [name, each] of Object.entries(ended).slice(0, MAX_OPERATORS)) {
    if (!isMap(each) || typeof each['beforeMs'] !== 'number' || !isMap(each['ids'])) continue;
    const ids = Object.entries(each['ids']).filter((pair): pair is [string, number] => typeof pair[1] === 'number');
    read.push([name, { ids: Object.fromEntries(ids), beforeMs: each['beforeMs'] }]);
  }
  return Object.fromEntries(read);
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
