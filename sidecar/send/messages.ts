/** Messages out, put together: what the ways in see as one door (`SendDoor`), with NATS behind it or without. */
import type { Clock } from '../../base/clock.ts';
import type { Bus } from '../../base/nats.ts';
import type { BusSubscription } from '../../base/nats-listeners.ts';
import type { Random } from '../../base/random.ts';
import { StreamPublisher } from '../../base/stream-publisher.ts';
import type { RuleSet, RuleSubject } from '../../proto/language/rule.ts';
import { isAgentId } from '../../proto/language/names.ts';
import { Code } from '../../proto/wire/codes.ts';
import { MESSAGE_CAPABILITY, MESSAGE_WIRE } from '../../proto/wire/envelope.ts';
import type { InboxMessage, TaskEvent } from '../../proto/wire/messages.ts';
import type { Subjects } from '../../proto/wire/subjects.ts';
import type { Call } from '../call/call.ts';
import type { Principal } from '../call/principal.ts';
import type { StageSpans } from '../call/stage-spans.ts';
import type { SidecarConfig } from '../config.ts';
import type { RateSettings } from '../messages-config.ts';
import type { Quotas } from '../quotas/quotas.ts';
import type { Table } from '../table/snapshot.ts';
import { BestEffort } from './best-effort.ts';
import { Cancels } from './cancels.ts';
import type { Rate, SendDoor, Submission, Submitted, TaskView } from './door.ts';
import { Home } from './home.ts';
import { mailEvent } from './mail.ts';
import type { Outbox } from './outbox-door.ts';
import { Pools } from './pools.ts';
import { Post } from './post.ts';
import { Rates } from './rate.ts';
import { Sender, type Statements, tooFast } from './sender.ts';
import { Tasks } from './tasks.ts';
import { unsendable } from './unsendable.ts';

export interface MessagesParts {
  readonly clock: Clock;
  readonly random: Random;
  readonly config: SidecarConfig;
  readonly table: Table;
  /** 8 to 20 of a-z and 0-9, another one for each start of the process. */
  readonly instance: string;
  /** The caller's end of the pipeline, for what is sent without a promise. */
  readonly call: (call: Call) => Promise<void>;
  readonly warn: (words: string) => void;
  /** Set at run time, by operators; null or absent = there are none. */
  readonly quotas?: Quotas | null;
  /** See `SenderParts`; absent = identities are not issued here. */
  readonly statements?: Statements | null;
  /** Spans of what is sent; null or absent = no traces are made. */
  readonly stages?: StageSpans | null;
  /** What policy refused, for the audit log; absent = nobody wants to know. */
  readonly refusals?: { judged(call: Call): void; message(agent: string, capability: string, code: Code, words: string): void };
}

export interface BusParts {
  readonly bus: Bus;
  readonly subjects: Subjects;
  readonly rules: () => RuleSet;
  /** See `SenderParts`: hit counts, and recorded messages for a dry run. */
  readonly onDecided: (subject: RuleSubject, rule: string | null) => void;
  /** Asked at each message: it may be put in later. */
  readonly outbox: () => Outbox;
}

/** One try of a message. Where there is a disk it is the only one that is waited for; where there is none, several fit into the time of a submission. */
const TRY_MS = 2_000;
const TELL_TRIES = 30;
const TELL_AGAIN_MS = 1_000;

export class Messages implements SendDoor {
  readonly home: Home;
  readonly #parts: MessagesParts;
  readonly #behind: BusParts;
  readonly #rates: Rates;
  readonly #bestEffort: BestEffort;
  readonly #stream: StreamPublisher;
  readonly #post: Post;
  readonly #pools: Pools;
  readonly #cancels: Cancels;
  readonly #sender: Sender;
  readonly #tasks: Tasks;
  readonly #notes: BusSubscription;
  #isClosed = false;

