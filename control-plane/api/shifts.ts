/** Shifts of traffic between versions and providers: begin one, watch it, stop it, take it back. */
import type { Leading } from '../push/leading.ts';
import type { ShiftDesk } from '../shifts/desk.ts';
import type { Side } from '../shifts/guard.ts';
import { readShift, SHIFT_KEYS } from '../shifts/reading.ts';
import type { Shift, ShiftStatus } from '../shifts/shift.ts';
import { carryOut } from './orders.ts';
import type { Plane } from './plane.ts';
import { absent, invalid, Refused } from './problem.ts';
import { type Asked, bodyMap, json, type Reply, type Route, strayKey } from './route.ts';

interface SideView {
  readonly calls: number;
  readonly errors: number;
  readonly p95_ms: number | null;
}

export interface ShiftView {
  readonly id: string;
  readonly capability: string;
  /** One of the two. */
  readonly version: string | null;
  readonly provider: string | null;
  readonly status: ShiftStatus;
  /** Shares 0–1. */
  readonly steps: readonly number[];
  readonly step: number;
  readonly share: number;
  readonly every_ms: number | null;
  readonly guard: {
    readonly errors: number | null;
    readonly p95: number | null;
    readonly min_calls: number;
    readonly window_ms: number;
  } | null;
  readonly author: string;
  readonly reason: string;
  readonly started_at_ms: number;
  readonly step_at_ms: number;
  readonly ended_at_ms: number | null;
  readonly why: string;
  /** Within the guard's window; null when it is over. */
  readonly measured: { readonly fresh: SideView; readonly old: SideView } | null;
}

export interface ShiftsAnswer {
  /** Newest first. */
  readonly shifts: readonly ShiftView[];
}

export type ShiftChange = ShiftView & { readonly seq: number };

const REASON = { type: 'string', maxLength: 500, description: 'Stands in the audit log.' };
const SHARE = {
  anyOf: [
    { type: 'number', exclusiveMinimum: 0, maximum: 1 },
    { type: 'string', pattern: '%$' },
  ],
};

export function shiftRoutes(plane: Plane): readonly Route[] {
  const params = [{ name: 'id', doc: 'As it was answered when it began.', example: 's7' }];
  const order = {
    method: 'POST',
    role: 'operator',
    onLeader: true,
    params,
    body: { contentType: 'application/json', doc: 'Why.', schema: { type: 'object', properties: { reason: REASON } } },
    answer: { status: 200, doc: 'As it stands now; in force at this sequence.' },
  } as const;
  return [
    {
      method: 'GET',
      path: '/v1/shifts',
      role: 'viewer',
      onLeader: true,
      summary: 'Shifts of traffic that are under way, and the last ones that are over.',
      answer: { status: 200, doc: 'Newest first.' },
      handle: () =>
        json({
          shifts: registryOf(plane)
            .shiftList()
            .map((one) => viewOf(plane, one)),
        } satisfies ShiftsAnswer),
    },
    {
      method: 'GET',
      path: '/v1/shifts/:id',
      role: 'viewer',
      onLeader: true,
      summary: 'One shift, with what was measured lately.',
      params,
      answer: { status: 200, doc: 'It.' },
      handle: (asked) => {
        const shift = find(plane, asked);
        return shift instanceof Refused ? shift : json(viewOf(plane, shift));
      },
    },
    {
      method: 'POST',
      path: '/v1/shifts',
      role: 'operator',
      onLeader: true,
      summary: 'Shifts traffic of a capability to a version or a provider, in steps, with a guard that takes it back when errors rise.',
      body: {
        contentType: 'application/json',
        doc: 'Where to, how much, how fast, and what must hold.',
        schema: {
          type: 'object',
          required: ['capability'],
          properties: {
            capability: { type: 'string' },
            version: { type: 'string', description: 'Exact; or provider.' },
            provider: { type: 'string', description: 'Agent id; or version.' },
            share: SHARE,
            steps: { type: 'array', items: SHARE, description: 'In place of share: shares that grow.' },
            every: { type: 'string', description: 'How long each step lasts at least, such as `5m`.' },
            guard: {
              type: ['object', 'null'],
              properties: { errors: SHARE, p95: SHARE, min_calls: { type: 'integer' }, window: { type: 'string' } },
              description: 'Left out: errors above 5 % of at least 50 attempts within a minute. null: none.',
            },
            reason: REASON,
          },
        },
      },
      answer: { status: 201, doc: 'It has begun; in force at this sequence.' },
      handle: (asked) => start(plane, asked),
    },
    {
      ...order,
      path: '/v1/shifts/:id/pause',
      summary: 'It stays where it is; nothing is judged.',
      handle: (asked) => change(plane, asked, 'pause', (desk, id) => desk.pause(id)),
    },
    {
      ...order,
      path: '/v1/shifts/:id/resume',
      summary: 'Goes on; its step begins anew.',
      handle: (asked) => change(plane, asked, 'resume', (desk, id) => desk.resume(id)),
    },
    {
      ...order,
      path: '/v1/shifts/:id/finish',
      summary: 'Goes to its last step at once, and is over.',
      handle: (asked) => change(plane, asked, 'finish', (desk, id, reason) => desk.finish(id, true, reason)),
    },
    {
      ...order,
      path: '/v1/shifts/:id/abort',
      summary: 'Puts back what was before it, and is over.',
      handle: (asked) => change(plane, asked, 'abort', (desk, id, reason) => desk.abort(id, reason)),
    },
  ];
}

