/**
 * The inboxes of the agents that are at home with this sidecar, put together: what comes is told to whoever follows the tasks,
 * lies in memory for a while (bounded in time, number and bytes, per agent and in all), and is given to the agents by position.
 * What memory has no more, the stream has for its 24 hours. Nothing is forgotten by being read: an agent that comes back reads
 * from wherever it was.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { Bus } from '../../base/nats.ts';
import type { Delivery } from '../../base/puller.ts';
import { ack } from '../../base/puller.ts';
import type { InboxMessage, TaskEvent } from '../../proto/wire/messages.ts';
import type { Subjects } from '../../proto/wire/subjects.ts';
import type { StageSpans } from '../call/stage-spans.ts';
import type { InboxSettings } from '../messages-config.ts';
import type { Asking } from './asking.ts';
import { Box } from './box.ts';
import type { InboxDoor, InboxEntry, InboxFollowing, InboxPage, InboxReader, InboxRefusal } from './door.ts';
import { Ended } from './ended.ts';
import { Entry, FORGED, isForged, type Read, readMessage } from './entry.ts';
import { Floors } from './floors.ts';
import { Following } from './following.ts';
import { History } from './history.ts';
import { tellGiven } from './inbox-span.ts';
import { Positions, refused } from './positions.ts';
import { Pump } from './pump.ts';
import { Unacknowledged } from './unacknowledged.ts';
import { WaitUntil } from './wait-until.ts';

export interface InboxParts {
  readonly bus: Bus;
  readonly subjects: Subjects;
  readonly clock: Clock;
  readonly log: Logger;
  readonly sidecar: string;
  readonly settings: InboxSettings;
  /** A final state, with the result's bytes. It may be told more than once. */
  noted(event: TaskEvent, body: Buffer | null, agent: string): void;
  /** Whether a message may be in this agent's inbox: anybody who may write to the stream has put it there. */
  isLetIn(message: InboxMessage, agent: string): boolean;
  /** A message is there, or was not let in; whoever sent it wants to know. It may be told more than once. */
  arrived(message: InboxMessage, agent: string, isLetIn: boolean): void;
  /** Spans of what is given to agents; absent or null = no traces are made. */
  readonly stages?: StageSpans | null;
}

const SWEEP_MS = 1_000;
const MOST_ARRIVED = 10_000;
/** Requests of one agent that are woken when something comes. */
const MAX_WAITERS = 16;
const FLUSH_MS = 1_000;
/** Between two looks at what the control plane has, while it is not certain that everything comes here. */
const LOOK_MS = 1_000;

export class Inbox implements InboxDoor {
  readonly #parts: InboxParts;
  readonly #boxes = new Map<string, Box>();
  readonly #pump: Pump;
  readonly #floors: Floors;
  readonly #positions: Positions;
  readonly #unacknowledged: Unacknowledged;
  /** Of all boxes, the oldest first; with where they are. */
  #queue: { readonly box: Box; readonly entry: Entry }[] = [];
  #first = 0;
  #bytes = 0;
  readonly #ended = new Ended();
  /** Messages whose senders have been told, the latest. */
  readonly #arrived = new Set<number>();
  /** The highest position that was dropped out of a box which is not there any more. */
  #forgottenTo = 0;
  #timer: Timer | null = null;
  #isClosed = false;