  constructor(parts: MessagesParts, behind: BusParts) {
    const { clock, random, config, table, instance } = parts;
    const { bus, subjects, rules } = behind;
    const settings = config.messages;
    this.#parts = parts;
    this.#behind = behind;
    this.home = new Home(settings.remembered, settings.resultBytes);
    this.#rates = new Rates(settings.rate, settings.rates, parts.quotas ?? null);
    this.#bestEffort = new BestEffort({ clock, random, home: this.home, instance, call: parts.call });
    this.#stream = new StreamPublisher(bus, clock, { timeoutMs: Math.min(TRY_MS, settings.ackWaitMs), maxPending: settings.inFlight });
    this.#post = new Post({
      bus,
      stream: this.#stream,
      outbox: behind.outbox,
      clock,
      waitMs: settings.ackWaitMs,
      maxOpen: settings.inFlight,
    });
    this.#pools = new Pools({ bus, subjects, clock, sidecar: config.name, warn: parts.warn });
    this.#cancels = new Cancels({ bus, subjects, clock });
    this.#sender = new Sender({
      clock,
      random,
      maxHops: config.maxHops,
      pools: this.#pools,
      rules,
      bus,
      table,
      subjects,
      sidecar: config.name,
      settings,
      rates: this.#rates,
      post: this.#post,
      home: this.home,
      cancels: this.#cancels,
      statements: parts.statements ?? null,
      onDecided: behind.onDecided,
      stages: parts.stages ?? null,
      instance,
      ...(parts.refusals === undefined ? {} : { judged: (call: Call) => parts.refusals?.judged(call) }),
    });
    this.#tasks = new Tasks({ clock, bus, subjects, sidecar: config.name, home: this.home, cancels: this.#cancels });
    this.#notes = bus.subscribe(subjects.note(config.name), ({ data }) => {
      const event = readNote(data);
      if (event !== null) this.noted(event, null);
    });
  }

  /** States of tasks: notes come in here, final events are handed over by whoever reads the inbox's stream. */
  noted(event: TaskEvent, body: Buffer | null, agent = ''): void {
    this.#cancels.ended(event.task_id, event.state);
    this.home.noted(event, body, agent);
  }

  async submit(submission: Submission): Promise<Submitted> {
    const submitted = await this.#submit(submission);
    // A rate is a rule too; what else policy refuses has been told where it was decided.
    if (!submitted.ok && submitted.code === Code.rate_limited)
      this.#parts.refusals?.message(submission.principal.agent, submission.target.capability ?? '', submitted.code, submitted.detail);
    return submitted;
  }

  #submit(submission: Submission): Promise<Submitted> {
    const { bus, outbox } = this.#behind;
    // Asked for, and neither NATS nor a disk is there to promise anything.
    if (submission.bestEffort && !bus.connected && !outbox().isThere) {
      const { agent } = submission.principal;
      const now = this.#parts.clock.now();
      return Promise.resolve(this.#rates.take(agent, now) ? this.#bestEffort.submit(submission) : tooFast(agent, this.#rates, now));
    }
    return this.#sender.submit(submission);
  }

  task(principal: Principal, taskId: string): Promise<TaskView | null | 'unsure'> {
    return this.#tasks.task(principal, taskId);
  }

  watch(principal: Principal, taskId: string, hear: (view: TaskView) => void): Promise<{ close(): void } | null | 'unsure'> {
    return this.#tasks.watch(principal, taskId, hear);
  }

  cancel(principal: Principal, taskId: string): Promise<'cancelled' | 'requested' | 'too_late' | 'unknown' | 'unsure'> {
    return this.#tasks.cancel(principal, taskId);
  }

  /** It was accepted onto the disk, and NATS will not take it: its sender hears of it here, and in the inbox when that can be written. */
  unsendable(data: Buffer, why: string): void {
    const found = unsendable(data, why, this.#parts.clock.wallMs());
    if (found === null) return;
    const { event, source, replyTo } = found;
    this.noted(event, null, source);
    if (replyTo === null) return;
    this.#tell(this.#behind.subjects.inbox(this.#parts.config.name, replyTo), event, TELL_TRIES);
  }

  /** A message lies in the inbox of an agent here, or was not let in: its sender hears of it. */
  arrived(message: InboxMessage, reader: string, isLetIn: boolean): void {
    if (!isAgentId(message.source) || typeof message.home !== 'string') return;
    const event = mailEvent(message, reader, MESSAGE_CAPABILITY, isLetIn, this.#parts.clock.wallMs());
    const { subjects, bus } = this.#behind;
    try {
      if (message.reply_to === null) bus.publish(subjects.note(message.home), Buffer.from(JSON.stringify(event), 'utf8'));
      else this.#tell(subjects.inbox(message.home, message.reply_to), event, TELL_TRIES);
    } catch {
      // Its home is none that could be written to: nobody can be told.
    }
  }

  /** Into an inbox, for as long as a fail-over takes. */
  #tell(subject: string, event: TaskEvent, tries: number): void {
    const line = Buffer.from(`${JSON.stringify(event)}\n`, 'utf8');
    const again = (): void => {
      if (tries > 1 && !this.#isClosed) this.#parts.clock.after(TELL_AGAIN_MS, () => this.#tell(subject, event, tries - 1));
    };
    const isSent = this.#stream.send(subject, line, { msgId: `${event.task_id}.${event.state}` }, (outcome) => {
      if (!('seq' in outcome)) again();
    });
    if (!isSent) again();
  }

  rate(agent: string): Rate {
    return this.#rates.view(agent, this.#parts.clock.now());
  }

  setRate(agent: string, rate: RateSettings | null): void {
    this.#rates.set(agent, rate, this.#parts.clock.now());
  }

  /** What has not left is told to whoever waits for it; the bus must still be there. */
  close(): void {
    this.#isClosed = true;
    this.#notes.close();
    this.#post.close();
    this.#pools.close();
    this.#cancels.close();
    this.#stream.close();
    this.#bestEffort.close();
  }
}

/** null = it is none of ours. */
function readNote(data: Buffer): TaskEvent | null {
  try {
    const event = JSON.parse(data.toString('utf8')) as TaskEvent | null;
    if (event === null || event.wire !== MESSAGE_WIRE || typeof event.task_id !== 'string' || typeof event.state !== 'string') return null;
    return typeof event.power_id === 'string' && typeof event.attempts === 'number' ? event : null;
  } catch {
    return null;
  }
}
