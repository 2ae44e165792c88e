/**
 * The red button over HTTP: make an override, look at those there are, lift one. Every replica answers, leading or not, before it
 * has read the registry and while nobody leads: all it needs is NATS. An order is answered when it is in force everywhere
 * that can be heard, or after a second, with who is missing.
 */
import { parseDuration } from '../../base/duration.ts';
import { type Random, systemRandom } from '../../base/random.ts';
import type { OverrideEntry } from '../../proto/wire/overrides.ts';
import { OVERRIDE_ACTIONS } from '../../proto/wire/overrides.ts';
import { withAdded } from '../overrides/book.ts';
import { DEFAULT_WAIT_MS, DRAFT_KEYS, draftOf } from '../overrides/draft.ts';
import type { Ordered, OverrideDesk } from '../overrides/desk.ts';
import { reachOf, unknownName } from '../overrides/reach.ts';
import { NO_OVERRIDES } from '../../proto/wire/overrides.ts';
import type { OverrideLifted, OverrideOrdered, OverridesAnswer, OverrideShown, OverrideTried, OverrideView } from './override-shapes.ts';
import type { Plane } from './plane.ts';
import { absent, conflict, invalid, type Refused, unavailable } from './problem.ts';
import { type Asked, bodyMap, json, type Reply, type Route, strayKey } from './route.ts';

const MAX_REASON_CHARS = 500;

const BODY = {
  type: 'object',
  required: ['target', 'reason'],
  properties: {
    id: { type: 'string', description: 'Chosen by the asker, so that the order can be repeated safely; absent: one is made.' },
    action: {
      enum: OVERRIDE_ACTIONS,
      description:
        'block: nothing begins (2006) · drain: nothing new begins · degrade: the declared fallback answers · reroute: `to` serves. Absent: block.',
    },
    target: {
      type: 'object',
      additionalProperties: false,
      description: 'All that are given must match. agent: either side, as provider and as caller. all stands alone and needs confirm.',
      properties: {
        capability: { type: 'string', examples: ['crm.order.query', 'crm.order.*'] },
        provider: { type: 'string', examples: ['crm.order.a', 'team:crm'] },
        agent: { type: 'string' },
        caller: { type: 'string' },
        all: { const: true },
      },
    },
    to: {
      type: 'string',
      description: 'For reroute.',
      examples: ['crm.order.cached', 'crm.order.query@^1.0', '@^1.0', 'provider:crm.order.b'],
    },
    cut: {
      type: 'boolean',
      description:
        'For block: what is under way is cancelled at once (2006), streams with an error at their end. Absent: it ends in peace.',
    },
    reason: { type: 'string', maxLength: MAX_REASON_CHARS, description: 'Callers whose calls are refused read it.' },
    for: { type: 'string', description: 'How long it lasts: a duration such as 30m, or forever. Absent: 1h.' },
    confirm: { type: 'boolean', description: 'It is meant although it covers everything, or a name that nobody has.' },
    dry_run: { type: 'boolean', description: 'Nothing is written: says what it would hit.' },
    wait: { type: 'string', description: 'How long the answer waits for sidecars to say that it is in force, at most 10s. Absent: 1s.' },
  },
};

export function overrideRoutes(plane: Plane, random: Random = systemRandom): readonly Route[] {
  const id = [{ name: 'id', doc: 'Of the override.', example: 'block-7f3k2qab' }];
  return [
    {
      method: 'POST',
      path: '/v1/overrides',
      role: 'operator',
      onLeader: false,
      summary: 'The red button: blocks, drains, reroutes or degrades, everywhere, at once. Any replica does it.',
      body: { contentType: 'application/json', doc: 'What, whom, why, for how long.', schema: BODY },
      answer: {
        status: 201,
        doc: 'It is written, and in force at `in_force` of `of` sidecars; `missing` says who lacks it and why. 200: it stood already, or a dry run.',
      },
      handle: (asked) => add(plane, asked, random),
    },
    {
      method: 'GET',
      path: '/v1/overrides',
      role: 'viewer',
      onLeader: false,
      summary: 'The overrides that last, each with where it is in force.',
      answer: { status: 200, doc: 'Oldest first. The counts outside are of the newest list.' },
      handle: () => json(listed(plane.overrides)),
    },
    {
      method: 'GET',
      path: '/v1/overrides/:id',
      role: 'viewer',
      onLeader: false,
      summary: 'One override, and where it is in force.',
      params: id,
      answer: { status: 200, doc: 'The override.' },
      handle: ({ params }) => {
        const entry = plane.overrides.overrides.find((each) => each.id === params['id']);
        return entry === undefined ? notThere(plane.overrides, params['id'] ?? '') : json(shown(plane.overrides, entry));
      },
    },
    {
      method: 'DELETE',
      path: '/v1/overrides/:id',
      role: 'operator',
      onLeader: false,
      summary: 'Lifts an override: what waits because of it goes on.',
      params: id,
      query: [
        { name: 'reason', doc: 'Why it is lifted; stands in the audit log.' },
        { name: 'wait', doc: 'How long the answer waits for sidecars, at most 10s; 1s when absent.' },
      ],
      answer: { status: 200, doc: 'It is lifted, and that is in force at `in_force` of `of` sidecars.' },
      handle: (asked) => lift(plane, asked),
    },
  ];
}

