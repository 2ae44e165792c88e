/**
 * The four streams of messages: what they are to be. A full queue refuses what comes in and a full ledger too, so that
 * nothing accepted is ever dropped to make room; inboxes and what is kept for people lose their oldest entries. Whether
 * they are so is looked at again and again, since everything that waits depends on it.
 */
import type { StreamFacts, StreamSpec } from '../../base/jetstream.ts';
import type { Bus } from '../../base/nats.ts';
import { INBOX_STREAM, KEPT_STREAM, LEDGER_STREAM, type Subjects, TASK_STREAM } from '../../proto/wire/subjects.ts';
import type { MessagesConfig } from './config.ts';

/** Said outright, since servers of the newer lines have a limit of their own; and it cannot be changed later. */
const MAX_CONSUMERS = 20_000;
/** A publish is repeated within seconds; what remembers repeats for longer is the ledger. */
const DUPLICATE_WINDOW_MS = 120_000;

export function messageStreams(subjects: Subjects, config: MessagesConfig, replicas: number): readonly StreamSpec[] {
  return [
    {
      name: TASK_STREAM,
      description: 'Agent-Reach: tasks that wait for a worker',
      subjects: [subjects.tasks],
      storage: 'file',
      retention: 'workqueue',
      discard: 'new',
      maxBytes: config.tasks.bytes,
      maxMsgs: config.tasks.count,
      maxConsumers: MAX_CONSUMERS,
      duplicateWindowMs: DUPLICATE_WINDOW_MS,
      allowDirect: true,
      replicas,
    },
    {
      name: INBOX_STREAM,
      description: 'Agent-Reach: results and messages to agents',
      subjects: [subjects.inboxes],
      storage: 'file',
      retention: 'limits',
      discard: 'old',
      maxBytes: config.inbox.bytes,
      maxAgeMs: config.inbox.ageMs,
      maxConsumers: MAX_CONSUMERS,
      duplicateWindowMs: DUPLICATE_WINDOW_MS,
      allowDirect: true,
      replicas,
    },
    {
      name: LEDGER_STREAM,
      description: 'Agent-Reach: claims and results by key',
      subjects: [subjects.ledger],
      storage: 'file',
      retention: 'limits',
      discard: 'new',
      maxMsgsPerSubject: 1,
      maxBytes: config.ledger.bytes,
      maxMsgs: config.ledger.keys,
      maxAgeMs: config.ledger.ageMs,
      duplicateWindowMs: Math.min(DUPLICATE_WINDOW_MS, config.ledger.ageMs),
      allowDirect: true,
      replicas,
    },
    {
      name: KEPT_STREAM,
      description: 'Agent-Reach: what is kept for people',
      subjects: [subjects.allKept],
      storage: 'file',
      retention: 'limits',
      discard: 'old',
      maxBytes: config.kept.bytes,
      maxMsgs: config.kept.count,
      maxAgeMs: config.kept.ageMs,
      duplicateWindowMs: DUPLICATE_WINDOW_MS,
      allowDirect: true,
      replicas,
    },
  ];
}

export interface MessageStreamsReady {
  /** Streams that were made just now: what they held before, if anything, is gone. */
  readonly made: readonly string[];
  /** What the server did not take over, in words. */
  readonly warnings: readonly string[];
}

/** Makes sure of all of them; one sentence when it cannot. */
export async function readyMessageStreams(
  bus: Bus,
  subjects: Subjects,
  config: MessagesConfig,
  replicas: number,
): Promise<MessageStreamsReady | { readonly failed: string }> {
  const made: string[] = [];
  const warnings: string[] = [];
  for (const spec of messageStreams(subjects, config, replicas)) {
    const ready = await bus.ensureStream(spec);
    if ('failed' in ready)
      return {
        failed: /storage|resource/i.test(ready.failed)
          ? `${ready.failed}; NATS has no room for a stream of this size: make it smaller under control_plane.messages, or give NATS more`
          : ready.failed,
      };
    if (ready.change === 'created') made.push(spec.name);
    for (const each of ready.ignored) warnings.push(`stream ${spec.name}: the server did not take over ${each}`);
  }
  return { made, warnings };
}

/** As the server has them; what it did not answer in time is left out. Null = one is missing. Asked often. */
export async function lookAtStreams(bus: Bus): Promise<ReadonlyMap<string, StreamFacts> | null> {
  const facts = await Promise.all([TASK_STREAM, INBOX_STREAM, LEDGER_STREAM, KEPT_STREAM].map((name) => bus.stream(name)));
  const found = new Map<string, StreamFacts>();
  for (const each of facts) {
    if (each === null) return null;
    if (!('failed' in each)) found.set(each.name, each);
  }
  return found;
}

/** A stream that refuses or drops when it is full is named from here on. */
const NEARLY_FULL = 0.8;

/** 0 to 1, by bytes or by messages, whichever is nearer to its bound. */
export function fillOf({ messages, bytes, maxMessages, maxBytes }: StreamFacts): number {
  return Math.max(maxMessages > 0 ? messages / maxMessages : 0, maxBytes > 0 ? bytes / maxBytes : 0);
}

const WHEN_FULL: Readonly<Record<string, { readonly key: string; readonly then: string }>> = {
  [TASK_STREAM]: { key: 'tasks', then: 'submissions are refused' },
  [LEDGER_STREAM]: { key: 'ledger', then: 'no new key is taken: calls with a key are refused, and tasks that need a claim wait' },
  [KEPT_STREAM]: { key: 'kept', then: 'its oldest entries go unseen, and nobody is told of those that wait for a decision' },
};

/** A sentence for each stream that will soon refuse, or lose what somebody waits for. The same words as long as it is so, and not for each percent. Inboxes lose their oldest. */
export function fullness(streams: ReadonlyMap<string, StreamFacts>): string[] {
  const words: string[] = [];
  for (const [name, { key, then }] of Object.entries(WHEN_FULL)) {
    const facts = streams.get(name);
    const fill = facts === undefined ? 0 : fillOf(facts);
    if (fill < NEARLY_FULL) continue;
    const how = fill >= 0.995 ? 'is full' : fill >= 0.95 ? 'is full to more than 95 %' : 'is full to more than 80 %';
    words.push(`the stream ${name} ${how} (control_plane.messages.${key}); when it is full ${then}`);
  }
  return words;
}
