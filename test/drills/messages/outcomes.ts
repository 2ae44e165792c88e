/**
 * What senders were told: every final event of every inbox, read from the stream as it comes, by a consumer of our own. The bus is
 * ours too and lives through restarts of the server.
 */
import { realClock } from '../../../base/clock.ts';
import { Bus } from '../../../base/nats.ts';
import { ack, type Delivery, Puller } from '../../../base/puller.ts';
import { systemRandom } from '../../../base/random.ts';
import { ENVIRONMENT } from '../../../deploy/local/registry.ts';
import { FINAL_STATES, type TaskEvent } from '../../../proto/wire/messages.ts';
import { INBOX_STREAM, Subjects, TASK_STREAM } from '../../../proto/wire/subjects.ts';

export interface Outcome {
  readonly taskId: string;
  readonly powerId: string;
  readonly capability: string;
  readonly state: TaskEvent['state'];
  readonly code: number;
  readonly cause: string;
  readonly by: string;
  readonly attempts: number;
  readonly replay: boolean;
  /** The result as it stands there; '' = none. */
  readonly answer: string;
  /** Wall clock of the worker's sidecar. */
  readonly atMs: number;
}

const NAME = 'drill';
const AT_ONCE = 2_000;
const ACK_WAIT_MS = 30_000;
/** More are not looked at one by one. */
const MOST_LEFT = 1_000;

export class Outcomes {
  readonly all: Outcome[] = [];
  /** Tasks that have one. */
  readonly tasks = new Set<string>();
  /** What stood in an inbox and is no end of a task. */
  readonly strange: string[] = [];
  readonly #bus: Bus;
  readonly #seen = new Set<number>();
  #puller: Puller | null = null;

  private constructor(bus: Bus) {
    this.#bus = bus;
  }

  static async open(natsUrl: string): Promise<Outcomes> {
    const bus = Bus.open({ servers: [natsUrl], name: 'drill', clock: realClock, random: systemRandom });
    const outcomes = new Outcomes(bus);
    for (let tries = 0; ; tries++) {
      const ready = await bus.ensureConsumer({
        stream: INBOX_STREAM,
        name: NAME,
        filter: new Subjects(ENVIRONMENT).inboxes,
        ackWaitMs: ACK_WAIT_MS,
        maxAckPending: AT_ONCE * 2,
        maxDeliver: -1,
        deliver: 'all',
      });
      if (!('failed' in ready)) break;
      if (tries === 50) throw new Error(`the inboxes cannot be read: ${ready.failed}`);
      await new Promise((done) => setTimeout(done, 100));
    }
    outcomes.#puller = new Puller(bus, realClock, {
      stream: INBOX_STREAM,
      consumer: NAME,
      onMessage: (delivery) => outcomes.#take(delivery),
    });
    outcomes.#puller.request(AT_ONCE);
    return outcomes;
  }

  /** Messages in the queue of tasks; null = nobody can say now. */
  async queued(): Promise<number | null> {
    const facts = await this.#bus.stream(TASK_STREAM);
    return facts === null || 'failed' in facts ? null : facts.messages;
  }

  /** Messages that can still be read in the queue of tasks, and how many the server counts there; null = nobody can say now. */
  async left(): Promise<{ readonly messages: number; readonly counted: number; readonly seen: unknown } | null> {
    const found = await this.#bus.history(TASK_STREAM, new Subjects(ENVIRONMENT).tasks, MOST_LEFT);
    const counted = await this.queued();
    return 'failed' in found || counted === null ? null : { messages: found.length, counted, seen: await this.#seenOf(found) };
  }

  /** For whoever looks for the reason. */
  async #seenOf(found: readonly { readonly seq: number; readonly subject: string }[]): Promise<unknown> {
    const [stream, consumers] = await Promise.all([this.#bus.stream(TASK_STREAM), this.#bus.consumers(TASK_STREAM)]);
    return { stream, consumers, messages: found.map(({ seq, subject }) => `${seq} ${subject}`) };
  }

  async close(): Promise<void> {
    this.#puller?.close();
    await this.#bus.close();
  }

  #take(delivery: Delivery): void {
    this.#puller?.request(1);
    ack(this.#bus, delivery);
    if (this.#seen.has(delivery.streamSeq)) return;
    this.#seen.add(delivery.streamSeq);
    const newline = delivery.data.indexOf(0x0a);
    const event = eventIn(delivery.data.toString('utf8', 0, newline < 0 ? delivery.data.length : newline));
    // On its way: received, or waiting for its next try.
    if (event?.kind === 'state' && (event.state === 'received' || event.state === 'waiting')) return;
    if (event === null || event.kind !== 'state' || !FINAL_STATES.has(event.state)) {
      this.strange.push(`inbox entry ${delivery.streamSeq} is no end of a task: ${delivery.data.toString('utf8', 0, 200)}`);
      return;
    }
    this.tasks.add(event.task_id);
    this.all.push({
      taskId: event.task_id,
      powerId: event.power_id,
      capability: event.capability,
      state: event.state,
      code: event.code,
      cause: event.cause,
      by: event.by,
      attempts: event.attempts,
      replay: event.replay,
      answer: newline < 0 ? '' : delivery.data.toString('utf8', newline + 1),
      atMs: event.at_ms,
    });
  }
}

function eventIn(line: string): TaskEvent | null {
  try {
    return JSON.parse(line) as TaskEvent | null;
  } catch {
    return null;
  }
}
