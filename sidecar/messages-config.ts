/**
 * The sidecar's settings for durable messages (`sidecar.messages`). A file of its own beside `config.ts`, which has the rest;
 * the defaults stand here once, in the field that has them.
 */
import { agentId } from '../proto/language/settings-fields.ts';
import { type Bad, mapped, object, optional, required, type Shape } from '../proto/language/reader.ts';
import { defaultsOf } from '../proto/language/process-shapes.ts';
import { count, duration, list, number, size } from '../proto/language/shapes.ts';

/** Messages that an agent may submit: `perSec` go on for ever, `burst` at once. */
export interface RateSettings {
  readonly perSec: number;
  readonly burst: number;
}

/** Messages for the agents here. */
export interface WorkSettings {
  /** At once for an agent, calls counted; null = as many as its contract or policy allows calls. */
  readonly concurrency: number | null;
  /** Slots of each agent that only the high lane may take. */
  readonly reserveHigh: number;
  /** Hand-overs before a message is kept as dead. */
  readonly maxTries: number;
}

/** What is held in memory of the inboxes of the agents here. The stream has all of it for longer. */
export interface InboxSettings {
  readonly hotMs: number;
  /** Of all agents together. */
  readonly bytes: number;
  readonly agentBytes: number;
  readonly agentCount: number;
  /** Entries that the server is to hold for a successor of this process, until their agents have acknowledged them. */
  readonly unacknowledged: number;
}

export interface MessageSettings {
  readonly inbox: InboxSettings;
  readonly work: WorkSettings;
  readonly rate: RateSettings;
  /** Agents with a rate of their own. */
  readonly rates: readonly { readonly agent: string; readonly rate: RateSettings }[];
  /** How long a submission waits for the stream, all tries together. */
  readonly ackWaitMs: number;
  /** Submissions at once that wait for the stream. */
  readonly inFlight: number;
  /** Of a message whose sender names none, from its acceptance. */
  readonly expiresMs: number;
  /** Of one try, by message type; `other` for the types that are not named. */
  readonly timeouts: { readonly taskRequestMs: number; readonly healthCheckMs: number; readonly otherMs: number };
  /** Tasks whose state is remembered here; older ones are asked of the control plane. */
  readonly remembered: number;
  /** Results that are remembered with them. */
  readonly resultBytes: number;
  /** On this machine's disk, while NATS is away. */
  readonly outboxBytes: number;
}

const rateFields = {
  per_sec: required(number(0.001, 1_000_000), 'messages a second that go on for ever'),
  burst: optional<number, null>(count(1, 1_000_000), 'Messages at once. Absent: those of one second.', null, 'per_sec'),
};

function rateOf(read: { readonly per_sec: number; readonly burst: number | null }): RateSettings {
  return Object.freeze({ perSec: read.per_sec, burst: read.burst ?? Math.max(1, Math.ceil(read.per_sec)) });
}

const rate: Shape<RateSettings> = mapped(object('rate', rateFields), rateOf);

const rates: Shape<MessageSettings['rates']> = mapped(
  list(object('rate', { agent: required(agentId, 'the agent'), ...rateFields }), 10_000),
  (read) => read.map((one) => ({ agent: one.agent, rate: rateOf(one) })),
);

const timeoutsShape = object('map', {
  task_request: optional(
    duration(100, 86_400_000),
    'One try of a task_request, from the hand-over. An agent that takes longer says so (`POST /v1/tasks/{id}/extend`), which begins it anew, whether it has answered 202 and reports later or is still to answer.',
    30_000,
    '30s',
  ),
  health_check: optional(duration(100, 3_600_000), 'One try of a health_check: late is as good as dead.', 5_000, '5s'),
  other: optional(duration(100, 86_400_000), 'One try of a message of any other type.', 30_000, '30s'),
});

const workShape: Shape<WorkSettings> = mapped(
  object('map', {
    concurrency: optional<number, null>(
      count(1, 100_000),
      'Messages at once for an agent here, its calls counted with them, where that is to be less than `limits.per_provider`. Above it they wait in the queue, where another agent can take them.',
      null,
      'limits.per_provider',
    ),
    reserve_high: optional(
      count(0, 100_000),
      'Slots of each agent that only the high lane may take. For agents with long jobs: without it a high message waits until one of them ends.',
      0,
      '0',
    ),
    tries: optional(
      count(1, 100),
      'Times that a message is handed over before it is kept as dead. Seven, with pauses of 1 to 32 s between, outlast a restart.',
      7,
      '7',
    ),
  }),
  (read, place): WorkSettings | Bad => {
    if (read.concurrency !== null && read.reserve_high >= read.concurrency)
      return place.at('reserve_high').bad('reserve_high must be below concurrency: the other lanes would never have a slot');
    return { concurrency: read.concurrency, reserveHigh: read.reserve_high, maxTries: read.tries };
  },
);

