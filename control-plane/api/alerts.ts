/** Alerts as they stand, and silences: what is known and is being worked on need not be told again. */
import { parseDuration } from '../../base/duration.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import { Tail } from '../../proto/wire/subjects.ts';
import { type Alert, ALERT_KINDS, type AlertKind, type Silence, type StoredAlerts } from '../alerts/alert.ts';
import { AlertBook } from '../alerts/book.ts';
import { readStored } from '../alerts/stored.ts';
import type { Leading } from '../push/leading.ts';
import { recordOrder } from './audited.ts';
import type { Plane } from './plane.ts';
import { absent, conflict, invalid, unavailable } from './problem.ts';
import { type Asked, bodyMap, json, type Reply, type Route, strayKey } from './route.ts';

export interface AlertView {
  readonly id: string;
  readonly kind: AlertKind;
  readonly subject: string;
  readonly state: Alert['state'];
  readonly since_ms: number;
  readonly fired_ms: number | null;
  readonly resolved_ms: number | null;
  readonly words: string;
  readonly silenced_until_ms: number | null;
  readonly value: number;
  readonly limit: number;
  readonly capability: string | null;
  readonly agent: string | null;
  readonly sidecar: string | null;
  readonly trace_id: string | null;
  /** A command that shows more. */
  readonly look: string;
  /** Operators have been told of its present state, or need not be. */
  readonly told: boolean;
}

export interface SilenceView {
  readonly id: string;
  readonly kind: AlertKind | null;
  readonly subject: string;
  readonly until_ms: number;
  readonly reason: string;
  readonly author: string;
  readonly created_ms: number;
}

export interface AlertsAnswer {
  /** Those that fire first, the newest first; then the pending ones, then those that are resolved. */
  readonly alerts: readonly AlertView[];
  readonly silences: readonly SilenceView[];
}

export type SilenceAnswer = SilenceView & { readonly seq: number };

const MOST_MS = 30 * 86_400_000;
const MOST_CHARS = 500;
const ORDER: Readonly<Record<Alert['state'], number>> = { firing: 0, pending: 1, resolved: 2 };
const KEYS = ['kind', 'subject', 'for', 'until_ms', 'reason'];
const KINDS: readonly unknown[] = ALERT_KINDS;

/** Of the leader as they are at this moment, of another replica as they were last stored. */
export function alertsOf(plane: Pick<Plane, 'leading' | 'mirror' | 'clock'>): AlertsAnswer {
  const nowMs = plane.clock.wallMs();
  const book = plane.leading?.alerts.book ?? storedBook(readStored(plane.mirror.state(Tail.alerts)), nowMs);
  return {
    alerts: book.alerts
      .map((alert) => viewOf(alert, book.silencedUntil(alert, nowMs)))
      .sort((a, b) => ORDER[a.state] - ORDER[b.state] || b.since_ms - a.since_ms),
    silences: book.silences.filter(({ untilMs }) => untilMs > nowMs).map(silenceView),
  };
}

export function alertRoutes(plane: Plane): readonly Route[] {
  return [
    {
      method: 'GET',
      path: '/v1/alerts',
      role: 'viewer',
      onLeader: false,
      summary: 'What is wrong or is becoming so, what was wrong within a day, and what is silenced.',
      query: [{ name: 'state', doc: 'Only those: pending, firing or resolved.', example: 'firing' }],
      answer: { status: 200, doc: 'Those that fire come first.' },
      handle: ({ query }) => {
        const { state } = query;
        if (state !== undefined && !Object.hasOwn(ORDER, state)) return invalid('state is pending, firing or resolved');
        const { alerts, silences } = alertsOf(plane);
        return json({ alerts: alerts.filter((one) => state === undefined || one.state === state), silences } satisfies AlertsAnswer);
      },
    },
    {
      method: 'POST',
      path: '/v1/alerts/silences',
      role: 'operator',
      onLeader: true,
      action: 'alert.silence',
      summary:
        'Tells nobody of alerts of a kind and subject for a time. They are still shown, and what still fires afterwards is told then.',
      body: {
        contentType: 'application/json',
        doc: 'Which alerts, for how long, and why.',
        schema: {
          type: 'object',
          required: ['subject', 'reason'],
          properties: {
            kind: { enum: [...ALERT_KINDS, null], description: 'Left out: every kind.' },
            subject: { type: 'string', maxLength: MOST_CHARS, description: 'As the alert has it; `*` stands for any run of characters.' },
            for: { type: 'string', description: 'How long, such as `2h`, at most 30d; or until_ms.' },
            until_ms: { type: 'integer', description: 'Until when, in milliseconds since 1970.' },
            reason: { type: 'string', maxLength: MOST_CHARS },
          },
        },
      },
      answer: { status: 201, doc: 'It is in force; with its id.' },
      handle: (asked) => silence(plane, asked),
    },
    {
      method: 'DELETE',
      path: '/v1/alerts/silences/:id',
      role: 'operator',
      onLeader: true,
      action: 'alert.unsilence',
      summary: 'Lifts a silence: what still fires is told.',
      params: [{ name: 'id', doc: 'As it was answered when it was made.', example: 'q3' }],
      answer: { status: 200, doc: 'It is lifted.' },
      handle: (asked) => unsilence(plane, asked),
    },
  ];
}

