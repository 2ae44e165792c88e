/**
 * What an agent's inboxes hold, in the order of the stream: entries of this version have their writer's name in the subject, those
 * of the version before have none, and no one pattern of NATS means both and nothing else.
 */
import type { Stored } from '../../base/jetstream.ts';
import type { Failed } from '../../base/jetstream-api.ts';
import type { Bus } from '../../base/nats.ts';
import { INBOX_STREAM, type Subjects } from '../../proto/wire/subjects.ts';

/** At most `limit` of them, from a position on. */
export async function inboxPage(
  bus: Pick<Bus, 'history'>,
  subjects: Subjects,
  agent: string,
  limit: number,
  from: number,
): Promise<Stored[] | Failed> {
  const pages = await Promise.all(subjects.inboxesOf(agent).map((pattern) => bus.history(INBOX_STREAM, pattern, limit, from)));
  const all: Stored[] = [];
  for (const page of pages) {
    if ('failed' in page) return page;
    all.push(...page);
  }
  return all.sort((a, b) => a.seq - b.seq).slice(0, limit);
}
