/** Delivery on a virtual clock: the live engine with mock agents, a queue and a ledger in memory, and everything that was told written down. */
import { createLog } from '../../base/log.ts';
import { SeededRandom } from '../../base/random.ts';
import { encodeEnvelope, type Envelope, type Lane, MESSAGE_WIRE } from '../../proto/wire/envelope.ts';
import {
  Consumer,
  FINAL_STATES,
  type KeptEntry,
  type Pool,
  type TaskEvent,
  type WorkPool,
  type WorkState,
} from '../../proto/wire/messages.ts';
import { poolId } from '../../proto/wire/pool.ts';
import { Subjects } from '../../proto/wire/subjects.ts';
import type { StageSpans } from '../../sidecar/call/stage-spans.ts';
import { Deliver } from '../../sidecar/deliver/deliver.ts';
import { DELIVER_DEFAULTS, type DeliverSettings } from '../../sidecar/deliver/settings.ts';
import { inbound } from '../../sidecar/pipeline.ts';
import { envelopeOf } from './envelope.ts';
import { FakeLedger } from './fake-ledger.ts';
import { VirtualQueue } from './virtual-queue.ts';
import { VirtualRig } from './virtual-rig.ts';

export const CAPABILITY = 'crm.order.query';
export const SENDER = 'web.desk.1';
const SUBJECTS = new Subjects('test');

/** One contract with three kinds of work by version: 1.0.0 once, 2.0.0 idempotent, 3.0.0 keyed. */
export const VERSION = { once: '1.0.0', idempotent: '2.0.0', keyed: '3.0.0' } as const;
export type Kind = keyof typeof VERSION;

/** @param mocks agent → lines of its mock */
export function deliverTable(mocks: Readonly<Record<string, string>>, more = ''): string {
  const contracts = Object.entries(VERSION)
    .map(
      ([execution, version]) =>
        `  - {name: ${CAPABILITY}, acl: public, version: ${version}, execution: ${execution}, timeout: 5s, deadline: 10s}`,
    )
    .join('\n');
  const agents = Object.keys(mocks);
  const offers = Object.values(VERSION)
    .map((version) => `${CAPABILITY}@${version}`)
    .join(', ');
  const providers = agents.map(
    (agent) => `  - {agent_id: ${agent}, offers: [${offers}], endpoint: {type: http, address: "http://127.0.0.1:9"}}`,
  );
  return `contracts:\n${contracts}\nproviders:\n${providers.join('\n')}\nmocks:\n${agents
    .map((agent) => `  ${agent}: {${mocks[agent]}}`)
    .join('\n')}\n${more}`;
}

export interface Sending {
  readonly kind?: Kind;
  readonly lane?: Lane;
  readonly key?: string;
  readonly body?: string;
  readonly more?: Partial<Envelope>;
}

export class DeliverRig {
  readonly rig: VirtualRig;
  readonly queue: VirtualQueue;
  readonly ledger: FakeLedger;
  readonly deliver: Deliver;
  /** Events in the inbox that are not final. */
  readonly passing: TaskEvent[] = [];
  /** Final events, in the order in which they were stored. */
  readonly events: { event: TaskEvent; body: string; subject: string }[] = [];
  readonly notes: TaskEvent[] = [];
  readonly kept: { entry: KeptEntry; message: Buffer; subject: string }[] = [];
  readonly logged: Record<string, unknown>[] = [];
  /** Everything that became durable, and acknowledgements, in order. */
  readonly order: string[] = [];
  /** The bus stores nothing. */
  isDown = false;
  readonly #maxPayload: number;
  readonly #msgIds = new Set<string>();
  #state: WorkState = { wire: 1, epoch: 'e', pools: [] };
  #listener: ((state: WorkState) => void) | null = null;
  #cancel: ((message: never) => void) | null = null;
  #issued = 0;