const inboxShape: Shape<InboxSettings> = mapped(
  object('map', {
    hot: optional(
      duration(1_000, 86_400_000),
      'How long entries of inboxes are held in memory. What is older, or above the sizes below, is read through the control plane.',
      900_000,
      '15m',
    ),
    size: optional(size(65_536, 17_179_869_184), 'Of all agents together.', 67_108_864, '64MiB'),
    agent_size: optional(size(4_096, 1_073_741_824), 'Of one agent; its newest entry is always held.', 4_194_304, '4MiB'),
    agent_count: optional(count(1, 1_000_000), 'Entries of one agent.', 1_000, '1000'),
    unacknowledged: optional(
      count(100, 1_000_000),
      'Entries that NATS is told are still in hand until their agents acknowledge them, 256 an agent. Well below control_plane.messages.inbox.ack_pending, at which nothing more would come. Above it the oldest are only in the stream: they are read from there.',
      10_000,
      '10000',
    ),
  }),
  (read): InboxSettings => ({
    hotMs: read.hot,
    bytes: read.size,
    agentBytes: read.agent_size,
    agentCount: read.agent_count,
    unacknowledged: read.unacknowledged,
  }),
);

/** What stands under `messages`. */
export const messagesShape: Shape<MessageSettings> = mapped(
  object('map', {
    rate: optional(
      rate,
      'What each agent may submit. An agent that thinks sends a few a second; a hundred is a loop, or a batch that should say so.',
      Object.freeze({ perSec: 100, burst: 100 }),
      '{per_sec: 100, burst: 100}',
    ),
    rates: optional(
      rates,
      'Agents with a rate of their own, such as importers: {agent, per_sec, burst}.',
      Object.freeze([]) as MessageSettings['rates'],
      'none',
    ),
    ack_wait: optional(
      duration(1_000, 120_000),
      'How long a submission waits until the stream has it, all tries together; then it goes to the disk, or is refused. A fail-over of three replicas takes up to 7 s.',
      10_000,
      '10s',
    ),
    in_flight: optional(
      count(1, 1_000_000),
      'Submissions at once that wait for the stream. Each holds its message in memory; above it they are refused.',
      8_192,
      '8192',
    ),
    expires: optional(
      duration(1_000),
      'When a message is given up that nobody has begun to work on, where its sender names no time. From its acceptance.',
      86_400_000,
      '24h',
    ),
    timeouts: optional(timeoutsShape, 'What one try may take, from the hand-over, by message type.', defaultsOf(timeoutsShape)),
    remembered: optional(
      count(100, 10_000_000),
      'Tasks whose state this sidecar remembers, about 400 bytes each; of older ones the control plane is asked.',
      50_000,
      '50000',
    ),
    inbox: optional(inboxShape, 'Inboxes of the agents of this sidecar.', defaultsOf(inboxShape)),
    work: optional(workShape, 'Messages for the agents of this sidecar.', defaultsOf(workShape)),
    results: optional(size(65_536, 17_179_869_184), 'Results that are remembered with them.', 67_108_864, '64MiB'),
    outbox: optional(
      size(1_048_576, 1_099_511_627_776),
      'Of the messages that wait on this machine’s disk (in `state_dir`) while NATS is away; what comes above it is refused. With messages of 1 KiB at 100/s this holds for about 40 minutes.',
      268_435_456,
      '256MiB',
    ),
  }),
  (read): MessageSettings => ({
    inbox: read.inbox,
    work: read.work,
    rate: read.rate,
    rates: read.rates,
    ackWaitMs: read.ack_wait,
    inFlight: read.in_flight,
    expiresMs: read.expires,
    timeouts: {
      taskRequestMs: read.timeouts.task_request,
      healthCheckMs: read.timeouts.health_check,
      otherMs: read.timeouts.other,
    },
    remembered: read.remembered,
    resultBytes: read.results,
    outboxBytes: read.outbox,
  }),
);
