/**
 * The forms of durable pull consumers: what one is asked to be, and what the server says of it. Pure. The server counts time in
 * nanoseconds; here it is milliseconds, and this is the one place that turns one into the other.
 */
import { configIn, isJson, type Json, nanos, text, timestamp, whole } from './jetstream.ts';

/** Names of streams and consumers that stand in subjects of the API as one token. */
const NAME = /^[A-Za-z0-9_-]{1,255}$/;
/** Pull requests that may wait at once. The server's own default is 512, which many small sidecars of one pool would exceed. */
const MAX_WAITING = 2_048;

export interface ConsumerSpec {
  readonly stream: string;
  /** The durable's name, one token. */
  readonly name: string;
  /** Which of the stream's subjects it delivers, wildcards allowed. */
  readonly filter: string;
  /** A message that is not acknowledged within this time is delivered again. */
  readonly ackWaitMs: number;
  /** Delivered and not acknowledged, over all who pull, those that wait after a nak included. Far above what is worked on at a time. */
  readonly maxAckPending: number;
  /** Without end: what is delivered too often is dealt with by whoever works on it, never by the server, which would only hide it. */
  readonly maxDeliver: -1;
  /** From the first message the stream has, or what comes from now on. A work queue takes only `all`. */
  readonly deliver: 'all' | 'new';
  /** The server removes it when nobody pulled for so long. Left out: never. */
  readonly inactiveThresholdMs?: number;
}

export interface ConsumerFacts {
  readonly name: string;
  readonly filter: string;
  /** What was not delivered yet. */
  readonly pending: number;
  /** Delivered, and not acknowledged. */
  readonly ackPending: number;
  /** Of those, delivered more than once. */
  readonly redelivered: number;
  /** Pull requests that wait for messages. */
  readonly waiting: number;
  /** All messages of the stream up to this one are acknowledged or not for this consumer. */
  readonly ackFloorSeq: number;
  readonly deliveredSeq: number;
  /** How many deliveries there have been: the consumer's own sequence of the last one. */
  readonly deliveredConsumerSeq: number;
  /** When it delivered last, by the server's clock: right after a delivery, the server's time. 0 = never, or not said. */
  readonly deliveredAtMs: number;
  /** As the server has it, in nanoseconds. */
  readonly ackWaitNs: number;
  /** At so many that are delivered and not acknowledged nothing more comes; 0 = not said. */
  readonly maxAckPending: number;
  readonly created: string;
}

/** Null when names and numbers can be sent; else what is wrong. The filter is left to the server. */
export function specProblem(spec: ConsumerSpec): string | null {
  const named = nameProblem(spec.stream, spec.name);
  if (named !== null) return named;
  if (!Number.isInteger(spec.ackWaitMs) || spec.ackWaitMs < 100)
    return `an ack wait of ${spec.ackWaitMs} ms: whole milliseconds, at least 100, are needed`;
  return null;
}

export function nameProblem(stream: string, name: string): string | null {
  for (const each of [stream, name]) if (!NAME.test(each)) return `${JSON.stringify(each.slice(0, 80))} is no name of a stream or consumer`;
  return null;
}

/** The spec in the server's own spelling. */
export function wireConsumer(spec: ConsumerSpec): Record<string, unknown> {
  return {
    durable_name: spec.name,
    deliver_policy: spec.deliver,
    ack_policy: 'explicit',
    ack_wait: nanos(spec.ackWaitMs),
    max_deliver: spec.maxDeliver,
    filter_subject: spec.filter,
    replay_policy: 'instant',
    max_ack_pending: spec.maxAckPending,
    max_waiting: MAX_WAITING,
    ...(spec.inactiveThresholdMs === undefined ? {} : { inactive_threshold: nanos(spec.inactiveThresholdMs) }),
  };
}

export function consumerFacts(reply: Json): ConsumerFacts {
  const config = configIn(reply);
  return {
    name: text(reply['name']),
    filter: text(config['filter_subject']),
    pending: whole(reply['num_pending']),
    ackPending: whole(reply['num_ack_pending']),
    redelivered: whole(reply['num_redelivered']),
    waiting: whole(reply['num_waiting']),
    ackFloorSeq: streamSeq(reply['ack_floor']),
    deliveredSeq: streamSeq(reply['delivered']),
    deliveredConsumerSeq: isJson(reply['delivered']) ? whole(reply['delivered']['consumer_seq']) : 0,
    deliveredAtMs: isJson(reply['delivered']) ? timestamp(text(reply['delivered']['last_active'])) : 0,
    ackWaitNs: whole(config['ack_wait']),
    maxAckPending: whole(config['max_ack_pending']),
    created: text(reply['created']),
  };
}

function streamSeq(info: unknown): number {
  return isJson(info) ? whole(info['stream_seq']) : 0;
}
