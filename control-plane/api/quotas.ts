/** Quotas set at run time: list, look at, set, take back. In force on every sidecar within a second, without a restart. */
import { nearest } from '../../base/suggest.ts';
import { type Quota, type QuotaKind, QUOTA_KINDS, quotaKey } from '../../proto/wire/quotas.ts';
import { Tail } from '../../proto/wire/subjects.ts';
import { QUOTA_KEYS, readQuota, targetOf } from '../quotas/reading.ts';
import type { Leading } from '../push/leading.ts';
import { carryOut } from './orders.ts';
import type { Plane } from './plane.ts';
import { absent, invalid, Refused } from './problem.ts';
import { type Asked, bodyMap, json, type Reply, type Route, strayKey } from './route.ts';

export interface QuotaView {
  readonly kind: QuotaKind;
  readonly target: string;
  readonly calls_per_sec: number | null;
  readonly calls_burst: number | null;
  readonly messages_per_sec: number | null;
  readonly messages_burst: number | null;
  readonly in_flight: number | null;
  readonly reason: string;
  readonly author: string;
  readonly at_ms: number;
  readonly expires_at_ms: number | null;
  /** Over all sidecars, since each of them began to count. */
  readonly taken: number;
  readonly refused: number;
}

/** On how many sidecars the newest state of the quotas is in force. */
export interface InForceView {
  readonly on: number;
  readonly of: number;
  /** At most ten names. */
  readonly missing: readonly string[];
}

export interface QuotasAnswer {
  readonly quotas: readonly QuotaView[];
  readonly in_force: InForceView;
}

export interface QuotaAnswer {
  readonly quota: QuotaView;
  readonly in_force: InForceView;
}

export interface QuotaChange {
  readonly kind: QuotaKind;
  readonly target: string;
  /** null = taken back. */
  readonly quota: QuotaView | null;
  /** What looks like a slip; '' = nothing does. */
  readonly warning: string;
  readonly seq: number;
  /** After a second at most. */
  readonly in_force: InForceView;
}

const MAX_MISSING = 10;
const WAIT_MS = 1_000;
const LOOK_MS = 25;

export function quotaRoutes(plane: Plane): readonly Route[] {
  const params = [
    { name: 'kind', doc: QUOTA_KINDS.join(', '), example: 'agent' },
    { name: 'target', doc: 'Three segments with * for any; the quota of each that it covers.', example: 'sales.*.*' },
  ];
  const rate = { type: 'number', exclusiveMinimum: 0 };
  const count = { type: 'integer', minimum: 1 };
  return [
    {
      method: 'GET',
      path: '/v1/quotas',
      role: 'viewer',
      onLeader: false,
      summary: 'Quotas set at run time, with what they let through and refused.',
      query: [{ name: 'kind', doc: `Only those of one kind: ${QUOTA_KINDS.join(', ')}.` }],
      answer: { status: 200, doc: 'By kind and target.' },
      handle: ({ query }) => list(plane, query['kind']),
    },
    {
      method: 'GET',
      path: '/v1/quotas/:kind/:target',
      role: 'viewer',
      onLeader: false,
      summary: 'One quota.',
      params,
      answer: { status: 200, doc: 'It, and on how many sidecars the newest state is in force.' },
      handle: (asked) => show(plane, asked),
    },
    {
      method: 'PUT',
      path: '/v1/quotas/:kind/:target',
      role: 'operator',
      onLeader: true,
      summary: 'Sets a quota, in place of the one that there is. Buckets in use keep what is in them.',
      params,
      body: {
        contentType: 'application/json',
        doc: 'Its limits; what is not named is not limited by it.',
        schema: {
          type: 'object',
          properties: {
            calls_per_sec: rate,
            calls_burst: { ...count, description: "At once; a second's worth when left out." },
            messages_per_sec: { ...rate, description: 'Agents only.' },
            messages_burst: count,
            in_flight: { ...count, description: 'Calls at once; agents and providers only.' },
            for: { type: 'string', description: 'Such as `2h`; then it falls away by itself.' },
            reason: { type: 'string', maxLength: 500, description: 'Stands in the audit log.' },
          },
        },
      },
      answer: { status: 200, doc: 'In force at this sequence.' },
      handle: (asked) => put(plane, asked),
    },
    {
      method: 'DELETE',
      path: '/v1/quotas/:kind/:target',
      role: 'operator',
      onLeader: true,
      summary: 'Takes a quota back.',
      params,
      query: [{ name: 'reason', doc: 'Stands in the audit log.' }],
      answer: { status: 200, doc: 'In force at this sequence.' },
      handle: (asked) => remove(plane, asked),
    },
  ];
}

