/**
 * Up to where each agent has acknowledged its inbox, kept in the ledger's stream: one small record an agent, found by whichever
 * sidecar it is at home with. Written a moment after it has risen, and only so many a second over all agents: what is lost with
 * a killed process is given to the agent again, which is what acknowledging late means everywhere.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import { parseJson } from '../../base/jetstream.ts';
import type { Logger } from '../../base/log.ts';
import type { Bus } from '../../base/nats.ts';
import { MESSAGE_WIRE } from '../../proto/wire/envelope.ts';
import { floorKey } from '../../proto/wire/ledger-key.ts';
import type { FloorRecord } from '../../proto/wire/messages.ts';
import { LEDGER_STREAM, type Subjects } from '../../proto/wire/subjects.ts';
import type { Box } from './box.ts';

/** A floor that has risen is written so much later; what comes meanwhile costs nothing more. */
const EVERY_MS = 100;
/** Records at a time: at most this many times ten a second. */
const AT_ONCE = 50;
const READ_MS = 3_000;
const WRITE_MS = 2_000;
/** After a failure. */
const AGAIN_MS = 1_000;

export interface FloorParts {
  readonly bus: Pick<Bus, 'last' | 'append'>;
  readonly subjects: Subjects;
  readonly clock: Clock;
  readonly log: Logger;
}

export class Floors {
  readonly #parts: FloorParts;
  readonly #dirty = new Set<Box>();
  #timer: Timer | null = null;
  #writing: Promise<void> | null = null;
  #trouble = '';

  constructor(parts: FloorParts) {
    this.#parts = parts;
  }

  /** Null: the floor is known. Otherwise why it cannot be. */
  load(box: Box): Promise<string | null> | null {
    if (box.floor >= 0) return null;
    box.loading ??= this.#load(box).finally(() => {
      box.loading = null;
    });
    return box.loading;
  }

  /** True when it has risen. */
  raise(box: Box, seq: number): boolean {
    if (seq <= box.floor) return false;
    box.floor = seq;
    this.#soon(box);
    return true;
  }

  /** What it was kept for is gone. */
  reset(box: Box): void {
    if (box.floor <= 0) return;
    box.floor = 0;
    this.#soon(box);
  }

  /** Writes what has not been written, for as long as this at most. */
  async flush(withinMs: number): Promise<void> {
    const { clock } = this.#parts;
    this.#timer?.cancel();
    this.#timer = null;
    const until = clock.now() + withinMs;
    while ((this.#dirty.size > 0 || this.#writing !== null) && clock.now() < until) {
      const written = this.#writing ?? this.#write();
      await Promise.race([written, new Promise<void>((done) => void clock.after(until - clock.now(), done))]);
      if (this.#trouble !== '') return;
    }
  }

  #soon(box: Box): void {
    box.isFloorDirty = true;
    this.#dirty.add(box);
    this.#later(EVERY_MS);
  }

  #later(ms: number): void {
    if (this.#writing !== null) return;
    this.#timer ??= this.#parts.clock.after(ms, () => {
      this.#timer = null;
      void this.#write();
    });
  }

  #write(): Promise<void> {
    this.#writing = this.#writeSome().finally(() => {
      this.#writing = null;
      if (this.#dirty.size > 0) this.#later(this.#trouble === '' ? EVERY_MS : AGAIN_MS);
    });
    return this.#writing;
  }

  async #writeSome(): Promise<void> {
    const boxes: Box[] = [];
    for (const box of this.#dirty) {
      if (boxes.length >= AT_ONCE) break;
      boxes.push(box);
      this.#dirty.delete(box);
    }
    const problems = await Promise.all(boxes.map((box) => this.#store(box)));
    const problem = problems.find((each) => each !== null) ?? '';
    if (problem !== '' && this.#trouble === '')
      this.#parts.log.warn({ why: problem }, 'acknowledged positions of inboxes cannot be written; trying again');
    this.#trouble = problem;
  }

  /** Null when it is written. */
  async #store(box: Box): Promise<string | null> {
    const { bus, subjects } = this.#parts;
    box.isFloorDirty = false;
    const { agent, floor } = box;
    const record: FloorRecord = { wire: MESSAGE_WIRE, kind: 'floor', agent, seq: floor };
    const stored = await bus.append(subjects.idem(floorKey(agent)), Buffer.from(JSON.stringify(record), 'utf8'), {
      stream: LEDGER_STREAM,
      expectLastSubjectSeq: box.floorRevision,
      timeoutMs: WRITE_MS,
    });
    if ('seq' in stored) {
      box.floorRevision = stored.seq;
      return null;
    }
    box.isFloorDirty = true;
    this.#dirty.add(box);
    if ('failed' in stored) return stored.failed;
    // Another home of the agent was faster, or our own write had got there after all.
    return await this.#load(box);
  }

  async #load(box: Box): Promise<string | null> {
    const { bus, subjects } = this.#parts;
    const found = await bus.last(LEDGER_STREAM, subjects.idem(floorKey(box.agent)), READ_MS);
    if (found !== null && 'failed' in found) return found.failed;
    box.floorRevision = found === null ? 0 : found.seq;
    const record = found === null ? null : (parseJson(found.data) as unknown as FloorRecord | null);
    const seq = record !== null && record.agent === box.agent && Number.isSafeInteger(record.seq) ? record.seq : 0;
    box.floor = Math.max(box.floor, seq, 0);
    return null;
  }
}
