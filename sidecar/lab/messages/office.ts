/**
 * Messages in a scenario: the product's own `send` and `deliver`, put together as sidecar.ts does it, over a bus and a queue in memory
 * and with the ledger that calls use too. What is decided about a message (rules, pools, lanes, tries, pauses, keys, doubt) is decided
 * by that code; here is only what stands around it.
 */
import { createLog, type Logger } from '../../../base/log.ts';
import type { Random } from '../../../base/random.ts';
import { StreamPublisher } from '../../../base/stream-publisher.ts';
import type { VirtualClock } from '../../../base/virtual-clock.ts';
import { NO_RULES, type Rule, type RuleSet } from '../../../proto/language/rule.ts';
import { compileRules } from '../../../proto/language/rule-tree.ts';
import { MESSAGE_WIRE } from '../../../proto/wire/envelope.ts';
import { ledgerKey } from '../../../proto/wire/ledger-key.ts';
import type { KeptEntry, PoolAsk, TaskEvent } from '../../../proto/wire/messages.ts';
import { FINAL_STATES } from '../../../proto/wire/messages.ts';
import { Subjects } from '../../../proto/wire/subjects.ts';
import type { Call } from '../../call/call.ts';
import { Deliver } from '../../deliver/deliver.ts';
import { DELIVER_DEFAULTS } from '../../deliver/settings.ts';
import type { Engine } from '../../engine.ts';
import type { TaskLedger } from '../../ledger/ledger.ts';
import { inbound, outbound } from '../../pipeline.ts';
import type { Submission, Submitted } from '../../send/door.ts';
import { Messages } from '../../send/messages.ts';
import { NO_OUTBOX } from '../../send/outbox-door.ts';
import { LabBus } from './bus.ts';
import { LabQueue } from './queue.ts';
import { LabWork } from './work.ts';

/** As in the names of a real environment; no one sees it but in subjects. */
const ENV = 'lab';
const INSTANCE = 'labprocess00';
const MAX_PENDING = 65_536;

export interface OfficeParts {
  readonly engine: Engine;
  readonly clock: VirtualClock;
  readonly random: Random;
  readonly ledger: TaskLedger;
  /** Hears of each call that a message becomes. */
  readonly delivered: (call: Call) => void;
  /** Hears of each final state, once. */
  readonly ended: (event: TaskEvent) => void;
  /** Kept for people: dead, in doubt, for review. */
  readonly kept: (entry: KeptEntry) => void;
}

export class Office {
  readonly #parts: OfficeParts;
  readonly #subjects: Subjects;
  readonly #queue: LabQueue;
  readonly #work: LabWork;
  readonly #messages: Messages;
  readonly #deliver: Deliver;
  readonly #appender: StreamPublisher;
  #rules: RuleSet = NO_RULES;
  #rulesOf: readonly Rule[] | undefined = undefined;
  #stored = 0;

  constructor(parts: OfficeParts) {
    this.#parts = parts;
    const { engine, clock, random, ledger } = parts;
    const { config } = engine;
    this.#subjects = new Subjects(ENV, config.name);
    const subjects = this.#subjects;
    this.#queue = new LabQueue(clock, DELIVER_DEFAULTS.ackWaitMs);
    const host = `${config.name}/${INSTANCE}`;
    this.#work = new LabWork(engine.table, subjects, host, (from, to) => this.#queue.move(from, to));
    const { bus } = new LabBus(
      (subject, data) => this.#store(subject, data),
      (subject, data) => this.#answer(subject, data),
    );
    this.#messages = new Messages(
      {
        clock,
        random,
        config,
        table: engine.table,
        instance: INSTANCE,
        call: (call) => outbound(engine, call),
        warn: () => undefined,
        quotas: engine.quotas,
      },
      { bus, subjects, rules: () => this.#rules, onDecided: () => undefined, outbox: () => NO_OUTBOX },
    );
    this.#appender = new StreamPublisher(bus, clock, { timeoutMs: DELIVER_DEFAULTS.storeTimeoutMs, maxPending: MAX_PENDING });
    this.#deliver = new Deliver({
      self: host,
      engine,
      inbound: (to, call, agentId, version) => {
        parts.delivered(call);
        return inbound(to, call, agentId, version);
      },
      bus,
      queue: this.#queue,
      appender: this.#appender,
      ledger,
      ledgerKey,
      noteServerTime: () => undefined,
      work: this.#work,
      subjects,
      clock,
      random,
      log: silent(),
      settings: Object.freeze({ ...DELIVER_DEFAULTS, ...workOf(config.messages.work) }),
      failpoint: null,
      longWork: null,
    });
    this.tableChanged();
    this.#deliver.start();
  }

  /** Messages in the queue, and such as are being worked on. */
  get waiting(): number {
    return this.#queue.size;
  }

  get atWork(): number {
    return this.#deliver.atWork;
  }

  submit(submission: Submission): Promise<Submitted> {
    return this.#messages.submit(submission);
  }

  /** The table is another one. */
  tableChanged(): void {
    const { rules } = this.#parts.engine.table.current().document;
    if (rules !== this.#rulesOf) {
      this.#rulesOf = rules;
      this.#rules = rules === undefined ? NO_RULES : compileRules(rules, 1);
    }
    this.#work.tableChanged();
  }

  /** Pulls no more and closes; what is at work is given back. Time has to go on a little for it. */
  async close(): Promise<void> {
    let isOver = false;
    const { clock } = this.#parts;
    void this.#deliver.stop(0).then(() => (isOver = true));
    for (let i = 0; i < MAX_CLOSING_STEPS && !isOver; i++) await clock.advance(CLOSING_STEP_MS);
    this.#messages.close();
    this.#appender.close();
    this.#queue.close();
  }

  #store(subject: string, data: Buffer): number {
    const kind = subject.split('.')[2];
    if (kind === 'task') {
      const [, , , pool, lane, partition] = subject.split('.') as [string, string, string, string, string, string];
      return this.#queue.put(this.#work.consumerOf(pool, lane, Number(partition)), subject, data);
    }
    const line = data.indexOf(NEWLINE);
    const head = JSON.parse(data.toString('utf8', 0, line < 0 ? data.length : line)) as TaskEvent;
    const place = this.#subjects.inboxPlace(subject);
    if (kind === 'kept') this.#parts.kept(head as unknown as KeptEntry);
    else if (place !== null && head.kind === 'state') {
      this.#messages.noted(head, line < 0 ? null : data.subarray(line + 1), place.agent);
      if (FINAL_STATES.has(head.state)) this.#parts.ended(head);
    }
    return ++this.#stored;
  }

  /** The control plane's part: every pool is taken. */
  #answer(subject: string, data: Uint8Array): Uint8Array | null {
    if (subject !== this.#subjects.ctl('pool')) return null;
    this.#work.use((JSON.parse(Buffer.from(data).toString('utf8')) as PoolAsk).pool);
    return Buffer.from(JSON.stringify({ wire: MESSAGE_WIRE, ok: true, why: '' }));
  }
}

const NEWLINE = 0x0a;
const CLOSING_STEP_MS = 50;
const MAX_CLOSING_STEPS = 200;

function silent(): Logger {
  return createLog({ level: 'silent', to: 'stderr', service: 'sandbox' }).logger;
}

function workOf(work: Engine['config']['messages']['work']): Partial<typeof DELIVER_DEFAULTS> {
  const { concurrency, reserveHigh, maxTries } = work;
  return { concurrency, reserveHigh, maxTries };
}
