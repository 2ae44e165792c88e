/**
 * Messages in one reign: the streams are made sure of, pools and inboxes kept in order, questions answered, operators told.
 * None of it is on the way of a message: while nobody leads, what has a pool goes on, and new pools wait. That the streams
 * cannot be made stops no call: it is said, and tried again.
 */
import type { BusMessage } from '../../base/bus-message.ts';
import type { Timer } from '../../base/clock.ts';
import type { StreamFacts } from '../../base/jetstream.ts';
import type { BusSubscription } from '../../base/nats-listeners.ts';
import type { PoolAnswer } from '../../proto/wire/messages.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import { KEPT_STREAM, TASK_STREAM } from '../../proto/wire/subjects.ts';
import { encode, parse } from '../push/json.ts';
import { speakerProblem } from '../push/speaker.ts';
import type { Change } from '../registry/change.ts';
import { Expiry } from './expiry.ts';
import { faultOf } from './fault.ts';
import type { Look } from '../alerts/backlogs.ts';
import { backlogOf } from './backlog.ts';
import { type Figures, figuresOf } from './figures.ts';
import { InboxDesk } from './inbox-desk.ts';
import { KeptCounts } from './kept-counts.ts';
import { KeptDesk } from './kept-desk.ts';
import { Notices } from './notices.ts';
import type { MessageParts } from './parts.ts';
import { ParkedDesk } from './parked-desk.ts';
import { PoolDesk } from './pool-desk.ts';
import { readPoolAsk } from './pool-request.ts';
import { ReviewExpiry } from './review-expiry.ts';
import { fillOf, fullness, lookAtStreams, type MessageStreamsReady, readyMessageStreams } from './streams.ts';
import { TaskDesk } from './task-desk.ts';
import { Waiting } from './waiting.ts';

const SHARE_MS = 500;
const CHECK_MS = 2_000;
/** Where there are many pools, a look costs the server more. */
const MANY_POOLS = 100;
const MANY_CHECK_MS = 5_000;
/** While something is not as it should be. */
const RETRY_MS = 1_000;
/** Every so many checks it is looked for pools that are forgotten. */
const RECOVER_EVERY = 6;
/** An asker waits so long for streams that are being made. */
const READY_MS = 3_000;

const NOTHING_MADE: MessageStreamsReady = Object.freeze({ made: [], warnings: [] });

export class Messages {
  readonly pools: PoolDesk;
  readonly inboxes: InboxDesk;
  readonly kept: KeptDesk;
  readonly parked: ParkedDesk;
  readonly waiting: Waiting;
  readonly expiry: Expiry;
  readonly reviews: ReviewExpiry;
  readonly notices: Notices | null;
  readonly keptCounts: KeptCounts;
  readonly #parts: MessageParts;
  readonly #subscriptions: BusSubscription[];
  readonly #timers = new Set<Timer>();
  #isReady = false;
  #isClosed = false;
  #checks = 0;
  #kept = -1;
  /** `clock.now()` of the last look that succeeded; null = none has. */
  #lookedMs: number | null = null;
  #whoWaits: (() => void)[] = [];
  #trouble = 'the streams for messages are being made';
  #warnings: readonly string[] = [];
  /** Of each stream, how full it is, 0 to 1. */
  /** From which check on forgotten pools are looked for; one that could not be done is due again at the next. */
  #recoverAt = 0;
  #fill: ReadonlyMap<string, number> = new Map();
  #nearlyFull: readonly string[] = [];