  constructor(parts: InboxParts) {
    const { bus, subjects, clock, log, sidecar, settings } = parts;
    this.#parts = parts;
    this.#floors = new Floors({ bus, subjects, clock, log });
    this.#unacknowledged = new Unacknowledged(bus, settings.unacknowledged);
    this.#pump = new Pump({
      bus,
      clock,
      log,
      sidecar,
      take: (delivery, isNew) => this.#take(delivery, isNew),
      atMost: (most) => this.#unacknowledged.within(most),
      missed: () => this.#missed(),
      restarted: () => this.#restarted(),
    });
    this.#positions = new Positions(
      this.#pump,
      new History({ bus, subjects, clock, sidecar, isLetIn: (message, agent) => parts.isLetIn(message, agent) }),
      this.#floors,
    );
  }

  /** Bytes in memory. */
  get bytes(): number {
    return this.#bytes;
  }

  start(): void {
    this.#pump.start();
    this.#sweepLater();
  }

  /** Readers are told that this sidecar stops; nobody waits for anything new from now on. */
  leave(): void {
    this.#isClosed = true;
    for (const box of this.#boxes.values()) {
      box.follower?.closing();
      box.tell();
    }
  }

  /** What was acknowledged is written down. The bus must still be there. */
  async close(): Promise<void> {
    this.leave();
    this.#timer?.cancel();
    this.#pump.close();
    this.#unacknowledged.giveBack();
    await this.#floors.flush(FLUSH_MS);
  }

  async read(agent: string, from: number | null, limit: number, waitMs: number, asking?: Asking): Promise<InboxPage> {
    const box = this.#boxOf(agent);
    const { clock } = this.#parts;
    const begun = await this.#positions.begin(box, from);
    if (!begun.ok) return begun;
    const until = clock.now() + waitMs;
    let { at } = begun;
    for (;;) {
      if (asking?.isGone === true) return { ok: true, entries: [], next: begun.at, floor: box.floor };
      const hot = this.#positions.hot(box, at, limit);
      const came = hot ?? (await this.#positions.step(box, at, limit));
      if (!came.ok) return came;
      if (came.entries.length > 0) {
        const next = (came.entries.at(-1) as InboxEntry).seq + 1;
        this.#gave(box, came.entries);
        box.given = Math.max(box.given, next - 1);
        return { ok: true, entries: came.entries, next, floor: box.floor };
      }
      const isFurther = came.at > at;
      at = came.at;
      const isCertain = at >= this.#positions.completeFrom(box);
      // A page of the stream may hold nothing but what is passed over.
      if (hot === null && (isCertain || isFurther)) continue;
      const left = until - clock.now();
      if (left <= 0 || this.#isClosed) return { ok: true, entries: came.entries, next: begun.at, floor: box.floor };
      // One too many looks now and then by itself; were it answered at once, it would ask again at once.
      const isTold = box.waiters.size < MAX_WAITERS;
      const waiting = new WaitUntil(isTold ? box.waiters : new Set(), clock, isCertain && isTold ? left : Math.min(left, LOOK_MS));
      if (asking !== undefined) asking.waiting = waiting;
      await waiting.promise;
    }
  }

  async follow(agent: string, from: number | null, reader: InboxReader): Promise<InboxFollowing | InboxRefusal> {
    const box = this.#boxOf(agent);
    const begun = await this.#positions.begin(box, from);
    if (!begun.ok) return begun;
    if (this.#isClosed) return refused('unreachable', 0, 'this sidecar stops');
    const following = new Following(box, begun.at, reader, this.#positions, this.#parts.clock, (entry) => this.#gaveOne(box, entry));
    const former = box.follower;
    box.follower = following;
    former?.replaced();
    return following;
  }

  async acknowledge(agent: string, seq: number): Promise<{ readonly ok: true; readonly floor: number } | InboxRefusal> {
    if (!Number.isSafeInteger(seq) || seq < 1)
      return refused('invalid', 0, `what is acknowledged is a position, a whole number from 1 on, not ${String(seq).slice(0, 40)}`);
    const box = this.#boxOf(agent);
    const problem = await this.#floors.load(box);
    if (problem !== null) return refused('unreachable', 0, `where the agent stands is not known now: ${problem}`);
    if (seq > box.known) {
      // Given to it by the process before this one, or nothing that it has had.
      const begun = await this.#positions.begin(box, seq + 1);
      if (!begun.ok) return begun;
    }
    if (this.#floors.raise(box, seq)) this.#unacknowledged.upTo(box, seq);
    return { ok: true, floor: box.floor };
  }

  // ---- what comes

  #take(delivery: Delivery, isNew: boolean): void {
    const { bus, clock, subjects } = this.#parts;
    const { streamSeq: seq } = delivery;
    const { agent = '', writer = null } = subjects.inboxPlace(delivery.subject) ?? {};
    // A copy: the bytes are a view into whatever the bus received.
    const read = agent === '' ? null : readMessage(isNew ? Buffer.from(delivery.data) : delivery.data);
    if (read === null) {
      this.#parts.log.warn({ seq, agent }, 'an entry of an inbox cannot be read, and is passed over');
      ack(bus, delivery);
      return;
    }
    const { head } = read;
    if (isForged(read, writer)) {
      this.#parts.log.error({ seq, agent, writer, task: head.task_id }, FORGED);
      ack(bus, delivery);
      return;
    }
    if (head.kind === 'message') {
      const isLetIn = this.#parts.isLetIn(head, agent);
      // Also one that comes out of turn, after a break; not each time that the server brings it again.
      if (!this.#arrived.has(seq)) {
        this.#arrived.add(seq);
        if (this.#arrived.size > MOST_ARRIVED) this.#arrived.delete(this.#arrived.values().next().value as number);
        this.#parts.arrived(head, agent, isLetIn);
      }
      if (!isLetIn) {
        this.#parts.log.warn(
          { seq, agent, source: head.source },
          'a message is not let into an inbox: its sender may ask the agent for nothing',
        );
        ack(bus, delivery);
        return;
      }
    } else if (this.#ended.isRepeat(head, seq)) {
      this.#parts.log.info({ seq, agent, task: head.task_id }, 'a task has ended a second time: its sender is not told again');
      ack(bus, delivery);
      return;
    }
    const box = this.#boxOf(agent);
    const now = clock.now();
    const isHeld = seq > box.floor;
    if (isHeld && !this.#unacknowledged.add(box, seq, delivery.ackSubject, now)) return;
    if (!isHeld) ack(bus, delivery);
    if (isNew) this.#append(box, this.#entryOf(seq, read, now, delivery.storedAtMs));
    if (head.kind === 'state') {
      const at = read.headBytes + 1;
      this.#parts.noted(head, at < read.data.length ? read.data.subarray(at) : null, agent);
    }
    if (isNew) box.tell();
  }

  #entryOf(seq: number, read: Read, now: number, storedAtMs: number): Entry {
    const entry = new Entry(seq, read, now);
    if (this.#parts.stages != null) entry.toTell = { head: read.head, storedAtMs };
    return entry;
  }

  #gave(box: Box, entries: readonly Entry[]): void {
    if (this.#parts.stages != null) for (const entry of entries) this.#gaveOne(box, entry);
  }

  /** What was given or acknowledged before is read again, and told no more. */
  #gaveOne(box: Box, entry: Entry): void {
    const { stages, clock } = this.#parts;
    if (stages == null || entry.toTell === null || entry.seq <= box.given || entry.seq <= box.floor) return;
    tellGiven(stages, entry, box.agent, clock.now());
  }

  #append(box: Box, entry: Entry): void {
    const { settings } = this.#parts;
    this.#positions.completeFrom(box);
    box.append(entry);
    this.#bytes += entry.bytes;
    this.#queue.push({ box, entry });
    while (box.count > settings.agentCount || (box.bytes > settings.agentBytes && box.count > 1)) this.#dropFrom(box);
    while (this.#bytes > settings.bytes && this.#dropFirst());
  }

  #dropFrom(box: Box): void {
    const entry = box.dropOldest();
    if (entry === null) return;
    this.#bytes -= entry.bytes;
    // In the stream still; what is held back at the server is what memory has.
    this.#unacknowledged.release(entry.seq);
  }

  /** The oldest of all; false when there is none. */
  #dropFirst(): boolean {
    while (this.#first < this.#queue.length) {
      const { box, entry } = this.#queue[this.#first++] as { box: Box; entry: Entry };
      if (entry.isGone) continue;
      this.#dropFrom(box);
      this.#compact();
      return true;
    }
    this.#compact();
    return false;
  }

  #compact(): void {
    if (this.#first < COMPACT || this.#first * 2 < this.#queue.length) return;
    this.#queue = this.#queue.slice(this.#first);
    this.#first = 0;
  }

  #missed(): void {
    for (const box of this.#boxes.values()) box.tell();
  }

  #restarted(): void {
    this.#parts.log.warn('the stream of inboxes has been made anew: what was in it before is gone, and positions begin anew');
    this.#unacknowledged.clear();
    this.#arrived.clear();
    this.#ended.clear();
    for (const box of this.#boxes.values()) {
      while (box.dropOldest() !== null);
      box.pending = [];
      box.given = 0;
      box.completeFrom = Number.POSITIVE_INFINITY;
      this.#floors.reset(box);
      box.follower?.closing();
    }
    this.#bytes = 0;
    this.#queue = [];
    this.#first = 0;
    this.#forgottenTo = 0;
  }

  // ---- upkeep

  #sweepLater(): void {
    this.#timer = this.#parts.clock.after(SWEEP_MS, () => {
      this.#sweep(this.#parts.clock.now());
      this.#sweepLater();
    });
  }

  #sweep(now: number): void {
    const { hotMs } = this.#parts.settings;
    for (;;) {
      const head = this.#queue[this.#first];
      if (head === undefined || (!head.entry.isGone && now - head.entry.takenAt < hotMs)) break;
      if (head.entry.isGone) this.#first++;
      else this.#dropFirst();
    }
    this.#compact();
    this.#unacknowledged.extend(now, this.#pump.tellEveryMs);
    for (const [agent, box] of this.#boxes) {
      // Its floor has become known after they came.
      if (box.pending.length > 0 && (box.pending[0] as number) <= box.floor) this.#unacknowledged.upTo(box, box.floor);
      const isIdle = box.count === 0 && box.follower === null && box.waiters.size === 0 && box.loading === null && !box.isFloorDirty;
      if (!isIdle || now - box.usedAt < hotMs) continue;
      this.#boxes.delete(agent);
      if (box.completeFrom !== Number.POSITIVE_INFINITY) this.#forgottenTo = Math.max(this.#forgottenTo, box.completeFrom - 1);
    }
  }

  #boxOf(agent: string): Box {
    const { clock } = this.#parts;
    let box = this.#boxes.get(agent);
    if (box === undefined) {
      const { coverage, epoch } = this.#pump;
      box = new Box(agent, Math.max(coverage, this.#forgottenTo + 1), epoch, clock.now());
      this.#boxes.set(agent, box);
    } else box.usedAt = clock.now();
    return box;
  }
}

const COMPACT = 1_024;