/** Those of which `isOf` says so, with what they have let through and refused. */
export function shownQuotas(plane: Plane, isOf: (quota: Quota) => boolean): QuotaView[] {
  const quotas = plane.registry().operators().quotas.quotas.filter(isOf);
  if (quotas.length === 0) return [];
  const hits = hitsOf(plane);
  return quotas.map((one) => viewOf(one, hits));
}

function list(plane: Plane, kind: string | undefined): Reply {
  if (kind !== undefined && !QUOTA_KINDS.some((one) => one === kind)) return invalid(`kind is one of ${QUOTA_KINDS.join(', ')}`);
  const quotas = shownQuotas(plane, (one) => kind === undefined || one.kind === kind);
  return json({ quotas, in_force: inForce(plane) } satisfies QuotasAnswer);
}

function show(plane: Plane, asked: Asked): Reply {
  const named = nameIn(asked);
  if (named instanceof Refused) return named;
  const quota = find(plane, named);
  if (quota === null) return unknown(plane, named);
  return json({ quota: viewOf(quota, hitsOf(plane)), in_force: inForce(plane) } satisfies QuotaAnswer);
}

async function put(plane: Plane, asked: Asked): Promise<Reply> {
  const named = nameIn(asked);
  if (named instanceof Refused) return named;
  const map = bodyMap(asked);
  if (typeof map === 'string') return invalid(map);
  const stray = strayKey(map, QUOTA_KEYS);
  if (stray !== null) return invalid(stray);
  const { kind, target } = named;
  const quota = readQuota(kind, target, map, asked.operator?.name ?? '', plane.clock.wallMs());
  if (typeof quota === 'string') return invalid(quota);
  const { registry } = plane.leading as Leading;
  const order = { what: 'quota.set', target: quotaKey(kind, target), reason: quota.reason, before: toldOf(find(plane, named)) };
  const seq = await carryOut(plane, asked, order, registry.setQuota(quota), () => toldOf(quota));
  if (seq instanceof Refused) return seq;
  const warning = slipIn(plane, kind, target);
  return json({
    kind,
    target,
    quota: viewOf(quota, hitsOf(plane)),
    warning,
    seq,
    in_force: await inForceSoon(plane),
  } satisfies QuotaChange);
}

async function remove(plane: Plane, asked: Asked): Promise<Reply> {
  const named = nameIn(asked);
  if (named instanceof Refused) return named;
  const reason = asked.query['reason'] ?? '';
  if (reason.length > 500) return invalid('reason must be a text of at most 500 characters');
  const before = find(plane, named);
  if (before === null) return unknown(plane, named);
  const { kind, target } = named;
  const { registry } = plane.leading as Leading;
  const order = { what: 'quota.remove', target: quotaKey(kind, target), reason, before: toldOf(before) };
  const seq = await carryOut(plane, asked, order, registry.removeQuota(kind, target), () => null);
  if (seq instanceof Refused) return seq;
  return json({ kind, target, quota: null, warning: '', seq, in_force: await inForceSoon(plane) } satisfies QuotaChange);
}

interface Named {
  readonly kind: QuotaKind;
  readonly target: string;
}