const registryOf = (plane: Plane) => (plane.leading as Leading).registry;

async function start(plane: Plane, asked: Asked): Promise<Reply> {
  const map = bodyMap(asked);
  if (typeof map === 'string') return invalid(map);
  const stray = strayKey(map, SHIFT_KEYS);
  if (stray !== null) return invalid(stray);
  const order = readShift(map, asked.operator?.name ?? '');
  if (typeof order === 'string') return invalid(order);
  const registry = registryOf(plane);
  const outcome = registry.shift((desk) => desk.start(order));
  const begun = registry.shiftList()[0];
  const told = { what: 'shift.start', target: begun?.id ?? '', reason: order.reason, before: null };
  const seq = await carryOut(plane, asked, told, outcome, () => toldOf(begun));
  if (seq instanceof Refused) return seq;
  const shift = registry.shiftList().find((one) => one.id === begun?.id) as Shift;
  return json({ ...viewOf(plane, shift), seq } satisfies ShiftChange, 201);
}

async function change(
  plane: Plane,
  asked: Asked,
  verb: string,
  act: (desk: ShiftDesk, id: string, reason: string) => string | null,
): Promise<Reply> {
  const map = bodyMap(asked);
  if (typeof map === 'string') return invalid(map);
  const stray = strayKey(map, ['reason']);
  if (stray !== null) return invalid(stray);
  const reason = map['reason'] ?? '';
  if (typeof reason !== 'string' || reason.length > 500) return invalid('reason must be a text of at most 500 characters');
  const before = find(plane, asked);
  if (before instanceof Refused) return before;
  const registry = registryOf(plane);
  const now = (): Shift => registry.shiftList().find(({ id }) => id === before.id) ?? before;
  const order = { what: `shift.${verb}`, target: before.id, reason, before: toldOf(before) };
  const outcome = registry.shift((desk) => act(desk, before.id, reason));
  const seq = await carryOut(plane, asked, order, outcome, () => toldOf(now()));
  if (seq instanceof Refused) return seq;
  return json({ ...viewOf(plane, now()), seq } satisfies ShiftChange);
}

function find(plane: Plane, { params }: Asked): Shift | Refused {
  const id = params['id'] ?? '';
  const shift = registryOf(plane)
    .shiftList()
    .find((one) => one.id === id);
  return shift ?? absent(`no shift is called ${JSON.stringify(id.slice(0, 40))}; see them with reachctl shift list`);
}

function viewOf(plane: Plane, shift: Shift): ShiftView {
  const { target, guard } = shift;
  const figures = plane.leading?.shifts.figures(shift) ?? null;
  return {
    id: shift.id,
    capability: shift.capability,
    version: target.kind === 'version' ? target.name : null,
    provider: target.kind === 'provider' ? target.name : null,
    status: shift.status,
    steps: shift.steps,
    step: shift.step,
    share: shift.steps[shift.step] as number,
    every_ms: shift.everyMs === 0 ? null : shift.everyMs,
    guard: guard === null ? null : { errors: guard.errors, p95: guard.p95, min_calls: guard.minCalls, window_ms: guard.windowMs },
    author: shift.author,
    reason: shift.reason,
    started_at_ms: shift.startedAtMs,
    step_at_ms: shift.stepAtMs,
    ended_at_ms: shift.endedAtMs,
    why: shift.status === 'running' ? (figures?.why ?? '') : shift.why,
    measured: figures === null ? null : { fresh: sideOf(figures.fresh), old: sideOf(figures.old) },
  };
}

function sideOf({ calls, errors, p95Ms }: Side): SideView {
  return { calls, errors, p95_ms: p95Ms === null ? null : Number(p95Ms.toPrecision(3)) };
}

/** For the audit log. */
function toldOf(shift: Shift | undefined): object | null {
  if (shift === undefined) return null;
  const { capability, target, steps, step, status } = shift;
  return { capability, target: target.name, share: steps[step], steps: steps.join(' '), status };
}
