/**
 * Inboxes while this replica leads: each sidecar has one durable consumer for those of all its agents, made when it says
 * hello and taken away long after it is gone and only when nothing waits. When an agent is at home with another sidecar,
 * what it has not acknowledged at the old one is moved: stored in the new home, then taken out of the old one. A crash
 * between the two leaves it in both, and the agent may see it twice, by the same task id; never not at all.
 */
import type { ConsumerSpec } from '../../base/consumer.ts';
import type { Timer } from '../../base/clock.ts';
import { floorKey } from '../../proto/wire/ledger-key.ts';
import { Consumer, type FloorRecord } from '../../proto/wire/messages.ts';
import { INBOX_STREAM, LEDGER_STREAM } from '../../proto/wire/subjects.ts';
import { parse } from '../push/json.ts';
import { forEachOf, type MessageParts } from './parts.ts';

const AT_ONCE = 8;
/** After agents came or went: they come in crowds. */
const MOVE_SOON_MS = 500;
const MOVE_PAGE = 200;
/** Looked at again after so long all the same. */
const SETTLED_MS = 300_000;
const PREFIX = Consumer.inbox('');

export class InboxDesk {
  readonly #parts: MessageParts;
  /** Sidecars whose consumer is known to be there. */
  readonly #ready = new Set<string>();
  readonly #making = new Set<string>();
  /** Old inboxes in which nothing is left to move, with the number of messages that they had then, and when. */
  readonly #settled = new Map<string, { readonly count: number; readonly at: number }>();
  #timer: Timer | null = null;
  #isMoving = false;
  #isClosed = false;

  constructor(parts: MessageParts) {
    this.#parts = parts;
  }

  /** Sidecars said something: they get their consumers, and their agents what waits for them elsewhere. */
  seen(sidecars: readonly string[]): void {
    if (sidecars.length === 0) return;
    const known = new Set(this.#parts.registry().sidecarNames());
    const fresh = sidecars.filter((name) => known.has(name) && !this.#ready.has(name) && !this.#making.has(name));
    void forEachOf(fresh, AT_ONCE, (name) => this.#make(name));
    this.#moveIn(MOVE_SOON_MS);
  }

  close(): void {
    this.#isClosed = true;
    this.#timer?.cancel();
  }

  forgetConsumers(): void {
    this.#ready.clear();
    this.#settled.clear();
  }

  /** Looks at what the server has, and puts it right; a sentence when it could not. */
  async check(): Promise<string | null> {
    const { bus, registry, logger } = this.#parts;
    const listed = await bus.consumers(INBOX_STREAM);
    if ('failed' in listed) return listed.failed;
    const there = new Map(listed.map((each) => [each.name, each]));
    const names = registry().sidecarNames();
    const wanted = new Set(names.map((name) => Consumer.inbox(name)));
    const missing = names.filter((name) => !there.has(Consumer.inbox(name)));
    for (const { name, pending, ackPending } of there.values()) {
      if (!name.startsWith(PREFIX) || wanted.has(name) || pending + ackPending > 0) continue;
      logger.info({ consumer: name }, 'its sidecar is gone, and nothing waits in its inboxes');
      await bus.deleteConsumer(INBOX_STREAM, name);
      this.#ready.delete(name.slice(PREFIX.length));
    }
    for (const name of missing) this.#ready.delete(name);
    const isWhole = await forEachOf(missing, AT_ONCE, (name) => this.#make(name));
    this.#moveIn(0);
    return isWhole ? null : 'not every inbox has its consumer';
  }

  async #make(sidecar: string): Promise<boolean> {
    if (this.#making.has(sidecar) || this.#isClosed) return true;
    this.#making.add(sidecar);
    const ready = await this.#parts.bus.ensureConsumer(this.#spec(sidecar));
    this.#making.delete(sidecar);
    if ('failed' in ready) {
      this.#parts.logger.warn({ sidecar }, `its inbox has no consumer yet: ${ready.failed}`);
      return false;
    }
    this.#ready.add(sidecar);
    return true;
  }

  #spec(sidecar: string): ConsumerSpec {
    const { subjects, config } = this.#parts;
    return {
      stream: INBOX_STREAM,
      name: Consumer.inbox(sidecar),
      filter: subjects.inboxesAt(sidecar),
      ackWaitMs: config.inbox.ackWaitMs,
      maxAckPending: config.inbox.ackPending,
      maxDeliver: -1,
      deliver: 'all',
    };
  }

  // ---- moving house

  #moveIn(delayMs: number): void {
    if (this.#isClosed || this.#isMoving) return;
    this.#timer ??= this.#parts.clock.after(delayMs, () => {
      this.#timer = null;
      this.#isMoving = true;
      void this.#moveAll().finally(() => {
        this.#isMoving = false;
      });
    });
  }

  async #moveAll(): Promise<void> {
    const { bus, subjects, registry, isHeld, clock } = this.#parts;
    if (isHeld()) return;
    const listed = await bus.subjects(INBOX_STREAM, subjects.inboxes);
    if ('failed' in listed) return;
    for (const subject of this.#settled.keys()) if (!listed.has(subject)) this.#settled.delete(subject);
    for (const [subject, count] of listed) {
      if (this.#isClosed) return;
      const settled = this.#settled.get(subject);
      // One that came and one that went make the same number.
      if (settled?.count === count && clock.now() - settled.at < SETTLED_MS) continue;
      const place = subjects.inboxPlace(subject);
      if (place === null) continue;
      const { home, agent, writer } = place;
      const homes = registry().homesOf(agent);
      const to = homes[0];
      if (to === undefined || homes.includes(home)) continue;
      const moved = await this.#move(subject, agent, to, writer);
      if (moved === null) continue;
      this.#settled.set(subject, { count: count - moved, at: clock.now() });
      if (moved > 0)
        this.#parts.logger.info({ agent, from: home, to, messages: moved }, 'what waited for an agent has followed it to its new home');
    }
  }

  /** How many were moved; null when it was interrupted, and is to be looked at again. */
  async #move(subject: string, agent: string, to: string, writer: string | null): Promise<number | null> {
    const { bus, subjects } = this.#parts;
    const floor = await this.#floorOf(agent);
    if (floor === null) return null;
    // Only the agent's own word counts: of one that is away its home lets the server forget what would be too much to hold.
    let from = floor + 1;
    let moved = 0;
    for (;;) {
      const page = await bus.history(INBOX_STREAM, subject, MOVE_PAGE, from);
      if ('failed' in page) return null;
      for (const { seq, data } of page) {
        const stored = await bus.append(subjects.inbox(to, agent, writer), data, { stream: INBOX_STREAM, msgId: `moved:${seq}` });
        if (!('seq' in stored)) return null;
        const gone = await bus.deleteMessage(INBOX_STREAM, seq);
        if (gone !== null && typeof gone === 'object') return null;
        moved++;
        from = seq + 1;
      }
      if (page.length < MOVE_PAGE) return moved;
    }
  }

  /** Up to where the agent says that it has its messages; 0 = it never said, null = that cannot be read now. */
  async #floorOf(agent: string): Promise<number | null> {
    const { bus, subjects } = this.#parts;
    const record = await bus.lastAtLeader(LEDGER_STREAM, subjects.idem(floorKey(agent)));
    if (record === null) return 0;
    if ('failed' in record) return null;
    const floor = parse(record.data) as FloorRecord | null;
    return floor?.kind === 'floor' && floor.agent === agent && Number.isSafeInteger(floor.seq) ? floor.seq : 0;
  }
}
