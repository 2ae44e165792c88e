/** The audit log as it is asked for: pages, single entries, and entries as they come. Whoever may look may read it: it holds no secrets. */
import type { Timer } from '../../base/clock.ts';
import { type AuditBook, type Cursor, cursorText, type Kept, readCursor, type Wanted } from '../audit/book.ts';
import type { Plane } from './plane.ts';
import { absent, invalid, Refused, unavailable } from './problem.ts';
import { type Asked, type Described, json, type Reply, type Route } from './route.ts';
import { timeIn } from './times.ts';
import type { AuditAnswer, AuditView } from './audit-shapes.ts';

const MAX_LIMIT = 1_000;
const FOLLOW_MS = 500;
const OUTCOMES = ['done', 'refused', 'audited'];

const FILTERS: readonly Described[] = [
  { name: 'actor', doc: 'Who: exact, or with * at the end.', example: 'ada' },
  { name: 'action', doc: 'What was done: exact, or with * at the end.', example: 'override.*' },
  { name: 'subject', doc: 'To what: exact, or with * at the end.', example: 'crm.order.*' },
  { name: 'outcome', doc: `One of ${OUTCOMES.join(', ')}.` },
];

export function auditRoutes(plane: Plane): readonly Route[] {
  const read = { method: 'GET', role: 'viewer', onLeader: false } as const;
  const book = plane.auditBook;
  return [
    {
      ...read,
      path: '/v1/audit',
      summary: 'What operators did, and what was refused to them and by sidecars.',
      query: [
        ...FILTERS,
        { name: 'since', doc: 'Not older: a duration back from now, or a time in RFC 3339.', example: '24h' },
        { name: 'until', doc: 'Not newer, in the same forms.' },
        { name: 'order', doc: '`newest` first, as usual, or `oldest`.' },
        { name: 'limit', doc: `At most this many; 1 to ${MAX_LIMIT}, usually 100.` },
        { name: 'cursor', doc: '`next` of the page before. It stays good while entries come in.' },
      ],
      answer: {
        status: 200,
        doc: 'Entries; `next` is null when there are no more. A page looks at a bounded number of entries, so one may be empty and have a `next`.',
      },
      handle: (asked) => page(plane, book, asked),
    },
    {
      ...read,
      path: '/v1/audit/follow',
      summary: 'Entries as they are stored, as server-sent events named `entry`.',
      query: FILTERS,
      answer: { status: 200, doc: 'Goes on until the asker leaves.', contentType: 'text/event-stream' },
      handle: (asked) => follow(plane, book, asked),
    },
    {
      ...read,
      path: '/v1/audit/:id',
      summary: 'One entry.',
      params: [{ name: 'id', doc: 'As it stands in the list.', example: 'a17' }],
      answer: { status: 200, doc: 'The entry.' },
      handle: async ({ params }) => {
        const id = params['id'] ?? '';
        const kept = await book.one(id);
        if (kept === null) return absent(`there is no entry ${JSON.stringify(id.slice(0, 40))}, or not any more`);
        return 'failed' in kept ? unread(kept.failed) : json(viewOf(kept));
      },
    },
  ];
}

async function page(plane: Plane, book: AuditBook, { query }: Asked): Promise<Reply> {
  const wanted = wantedIn(plane, query);
  if (wanted instanceof Refused) return wanted;
  const found = await book.page(wanted);
  if ('failed' in found) return unread(found.failed);
  const answer: AuditAnswer = {
    entries: found.entries.map(viewOf),
    next: found.next === null ? null : cursorText(found.next),
    looked: found.looked,
  };
  return json(answer);
}

async function follow(plane: Plane, book: AuditBook, { query }: Asked): Promise<Reply> {
  const wanted = wantedIn(plane, query);
  if (wanted instanceof Refused) return wanted;
  const start = await book.end();
  if ('failed' in start) return unread(start.failed);
  return {
    start: (out) => {
      let timer: Timer | null = null;
      let isOver = false;
      let at: Cursor = start;
      const look = async (): Promise<void> => {
        const found = await book.page({ ...wanted, order: 'oldest', cursor: at, limit: MAX_LIMIT });
        if (isOver) return;
        if (!('failed' in found)) {
          at = found.end;
          for (const kept of found.entries) if (!out.event('entry', viewOf(kept))) return;
        }
        timer = plane.clock.after(FOLLOW_MS, () => void look());
      };
      out.event('hello', { replica: plane.name, cursor: cursorText(at) });
      void look();
      return () => {
        isOver = true;
        timer?.cancel();
      };
    },
  };
}

function wantedIn(plane: Plane, query: Readonly<Record<string, string>>): Wanted | Refused {
  const { outcome = null, order = 'newest' } = query;
  if (outcome !== null && !OUTCOMES.includes(outcome)) return invalid(`outcome must be one of ${OUTCOMES.join(', ')}`);
  if (order !== 'newest' && order !== 'oldest') return invalid('order must be newest or oldest');
  const limit = Number(query['limit'] ?? 100);
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_LIMIT) return invalid(`limit must be a whole number from 1 to ${MAX_LIMIT}`);
  const sinceMs = timeIn(plane.clock, query['since'], 0);
  if (sinceMs === null) return invalid('since must be a duration such as 24h, or a time such as 2026-05-01T12:00:00Z');
  const untilMs = timeIn(plane.clock, query['until'], Number.MAX_SAFE_INTEGER);
  if (untilMs === null) return invalid('until must be a duration such as 24h, or a time such as 2026-05-01T12:00:00Z');
  const cursor = query['cursor'] === undefined ? null : readCursor(query['cursor']);
  if (query['cursor'] !== undefined && cursor === null) return invalid('cursor must be the `next` of a page');
  const { actor = null, action = null, subject = null } = query;
  return { actor, action, subject, outcome, sinceMs, untilMs, limit, order, cursor };
}

function viewOf({ id, storedAtMs, entry }: Kept): AuditView {
  return { id, stored_at_ms: storedAtMs, ...entry };
}

const unread = (why: string): Refused => unavailable(`the audit log cannot be read: ${why}`);
