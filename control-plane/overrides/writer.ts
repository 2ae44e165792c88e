/**
 * Writes the list of overrides without leading anything: reads it where it is certain, changes it, stores it on condition that
 * nobody has stored another one meanwhile, and begins again where somebody has. An answer that was lost is looked for before
 * anything is done twice. A list that a newer version has written is never written over.
 */
import { randomUUID } from 'node:crypto';
import type { Clock } from '../../base/clock.ts';
import type { Bus } from '../../base/nats.ts';
import type { Random } from '../../base/random.ts';
import { OVERRIDES_WIRE, type OverrideState, readOverrideState } from '../../proto/wire/overrides.ts';
import { OVERRIDE_STREAM, type Subjects } from '../../proto/wire/subjects.ts';
import { overrideStream } from './stream.ts';

/** A list and the sequence under which it is stored; 0 = it is not. */
export interface StoredOverrides {
  readonly state: OverrideState;
  readonly seq: number;
}

export type Written<T> =
  /** What the edit came to, upon this list. */
  { readonly edit: T; readonly stored: StoredOverrides } | { readonly failed: string };

export interface WriterParts {
  readonly bus: Pick<Bus, 'append' | 'lastAtLeader' | 'ensureStream' | 'stream'>;
  readonly subjects: Subjects;
  readonly clock: Clock;
  readonly random: Random;
  readonly replicas: number;
  /** What to begin with when the stream has nothing, or nothing that can be read: what was held last, if anything was. */
  remembered(): OverrideState | null;
}

const TRIES = 12;
const TIMEOUT_MS = 1_000;
const PAUSE_MS = 30;

export class OverrideWriter {
  readonly #parts: WriterParts;

  constructor(parts: WriterParts) {
    this.#parts = parts;
  }

  /** @param edit is called again for each newer list that it meets; one without `state` is not written */
  async change<T extends { readonly state: OverrideState } | object>(edit: (held: OverrideState) => T): Promise<Written<T>> {
    const { bus, subjects } = this.#parts;
    let why = '';
    for (let tries = 0; tries < TRIES; tries++) {
      if (tries > 0) await this.#rest();
      const read = await this.read();
      if ('failed' in read) {
        why = read.failed;
        if (read.isFinal) break;
        continue;
      }
      const edited = edit(read.state);
      if (!('state' in edited)) return { edit: edited, stored: read };
      const { state } = edited;
      const appended = await bus.append(subjects.overrides, Buffer.from(JSON.stringify(state), 'utf8'), {
        expectLastSubjectSeq: read.seq,
        stream: OVERRIDE_STREAM,
        timeoutMs: TIMEOUT_MS,
      });
      if ('seq' in appended) return { edit: edited, stored: { state, seq: appended.seq } };
      why = 'failed' in appended ? appended.failed : 'others write faster';
      // Where it is not known whether it was stored, the next reading shows it: the edit meets its own work.
    }
    return { failed: why };
  }

  /** As the stream's leader has it. A stream that is missing is made. */
  async read(): Promise<StoredOverrides | { readonly failed: string; readonly isFinal: boolean }> {
    const { bus, subjects, replicas } = this.#parts;
    let found = await bus.lastAtLeader(OVERRIDE_STREAM, subjects.overrides, TIMEOUT_MS);
    if (found !== null && 'failed' in found) {
      // One that is there and does not answer stays as it is: `reachctl` does not know how many copies it shall have.
      const there = await bus.stream(OVERRIDE_STREAM);
      if (there !== null) return { failed: 'failed' in there ? there.failed : found.failed, isFinal: false };
      const ready = await bus.ensureStream(overrideStream(subjects, replicas));
      if ('failed' in ready) return { failed: ready.failed, isFinal: false };
      found = await bus.lastAtLeader(OVERRIDE_STREAM, subjects.overrides, TIMEOUT_MS);
    }
    if (found === null) return { state: this.#begun(), seq: 0 };
    if ('failed' in found) return { failed: found.failed, isFinal: false };
    const read = readOverrideState(found.data);
    if (!('problem' in read)) return { state: read, seq: found.seq };
    const remembered = this.#parts.remembered();
    if (remembered === null || speaksNewer(found.data))
      return { failed: `the list of overrides in the stream cannot be read: ${read.problem}`, isFinal: true };
    return { state: { ...remembered, revision: remembered.revision + 1 }, seq: found.seq };
  }

  /** A new life of the stream: what was in force goes on. */
  #begun(): OverrideState {
    return { wire: OVERRIDES_WIRE, epoch: randomUUID(), revision: 0, overrides: this.#parts.remembered()?.overrides ?? [] };
  }

  #rest(): Promise<void> {
    const { clock, random } = this.#parts;
    return new Promise((done) => void clock.after(PAUSE_MS * (0.5 + random.next()), done));
  }
}

function speaksNewer(data: Uint8Array): boolean {
  try {
    const json = JSON.parse(Buffer.from(data).toString('utf8')) as { wire?: unknown } | null;
    return typeof json?.wire === 'number' && json.wire > OVERRIDES_WIRE;
  } catch {
    return false;
  }
}