  constructor(parts: MessageParts) {
    this.#parts = parts;
    this.keptCounts = new KeptCounts(parts);
    this.pools = new PoolDesk(parts);
    this.inboxes = new InboxDesk(parts);
    this.kept = new KeptDesk(parts, this.pools);
    this.parked = new ParkedDesk(parts, this.pools, this.kept);
    this.waiting = new Waiting(parts, this.pools);
    this.expiry = new Expiry(parts, this.pools);
    this.reviews = new ReviewExpiry(parts, this.kept);
    const tasks = new TaskDesk(parts, this.kept, this.pools);
    this.notices = parts.config.notices === null ? null : new Notices(parts, parts.config.notices);
    const { inbound, subjects } = parts;
    this.#subscriptions = [
      ...subjects.asked('pool').map((asked) => inbound.serve(asked, async (message) => this.#answered(encode(await this.#pool(message))))),
      ...subjects
        .asked('task')
        .map((asked) => inbound.serve(asked, async (message) => this.#answered(encode(await tasks.answer(message))))),
    ];
    void this.#check();
    this.#share();
  }

  /** What an operator should know; empty = nothing. */
  get warnings(): readonly string[] {
    const warnings = [...this.#warnings, ...this.#nearlyFull];
    if (this.#trouble !== '' && this.#checks > 0) warnings.push(`messages: ${this.#trouble}`);
    if (this.notices !== null && this.notices.trouble !== '')
      warnings.push(`notices to operators do not get through: ${this.notices.trouble}`);
    return warnings;
  }

  get figures(): Figures {
    const { book, consumers } = this.pools;
    return {
      ...figuresOf(book, consumers.facts.values(), this.#kept),
      fill: this.#fill,
      ghosts: consumers.ghosts.count,
      expired: this.expiry.count + this.reviews.count,
    };
  }

  /** What waits where, of the last look that succeeded; null = none has. */
  get backlog(): Look | null {
    if (this.#lookedMs === null) return null;
    const { book, consumers } = this.pools;
    return { atMs: this.#lookedMs, lists: backlogOf(book, consumers.facts.values(), this.keptCounts.counts, this.#kept) };
  }

  /** The registry has changed. */
  changed({ capabilities, registrations }: Change): void {
    if (capabilities.length > 0) this.pools.changed(capabilities);
    if (this.#isReady) this.inboxes.seen(registrations);
  }

  /** The registry is another one. */
  reload(): void {
    this.pools.reload();
    if (this.#isReady) this.inboxes.seen(this.#parts.registry().sidecarNames());
  }

  end(): void {
    this.#isClosed = true;
    for (const each of this.#subscriptions) each.close();
    for (const timer of this.#timers) timer.cancel();
    this.#wake();
    this.pools.close();
    this.inboxes.close();
    this.expiry.close();
    this.reviews.close();
    this.notices?.close();
  }

  /** Who leads no longer does not answer; the next one does. */
  #answered(answer: Uint8Array): Uint8Array | null {
    return this.#isClosed ? null : answer;
  }

  async #pool(message: BusMessage): Promise<PoolAnswer> {
    const read = readPoolAsk(parse(message.data));
    if ('problem' in read) return refused(read.problem);
    const stranger = speakerProblem(this.#parts.subjects, message, read.sidecar);
    if (stranger !== null) return refused(stranger);
    if (!this.#isReady) await this.#ready();
    return this.#isReady ? this.pools.use(read.pool) : refused(this.#trouble);
  }

  #ready(): Promise<void> {
    return new Promise((done) => {
      const timer = this.#after(READY_MS, done);
      this.#whoWaits.push(() => {
        timer.cancel();
        done();
      });
    });
  }

  #wake(): void {
    const waiting = this.#whoWaits;
    this.#whoWaits = [];
    for (const each of waiting) each();
  }

  #share(): void {
    this.#after(SHARE_MS, () => {
      const sharing = this.#isReady ? this.pools.share() : Promise.resolve();
      this.#aside(
        'partitions',
        sharing.finally(() => this.#share()),
      );
    });
  }

  async #check(): Promise<void> {
    const problem = this.#parts.bus.connected ? await this.#look().catch(faultOf) : null;
    if (this.#isClosed) return;
    if (problem !== null && problem !== this.#trouble) this.#parts.logger.error(`messages: ${problem}`);
    this.#trouble = problem ?? '';
    this.#checks++;
    const idleMs = this.pools.book.size > MANY_POOLS ? MANY_CHECK_MS : CHECK_MS;
    this.#after(problem === null ? idleMs : RETRY_MS, () => void this.#check());
  }

  async #look(): Promise<string | null> {
    const { bus, subjects, config, replicas, logger, registry } = this.#parts;
    const areThere = this.#isReady && (await lookAtStreams(bus)) !== null;
    const streams = areThere ? NOTHING_MADE : await readyMessageStreams(bus, subjects, config, replicas);
    if ('failed' in streams) return streams.failed;
    if (streams !== NOTHING_MADE) this.#warnings = streams.warnings;
    if (streams.made.length > 0) {
      logger.info({ streams: streams.made }, 'streams for messages were made');
      if (streams.made.includes(TASK_STREAM)) this.pools.forgetConsumers();
      this.inboxes.forgetConsumers();
    }
    const pools = await this.pools.check();
    if (pools !== null || this.#isClosed) return pools;
    // After the consumers, so that none of them can be ahead of its stream.
    const seen = await lookAtStreams(bus);
    if (seen !== null) this.#seen(seen);
    const isFirst = !this.#isReady;
    this.#isReady = true;
    this.#wake();
    if (isFirst) this.inboxes.seen(registry().sidecarNames());
    if (this.#checks >= this.#recoverAt && (await this.waiting.recover())) this.#recoverAt = this.#checks + RECOVER_EVERY;
    return this.inboxes.check();
  }

  #seen(streams: ReadonlyMap<string, StreamFacts>): void {
    const { logger, clock } = this.#parts;
    const kept = streams.get(KEPT_STREAM);
    this.#kept = kept?.messages ?? -1;
    if (kept !== undefined) {
      this.keptCounts.seen(kept);
      this.#aside('reviews', this.reviews.look(kept));
    }
    this.#lookedMs = clock.now();
    this.#fill = new Map([...streams].map(([name, facts]) => [name, fillOf(facts)]));
    const nearlyFull = fullness(streams);
    for (const words of nearlyFull) if (!this.#nearlyFull.includes(words)) logger.warn(`messages: ${words}`);
    this.#nearlyFull = nearlyFull;
    const { consumers } = this.pools;
    const tasks = streams.get(TASK_STREAM);
    this.#aside('tasks whose time is over', this.expiry.look());
    if (tasks !== undefined) this.#aside('what came back', consumers.ghosts.sweep(tasks, consumers.facts.values()));
  }

  /** Nobody waits for it, and what it stumbles over must not end who leads. */
  #aside(what: string, looking: Promise<unknown>): void {
    looking.catch((error: unknown) => this.#parts.logger.error(`messages: ${what} were not looked at to the end: ${faultOf(error)}`));
  }

  #after(delayMs: number, act: () => void): Timer {
    const timer = this.#parts.clock.after(delayMs, () => {
      this.#timers.delete(timer);
      if (!this.#isClosed) act();
    });
    this.#timers.add(timer);
    return {
      cancel: () => {
        timer.cancel();
        this.#timers.delete(timer);
      },
    };
  }
}

function refused(why: string): PoolAnswer {
  return { wire: REGISTRY_WIRE, ok: false, why };
}