async function add(plane: Plane, asked: Asked, random: Random): Promise<Reply> {
  const map = bodyMap(asked);
  if (typeof map === 'string') return invalid(map);
  const stray = strayKey(map, DRAFT_KEYS);
  if (stray !== null) return invalid(stray);
  const draft = draftOf(map, { author: asked.operator?.name ?? '', nowMs: plane.overrides.wallMs, random });
  if (typeof draft === 'string') return invalid(draft);
  const { entry, isConfirmed, isDry, waitMs } = draft;
  // Of a registry that has not been read nothing can be said; the button works all the same.
  const isRead = plane.status === 'leading' || plane.status === 'following';
  const unknown = isRead ? unknownName(plane.registry(), entry) : null;
  const warnings = unknown === null ? [] : [unknown];
  if (isDry) return json(tried(plane, entry, isConfirmed ? null : unknown, warnings));
  if (unknown !== null && !isConfirmed)
    return invalid(`${unknown}${unknown.endsWith('?') ? '' : ';'} say "confirm": true when it is meant all the same`);
  const ordered = await plane.overrides.add(entry);
  if (!('entry' in ordered)) return refusalOf(plane, ordered);
  if (!ordered.isRepeated) record(plane, asked, 'override.set', ordered.entry, entry.reason);
  const count = await plane.overrides.counted(ordered.seq, waitMs);
  const answer: OverrideOrdered = {
    id: ordered.entry.id,
    seq: ordered.seq,
    ...count,
    override: viewOf(ordered.entry),
    repeated: ordered.isRepeated,
    warnings,
  };
  return json(answer, ordered.isRepeated ? 200 : 201);
}

function tried(plane: Plane, entry: OverrideEntry, unknown: string | null, warnings: readonly string[]): OverrideTried {
  const edit = withAdded({ ...NO_OVERRIDES, overrides: plane.overrides.overrides }, entry, plane.overrides.wallMs);
  const problem = 'problem' in edit ? edit.problem : unknown;
  return { dry_run: true, override: viewOf(entry), would_hit: reachOf(plane.registry(), entry), problem, warnings };
}

async function lift(plane: Plane, asked: Asked): Promise<Reply> {
  const reason = asked.query['reason'] ?? '';
  if (reason.length > MAX_REASON_CHARS) return invalid(`reason must be a text of at most ${MAX_REASON_CHARS} characters`);
  const waitMs = asked.query['wait'] === undefined ? DEFAULT_WAIT_MS : parseDuration(asked.query['wait'], 10_000);
  if (typeof waitMs === 'string') return invalid(`wait: ${waitMs}`);
  const ordered = await plane.overrides.lift(asked.params['id'] ?? '');
  if (!('entry' in ordered)) return refusalOf(plane, ordered);
  record(plane, asked, 'override.lift', ordered.entry, reason);
  const answer: OverrideLifted = {
    id: ordered.entry.id,
    seq: ordered.seq,
    lifted: true,
    ...(await plane.overrides.counted(ordered.seq, waitMs)),
  };
  return json(answer);
}

function refusalOf(plane: Plane, ordered: Exclude<Ordered, { entry: OverrideEntry }>): Refused {
  if ('failed' in ordered)
    return unavailable(
      `not written: ${ordered.failed}${plane.natsConnected ? '' : '; NATS is away from this replica'}. Ask another replica, or write directly: reachctl stop-bleeding --nats URL`,
    );
  if (ordered.kind === 'absent') return absent(ordered.problem);
  return ordered.kind === 'conflict' ? conflict(ordered.problem) : invalid(ordered.problem);
}

function record(plane: Plane, asked: Asked, action: string, entry: OverrideEntry, reason: string): void {
  plane.audit.record({
    actor: asked.operator?.name ?? '',
    role: asked.operator?.role ?? '',
    action,
    subject: entry.id,
    reason,
    detail: { action: entry.action, ...flat(entry), to: entry.to, cut: entry.cut, expires_at: viewOf(entry).expires_at },
    outcome: 'done',
  });
}

function flat({ target }: OverrideEntry): Record<string, string | boolean> {
  const words: Record<string, string | boolean> = {};
  for (const [name, value] of Object.entries(target)) if (value !== undefined) words[name] = value;
  return words;
}

/** Those that last, each with where it is in force. */
export function shownOverrides(desk: OverrideDesk): readonly OverrideShown[] {
  return desk.overrides.map((entry) => shown(desk, entry));
}

function listed(desk: OverrideDesk): OverridesAnswer {
  return {
    epoch: desk.epoch,
    seq: desk.seq,
    revision: desk.revision,
    ...desk.count(desk.seq),
    overrides: shownOverrides(desk),
  };
}

function shown(desk: OverrideDesk, entry: OverrideEntry): OverrideShown {
  return { ...viewOf(entry), ...desk.count(desk.sinceSeq(entry.id)) };
}

function notThere(desk: OverrideDesk, id: string): Refused {
  const names = desk.overrides.map((each) => each.id);
  return absent(
    `no override is called ${JSON.stringify(id.slice(0, 80))}: it may have been lifted or have run out${names.length === 0 ? '; none lasts' : `; there are ${names.slice(0, 20).join(', ')}`}`,
  );
}

export function viewOf({ id, action, target, to, cut, reason, author, at, expires_at: end }: OverrideEntry): OverrideView {
  const time = (ms: number): string => new Date(ms).toISOString();
  return { id, action, target, to, cut, reason, author, at: time(at), expires_at: end === null ? null : time(end) };
}