async function silence(plane: Plane, asked: Asked): Promise<Reply> {
  const map = bodyMap(asked);
  if (typeof map === 'string') return invalid(map);
  const stray = strayKey(map, KEYS);
  if (stray !== null) return invalid(stray);
  const nowMs = plane.clock.wallMs();
  const { kind = null, subject, reason } = map;
  if (kind !== null && !KINDS.includes(kind)) return invalid(`kind is ${ALERT_KINDS.join(', ')}, or left out`);
  if (!isText(subject)) return invalid(`subject must be a text of 1 to ${MOST_CHARS} characters: as the alert has it, or with *`);
  if (!isText(reason)) return invalid(`reason must be a text of 1 to ${MOST_CHARS} characters: whoever finds the silence will ask`);
  const untilMs = untilOf(map, nowMs);
  if (typeof untilMs === 'string') return invalid(untilMs);
  const leading = plane.leading as Leading;
  const author = asked.operator?.name ?? '';
  const made = leading.alerts.silence({ kind: kind as AlertKind | null, subject, untilMs, reason, author, createdMs: nowMs });
  if (typeof made === 'string') return conflict(made);
  const written = await leading.inTime(leading.alerts.save());
  if (!written.ok) return unavailable(`not in force everywhere: ${written.why}`);
  const view = silenceView(made);
  recordOrder(plane, asked, {
    what: 'alert.silence',
    target: made.id,
    before: null,
    after: { kind, subject, until: new Date(untilMs).toISOString() },
    reason,
  });
  return json({ ...view, seq: written.seq } satisfies SilenceAnswer, 201);
}

async function unsilence(plane: Plane, asked: Asked): Promise<Reply> {
  const id = asked.params['id'] ?? '';
  const leading = plane.leading as Leading;
  const lifted = leading.alerts.unsilence(id);
  if (lifted === null) return absent(`no silence is called ${JSON.stringify(id.slice(0, 40))}; see them with reachctl alerts list`);
  const written = await leading.inTime(leading.alerts.save());
  if (!written.ok) return unavailable(`not in force everywhere: ${written.why}`);
  recordOrder(plane, asked, {
    what: 'alert.unsilence',
    target: id,
    before: { kind: lifted.kind, subject: lifted.subject, until: new Date(lifted.untilMs).toISOString() },
    after: null,
    reason: '',
  });
  return json({ ...silenceView(lifted), seq: written.seq } satisfies SilenceAnswer);
}

function untilOf(map: Readonly<Record<string, unknown>>, nowMs: number): number | string {
  const { for: lasting, until_ms: until } = map;
  if ((lasting === undefined) === (until === undefined)) return 'say either for, such as 2h, or until_ms';
  if (lasting !== undefined) {
    const ms = parseDuration(lasting, MOST_MS);
    if (typeof ms === 'string') return `for: ${ms}`;
    return ms > 0 ? nowMs + ms : 'for must be longer than nothing';
  }
  if (typeof until !== 'number' || !Number.isSafeInteger(until)) return 'until_ms must be milliseconds since 1970';
  return until > nowMs && until <= nowMs + MOST_MS ? until : 'until_ms must lie ahead, 30 days at most';
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value.trim() !== '' && value.length <= MOST_CHARS;
}

function storedBook(stored: StoredAlerts | null, nowMs: number): AlertBook {
  const book = new AlertBook(REGISTRY_WIRE, stored?.epoch ?? '');
  if (stored !== null) book.load(stored, nowMs);
  return book;
}

function viewOf(alert: Alert, silencedUntilMs: number | null): AlertView {
  return {
    id: alert.id,
    kind: alert.kind,
    subject: alert.subject,
    state: alert.state,
    since_ms: alert.sinceMs,
    fired_ms: alert.firedMs,
    resolved_ms: alert.resolvedMs,
    words: alert.words,
    silenced_until_ms: silencedUntilMs,
    value: alert.value,
    limit: alert.limit,
    capability: alert.capability,
    agent: alert.agent,
    sidecar: alert.sidecar,
    trace_id: alert.traceId,
    look: alert.look,
    told: alert.state === 'resolved' ? alert.toldResolved : alert.state === 'firing' && alert.toldFiring,
  };
}

function silenceView({ id, kind, subject, untilMs, reason, author, createdMs }: Silence): SilenceView {
  return { id, kind, subject, until_ms: untilMs, reason, author, created_ms: createdMs };
}