  constructor(
    table: string,
    agents: readonly string[],
    settings: Partial<DeliverSettings> = {},
    sticky: readonly WorkPool[] = [],
    maxPayload = 1_048_576,
    stages: StageSpans | null = null,
  ) {
    this.#maxPayload = maxPayload;
    this.rig = new VirtualRig(table);
    const { world } = this.rig;
    const { clock, engine } = world;
    const { document } = world.table.current();
    world.install({ ...document, providers: document.providers.map((record) => ({ ...record, via: engine.config.name })) }, 'test');
    world.health.warm();
    this.queue = new VirtualQueue(clock);
    this.ledger = new FakeLedger(clock);
    const end = this.queue.end.bind(this.queue);
    this.queue.end = (delivery) => {
      this.order.push(`ack ${delivery.streamSeq}`);
      return end(delivery);
    };
    const log = createLog({ level: 'debug', to: { write: (line: string) => void this.logged.push(JSON.parse(line)) }, service: 'test' });
    this.#state = { wire: 1, epoch: 'e', pools: [...Object.keys(VERSION).map((kind) => workOf(kind as Kind, agents)), ...sticky] };
    this.deliver = new Deliver({
      self: 'here/1',
      engine,
      inbound,
      bus: this.#bus(),
      queue: this.queue,
      appender: {
        send: (subject, data, { msgId, stream }, then) => {
          if (this.isDown) return false;
          setImmediate(() => {
            const id = `${stream} ${msgId}`;
            const isRepeat = this.#msgIds.has(id);
            this.#msgIds.add(id);
            if (!isRepeat) this.#stored(subject, Buffer.from(data));
            then({ seq: this.#msgIds.size, duplicate: isRepeat });
          });
          return true;
        },
      },
      ledger: this.ledger,
      ledgerKey: (source, capability, key) => `${source} ${capability} ${key}`,
      noteServerTime: () => undefined,
      work: {
        current: () => this.#state,
        onChange: (listener) => {
          this.#listener = listener;
          return { close: () => (this.#listener = null) };
        },
      },
      subjects: SUBJECTS,
      clock,
      random: new SeededRandom(7),
      log: log.logger,
      settings: { ...DELIVER_DEFAULTS, ...settings },
      failpoint: null,
      stages,
      longWork: null,
    });
    this.deliver.start();
  }

  get clock(): VirtualRig['world']['clock'] {
    return this.rig.world.clock;
  }

  /** Puts a message into the queue; its task id. */
  send(sending: Sending = {}): string {
    const kind = sending.kind ?? 'idempotent';
    const pool = poolOf(kind);
    const lane = sending.lane ?? 'normal';
    const envelope = envelopeFor(`task${String(++this.#issued).padStart(6, '0')}`, pool, lane, sending);
    this.queue.put(
      Consumer.lane(pool.id, lane),
      SUBJECTS.task(pool.id, lane, 0, 'sender'),
      encodeEnvelope(envelope, Buffer.from(sending.body ?? '{}')),
    );
    return envelope.task_id;
  }

  /** As `send`, to a partition. */
  sendSticky(work: WorkPool, index: number, term: number, key: string, more: Partial<Envelope> = {}): string {
    const envelope = envelopeFor(`task${String(++this.#issued).padStart(6, '0')}`, work.pool, 'normal', {
      more: { ...more, sticky_key: key },
    });
    this.queue.put(
      Consumer.partition(work.pool.id, index, term),
      SUBJECTS.task(work.pool.id, 'normal', index, 'sender'),
      encodeEnvelope(envelope, Buffer.from(JSON.stringify({ task: envelope.task_id }))),
    );
    return envelope.task_id;
  }

  assign(pools: readonly WorkPool[]): void {
    this.#state = { ...this.#state, pools };
    this.#listener?.(this.#state);
  }

  callOff(taskId: string, source = SENDER): void {
    const data = Buffer.from(JSON.stringify({ wire: MESSAGE_WIRE, task_id: taskId, source }));
    this.#cancel?.({ data, reply: '', subject: '' } as never);
  }

  stateOf(taskId: string): string[] {
    return this.events.filter(({ event }) => event.task_id === taskId).map(({ event }) => event.state);
  }

  /** Lets time pass in small steps, until `isOver` or the time is up. */
  async pass(ms: number, isOver: () => boolean = () => false, stepMs = 10): Promise<void> {
    const until = this.clock.now() + ms;
    while (!isOver() && this.clock.now() < until) await this.clock.advance(Math.min(stepMs, until - this.clock.now()));
    await this.clock.advance(0);
  }

  async stop(): Promise<void> {
    let isOver = false;
    void this.deliver.stop(0).then(() => (isOver = true));
    await this.pass(5_000, () => isOver);
  }

  #bus(): ConstructorParameters<typeof Deliver>[0]['bus'] {
    return {
      maxPayload: this.#maxPayload,
      publish: (_subject, data) => {
        if (this.isDown) return false;
        this.notes.push(JSON.parse(Buffer.from(data).toString('utf8')) as TaskEvent);
        return true;
      },
      subscribe: (_pattern, handler) => {
        this.#cancel = handler;
        return { close: () => (this.#cancel = null) };
      },
    };
  }

  #stored(subject: string, data: Buffer): void {
    const newline = data.indexOf(0x0a);
    const head = JSON.parse(data.toString('utf8', 0, newline)) as TaskEvent;
    if (subject.startsWith('ar.test.kept.')) {
      this.kept.push({ entry: head as unknown as KeptEntry, message: data.subarray(newline + 1), subject });
      this.order.push(`kept ${head.task_id}`);
    } else if (!FINAL_STATES.has(head.state)) this.passing.push(head);
    else {
      this.events.push({ event: head, body: data.toString('utf8', newline + 1), subject });
      this.order.push(`event ${head.task_id} ${head.state}`);
    }
  }
}

export function poolOf(kind: Kind): Pool {
  const pool = { capability: CAPABILITY, version: VERSION[kind], role: null, agent: null, tags: {}, sticky: false };
  return { id: poolId(pool), ...pool };
}

export function workOf(kind: Kind, agents: readonly string[]): WorkPool {
  return { pool: poolOf(kind), agents, partitions: [] };
}

export function stickyWork(kind: Kind, agents: readonly string[], partitions: WorkPool['partitions']): WorkPool {
  const pool = { ...poolOf(kind), sticky: true };
  return { pool: { ...pool, id: poolId(pool) }, agents, partitions };
}

function envelopeFor(taskId: string, pool: Pool, lane: Lane, { key, more }: Sending): Envelope {
  return envelopeOf(pool.capability, pool.id, {
    task_id: taskId,
    power_id: key ?? `${SENDER}:${taskId}:1`,
    keyed: key !== undefined,
    source: SENDER,
    home: 'sender',
    version: pool.version,
    lane,
    accepted_at_ms: 0,
    ...more,
  });
}