function nameIn({ params }: Asked): Named | Refused {
  const kind = QUOTA_KINDS.find((one) => one === params['kind']);
  if (kind === undefined)
    return invalid(`a quota is of an ${QUOTA_KINDS.join(', a ')}, not of ${JSON.stringify((params['kind'] ?? '').slice(0, 40))}`);
  const read = targetOf(kind, params['target'] ?? '');
  return 'problem' in read ? invalid(read.problem) : { kind, target: read.target };
}

function find(plane: Plane, { kind, target }: Named): Quota | null {
  return (
    plane
      .registry()
      .operators()
      .quotas.quotas.find((one) => one.kind === kind && one.target === target) ?? null
  );
}

function unknown(plane: Plane, { kind, target }: Named): Refused {
  const { quotas } = plane.registry().operators().quotas;
  const near = nearest(
    target,
    quotas.filter((one) => one.kind === kind).map((one) => one.target),
  );
  return absent(`there is no quota of the ${kind} ${target}${near === null ? '' : `; there is one of ${near}`}`);
}

/** A name that nobody has yet may come; one that nearly is a name is more likely a slip. */
function slipIn(plane: Plane, kind: QuotaKind, target: string): string {
  if (kind === 'agent' || target.includes('*')) return '';
  const registry = plane.registry();
  const known = kind === 'capability' ? registry.capabilityNames() : registry.providers().map(({ agent }) => agent);
  if (known.includes(target)) return '';
  const near = nearest(target, known);
  return `no ${kind} is called ${target} at present${near === null ? '' : `; did you mean ${near}?`}`;
}

function hitsOf(plane: Plane): Map<string, { taken: number; refused: number }> {
  const sums = new Map<string, { taken: number; refused: number }>();
  for (const { quotas } of plane.fleet.reports())
    for (const [key, { taken, refused }] of Object.entries(quotas?.hits ?? {})) {
      const sum = sums.get(key) ?? { taken: 0, refused: 0 };
      sum.taken += taken;
      sum.refused += refused;
      sums.set(key, sum);
    }
  return sums;
}

/** When every sidecar has said so, or after a second. */
async function inForceSoon(plane: Plane): Promise<InForceView> {
  const until = plane.clock.now() + WAIT_MS;
  for (;;) {
    const view = inForce(plane);
    if (view.on === view.of || plane.clock.now() >= until) return view;
    await new Promise<void>((done) => void plane.clock.after(LOOK_MS, done));
  }
}

function inForce(plane: Plane): InForceView {
  const seq = plane.mirror.get(Tail.quotas)?.seq ?? 0;
  const missing: string[] = [];
  let of = 0;
  for (const { standing, sidecar } of plane.fleet.rows(plane.clock.now())) {
    of++;
    const report = plane.fleet.report(sidecar);
    if (standing === 'missing' || (report?.quotas?.seq ?? 0) < seq) missing.push(sidecar);
  }
  return { on: of - missing.length, of, missing: missing.slice(0, MAX_MISSING) };
}

function viewOf(quota: Quota, hits: ReadonlyMap<string, { taken: number; refused: number }>): QuotaView {
  const { kind, target, reason, author } = quota;
  const { taken, refused } = hits.get(quotaKey(kind, target)) ?? { taken: 0, refused: 0 };
  return { kind, target, ...limitsOf(quota), reason, author, at_ms: quota.atMs, expires_at_ms: quota.expiresAtMs, taken, refused };
}

function limitsOf({ calls, messages, inFlight }: Quota) {
  return {
    calls_per_sec: calls?.perSec ?? null,
    calls_burst: calls?.burst ?? null,
    messages_per_sec: messages?.perSec ?? null,
    messages_burst: messages?.burst ?? null,
    in_flight: inFlight,
  };
}

/** For the audit log. */
function toldOf(quota: Quota | null): object | null {
  return quota === null ? null : { ...limitsOf(quota), expires_at_ms: quota.expiresAtMs };
}
