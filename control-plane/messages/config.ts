/**
 * Settings of the control plane that concern messages: how much the streams hold, how consumers wait, when a partition
 * moves, whom an operator's notice goes to. Every default stands here once, with its reason in its words. Streams that are
 * there already are brought to these bounds when the control plane starts.
 */
import type { SecretSource } from '../../base/secret.ts';
import { addressProblem } from '../../proto/language/http-text.ts';
import { defaultsOf, secret } from '../../proto/language/process-shapes.ts';
import { mapped, object, optional } from '../../proto/language/reader.ts';
import { count, duration, size, text } from '../../proto/language/shapes.ts';

export interface MessagesConfig {
  readonly tasks: { readonly bytes: number; readonly count: number };
  readonly inbox: { readonly bytes: number; readonly ageMs: number; readonly ackWaitMs: number; readonly ackPending: number };
  readonly ledger: { readonly bytes: number; readonly keys: number; readonly ageMs: number };
  readonly kept: { readonly bytes: number; readonly count: number; readonly ageMs: number };
  readonly pools: number;
  readonly ackWaitMs: number;
  readonly ackPending: number;
  readonly stickyGraceMs: number;
  readonly notices: NoticesConfig | null;
}

export interface NoticesConfig {
  readonly webhook: string;
  /** null = not signed. */
  readonly secret: SecretSource | null;
}

const MIB = 1_048_576;
const GIB = 1_073_741_824;
const TIB = 1_099_511_627_776;
const DAY_MS = 86_400_000;

const tasksShape = object('map', {
  size: optional(
    size(MIB, TIB),
    'Bytes that wait at most; above it submissions are refused (7001), never dropped. NATS sets this much disk aside.',
    GIB,
    '1GiB',
  ),
  count: optional(count(1_000, 1_000_000_000), 'Messages that wait at most.', 1_000_000, '1000000'),
});

const inboxShape = object('map', {
  size: optional(size(MIB, TIB), 'Bytes of all inboxes together; above it the oldest entries go first.', GIB, '1GiB'),
  age: optional(duration(60_000, 30 * DAY_MS), 'How long results and messages to agents are kept for resuming.', DAY_MS, '24h'),
  ack_wait: optional(
    duration(2_000, 600_000),
    'Silence of a home sidecar after which what it has not acknowledged is given to it again.',
    60_000,
    '60s',
  ),
  ack_pending: optional(
    count(100, 10_000_000),
    'Entries that one sidecar may have taken for its agents and not acknowledged: those of agents that are away count.',
    100_000,
    '100000',
  ),
});

const ledgerShape = object('map', {
  keys: optional(
    count(1_000, 1_000_000_000),
    'Keys remembered at most; above it keyed work is refused, none is forgotten early. The server needs about 290 bytes of memory a key: this many need 580 MB, and 100 keyed tasks a second for 24 hours would need 2.5 GB.',
    2_000_000,
    '2000000',
  ),
  size: optional(size(MIB, TIB), 'Bytes of all records together, the kept results included.', GIB, '1GiB'),
  age: optional(duration(60_000, 30 * DAY_MS), 'How long a key is remembered: repeats within it get the first answer.', DAY_MS, '24h'),
});

const keptShape = object('map', {
  size: optional(
    size(MIB, TIB),
    'Bytes of what is kept for people (dead letters, in doubt, to be reviewed); above it the oldest go first.',
    GIB / 4,
    '256MiB',
  ),
  count: optional(count(100, 100_000_000), 'Entries kept at most.', 100_000, '100000'),
  age: optional(duration(60_000, 30 * DAY_MS), 'How long an entry waits for a person.', 30 * DAY_MS, '30d'),
});

const webhook = text('an http or https address', (value) => addressProblem(value));

const noticesShape = object('map', {
  webhook: optional(
    webhook,
    'Where new entries (dead, in doubt, to be reviewed) are told, as JSON by POST. Several together when they come fast; an entry may come twice, and has an id.',
    null,
    'nobody is told',
  ),
  secret: optional(
    secret,
    'Signs each notice: header `Reach-Signature: t=<seconds>,v1=<HMAC-SHA256 of "<t>.<body>", hex>`. {env: NAME}, {file: path}, or the text itself.',
    null,
    'not signed',
  ),
});

export const messagesShape = mapped(
  object('map', {
    tasks: optional(tasksShape, 'Tasks that wait for a worker (stream AR_TASKS).', defaultsOf(tasksShape)),
    inbox: optional(inboxShape, 'Inboxes of agents (stream AR_INBOX).', defaultsOf(inboxShape)),
    ledger: optional(ledgerShape, 'Claims and results by key (stream AR_IDEM).', defaultsOf(ledgerShape)),
    kept: optional(keptShape, 'What is kept for people (stream AR_DLQ).', defaultsOf(keptShape)),
    pools: optional(
      count(1, 10_000),
      'Pools (capability, version, tags) that tasks wait in. Each has three consumers, a sticky one eight; NATS is good for about this many.',
      600,
      '600',
    ),
    ack_wait: optional(
      duration(2_000, 600_000),
      'Silence of a worker after which its tasks go to another. Sidecars extend every few seconds; shorter: quicker take-over, and a pause may cost a second start.',
      20_000,
      '20s',
    ),
    ack_pending: optional(
      count(100, 1_000_000),
      'Tasks of one lane that may be with workers or wait for their next try. Far above what is worked on at a time: a task that waits for its next try counts.',
      20_000,
      '20000',
    ),
    sticky_grace: optional(
      duration(0, 3_600_000),
      'How long the owner of sticky partitions that said goodbye keeps them: a restart within it moves nothing.',
      30_000,
      '30s',
    ),
    notices: optional(noticesShape, 'Operators’ notices.', defaultsOf(noticesShape)),
  }),
  (read, place): MessagesConfig | ReturnType<typeof place.bad> => {
    const { webhook: url, secret: signing } = read.notices;
    if (url === null && signing !== null) return place.at('notices', 'secret').bad('a secret needs a webhook');
    return {
      tasks: { bytes: read.tasks.size, count: read.tasks.count },
      inbox: { bytes: read.inbox.size, ageMs: read.inbox.age, ackWaitMs: read.inbox.ack_wait, ackPending: read.inbox.ack_pending },
      ledger: { bytes: read.ledger.size, keys: read.ledger.keys, ageMs: read.ledger.age },
      kept: { bytes: read.kept.size, count: read.kept.count, ageMs: read.kept.age },
      pools: read.pools,
      ackWaitMs: read.ack_wait,
      ackPending: read.ack_pending,
      stickyGraceMs: read.sticky_grace,
      notices: url === null ? null : { webhook: url, secret: signing },
    };
  },
);

/** Every default. */
export const DEFAULT_MESSAGES: MessagesConfig = defaultsOf(messagesShape);
