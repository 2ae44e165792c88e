/**
 * One capability as somebody looks at it who has been called because of it: who serves it and in what condition, how it has been
 * doing, what limits it, what operators have ordered about it, and which calls failed. Every replica answers.
 */
import { nearest } from '../../base/suggest.ts';
import { codeEntry, isCode } from '../../proto/wire/codes.ts';
import { coversAgent, coversName } from '../../proto/language/covers.ts';
import { mergeSettings, providerLimit } from '../../proto/language/merge.ts';
import type { LimitsSettings } from '../../proto/language/settings.ts';
import type { AffinityRule } from '../../proto/language/types.ts';
import type { CapabilityState } from '../../proto/wire/registry.ts';
import { breakersOf } from '../overview/breakers.ts';
import { LATELY, NO_CAPABILITY } from '../overview/capability-rows.ts';
import type { CapabilityView, ProviderView } from '../registry/views.ts';
import { isOver } from '../shifts/shift.ts';
import type { ToldSpan } from '../traces/read-batch.ts';
import type { AttemptFigures } from '../traffic/figures.ts';
import type { EdgeFigures } from '../traffic/traffic.ts';
import { edgeView, type EdgeView, wallOf } from './overview.ts';
import type { OverrideShown } from './override-shapes.ts';
import { shownOverrides } from './overrides.ts';
import type { Plane } from './plane.ts';
import { absent } from './problem.ts';
import { type QuotaView, shownQuotas } from './quotas.ts';
import { json, type Reply, type Route } from './route.ts';
import { type Snake, snake } from './shapes.ts';

const MINUTES = 60;
const MAX_FAILURES = 20;
const MAX_CALLERS = 100;

export interface BreakerView {
  readonly state: 'closed' | 'open' | 'half_open' | 'ramping';
  /** Sidecars at which it is not closed. */
  readonly sidecars: readonly string[];
  readonly why: string;
  /** Wall clock; null = it is closed, or nothing is known of it. */
  readonly since_ms: number | null;
}

export type ServingView = Snake<ProviderView> & {
  /** Of this capability. */
  readonly versions: readonly string[];
  readonly breaker: BreakerView;
  /** Calls of this capability at once that it is given; null = it is in nobody's table. */
  readonly slots: number | null;
  /** Lately, of all callers. */
  readonly attempts: number;
  readonly failures: number;
  readonly p50_ms: number | null;
  readonly p95_ms: number | null;
};

export interface FailureView {
  readonly trace_id: string;
  readonly code: number;
  /** Of the code; '' = none. */
  readonly name: string;
  readonly elapsed_ms: number;
  /** '' = not known. */
  readonly caller: string;
  readonly provider: string;
  /** Wall clock; null = not known. */
  readonly at_ms: number | null;
}

export interface CapabilityViewAnswer extends Snake<CapabilityView> {
  /** By version, newest first: where the key of a session is read; null = none. */
  readonly affinity: Readonly<Record<string, AffinityRule | null>>;
  /** By version: what holds, of the shipped defaults, its contract and the operators' policies. */
  readonly limits: Readonly<Record<string, LimitsSettings & { readonly timeoutMs: number; readonly deadlineMs: number }>>;
  readonly lately: {
    readonly calls: number;
    readonly calls_per_s: number;
    readonly error_share: number;
    readonly p50_ms: number | null;
    readonly p95_ms: number | null;
    readonly p99_ms: number | null;
    readonly codes: readonly { readonly code: number; readonly name: string; readonly count: number }[];
  };
  /** The last hour, oldest first; the running minute last. */
  readonly minutes: readonly { readonly at_ms: number; readonly calls: number; readonly failed: number; readonly p95_ms: number | null }[];
  readonly provider_list: readonly ServingView[];
  readonly callers: readonly EdgeView[];
  readonly quotas: readonly QuotaView[];
  readonly overrides: readonly OverrideShown[];
  /** Shifts of traffic that go on. */
  readonly shifts: readonly { readonly id: string; readonly to: string; readonly share: number; readonly status: string }[];
  /** Newest first. */
  readonly failures: readonly FailureView[];
}

export function capabilityViewRoutes(plane: Plane): readonly Route[] {
  return [
    {
      method: 'GET',
      path: '/v1/capabilities/:name/view',
      role: 'viewer',
      onLeader: false,
      summary: 'One capability with all that goes on around it: providers and their breakers, figures, limits, orders, failures.',
      params: [{ name: 'name', doc: 'Canonical name.', example: 'crm.order.query' }],
      answer: {
        status: 200,
        doc: 'What is called lately is of the last 3 minutes. A name that nobody has registered is shown too when it was asked for, without versions and providers. Breakers are known as far back as this replica listens, 2 hours at most.',
      },
      handle: ({ params }) => view(plane, params['name'] ?? ''),
    },
  ];
}

function view(plane: Plane, name: string): Reply {
  const registry = plane.registry();
  const all = registry.capabilities();
  const found = all.find((each) => each.capability === name) ?? (isHeardOf(plane, name) ? unregistered(name) : undefined);
  if (found === undefined) {
    const near = nearest(
      name,
      all.map((each) => each.capability),
    );
    return absent(`no capability is called ${JSON.stringify(name.slice(0, 200))}${near === null ? '' : `; did you mean ${near}?`}`);
  }
  const { traffic } = plane;
  const states = registry.capabilityStates(name);
  const contracts = states[0]?.contracts ?? [];
  const policies = states[0]?.policies ?? [];
  const edges = traffic.edges(LATELY, name);
  const figures = traffic.capability(name, LATELY);
  const seconds = traffic.seconds(LATELY);
  const providers = registry.providers().filter(({ offers }) => offers.some((offer) => offer.startsWith(`${name}@`)));
  const serves = (agent: string): boolean => providers.some((each) => each.agent === agent);
  const answer: CapabilityViewAnswer = {
    ...snake(found),
    affinity: Object.fromEntries(contracts.map(({ version, affinity }) => [version, affinity])),
    limits: Object.fromEntries(
      contracts.map((contract) => {
        const { limits, timeoutMs, deadlineMs } = mergeSettings(contract, policies);
        return [contract.version, { ...limits, timeoutMs, deadlineMs }];
      }),
    ),
    lately: {
      calls: figures?.calls ?? 0,
      calls_per_s: (figures?.calls ?? 0) / seconds,
      error_share: figures?.errorShare ?? 0,
      p50_ms: figures?.times.quantile(0.5) ?? null,
      p95_ms: figures?.times.quantile(0.95) ?? null,
      p99_ms: figures?.times.quantile(0.99) ?? null,
      codes: [...(figures?.codes ?? [])].map(([code, count]) => ({ code, name: nameOf(code), count })).sort((a, b) => b.count - a.count),
    },
    minutes: traffic.minutes(name, MINUTES).map((minute) => ({
      at_ms: Math.round(minute.startMs),
      calls: minute.figures?.calls ?? 0,
      failed: minute.figures?.failed ?? 0,
      p95_ms: minute.figures?.times.quantile(0.95) ?? null,
    })),
    provider_list: servingViews(plane, name, providers, slotsIn(states)),
    callers: edges.slice(0, MAX_CALLERS).map((edge) => edgeView(edge, seconds)),
    quotas: shownQuotas(plane, ({ kind, target }) =>
      kind === 'capability' ? fits(target, name) : kind === 'provider' && providers.some(({ agent }) => fits(target, agent)),
    ),
    overrides: shownOverrides(plane.overrides).filter(({ target }) =>
      target.capability === undefined
        ? target.all === true ||
          [target.provider, target.agent].some(
            (pattern) => pattern !== undefined && providers.some(({ agent }) => coversAgent(pattern, agent)),
          )
        : coversName(target.capability, name),
    ),
    shifts: registry
      .shiftList()
      .filter((shift) => shift.capability === name && !isOver(shift))
      .map(({ id, target, steps, step, status }) => ({ id, to: `${target.kind} ${target.name}`, share: steps[step] ?? 0, status })),
    failures: failures(plane, name, edges, serves),
  };
  return json(answer);
}

/** Nobody has registered it, and yet it is asked for, failed, offered or ordered about: what leads here from there must not end. */
function isHeardOf(plane: Plane, name: string): boolean {
  const { traffic, traces, overrides } = plane;
  return (
    !NO_CAPABILITY.has(name) &&
    (traffic.minutes(name, MINUTES).some(({ figures }) => figures !== null) ||
      plane
        .registry()
        .providers()
        .some(({ offers }) => offers.some((offer) => offer.startsWith(`${name}@`))) ||
      shownOverrides(overrides).some(({ target }) => target.capability === name) ||
      [...traces.all()].some((trace) => trace.names('c', (each) => each === name)))
  );
}

function unregistered(capability: string): CapabilityView {
  return { capability, aliases: [], versions: [], online: 0, providers: 0, policies: [], canary: null, defaultRange: null };
}

function servingViews(plane: Plane, name: string, providers: readonly ProviderView[], slots: ReadonlyMap<string, number>): ServingView[] {
  const { clock, traffic } = plane;
  const breakers = breakersOf(traffic, clock.now()).filter(({ capability }) => capability === name);
  // Of all versions.
  const served = new Map<string, AttemptFigures>();
  for (const { provider, figures } of traffic.providers(LATELY, name)) {
    const known = served.get(provider);
    if (known === undefined) served.set(provider, figures);
    else known.merge(figures);
  }
  return providers.map((provider): ServingView => {
    const breaker = breakers.find((each) => each.provider === provider.agent);
    const figures = served.get(provider.agent);
    return {
      ...snake(provider),
      versions: provider.offers.filter((offer) => offer.startsWith(`${name}@`)).map((offer) => offer.slice(name.length + 1)),
      breaker: {
        state: breaker?.state ?? 'closed',
        sidecars: breaker?.sidecars ?? [],
        why: breaker?.why ?? '',
        since_ms: breaker === undefined ? null : wallOf(clock, breaker.atMs),
      },
      slots: slots.get(provider.agent) ?? null,
      attempts: figures?.attempts ?? 0,
      failures: figures?.failures ?? 0,
      p50_ms: figures?.times.quantile(0.5) ?? null,
      p95_ms: figures?.times.quantile(0.95) ?? null,
    };
  });
}

/** What sidecars work out of the same state (`sidecar/table/compile.ts`): of several versions the smallest counts. */
function slotsIn(states: readonly CapabilityState[]): Map<string, number> {
  const { name = '', contracts = [], policies = [] } = states[0] ?? {};
  const settings = new Map(contracts.map((contract) => [contract.version, mergeSettings(contract, policies)]));
  const slots = new Map<string, number>();
  for (const { record } of states.flatMap(({ providers }) => providers))
    for (const offer of record.offers) {
      const line = offer.name === name ? settings.get(offer.version) : undefined;
      if (line === undefined) continue;
      slots.set(record.agentId, Math.min(providerLimit(record, line, policies), slots.get(record.agentId) ?? Number.POSITIVE_INFINITY));
    }
  return slots;
}

/** Those of which this replica holds the trace, newest first; and those that sidecars gave as examples. */
function failures({ traces }: Plane, name: string, edges: readonly EdgeFigures[], serves: (agent: string) => boolean): FailureView[] {
  const found = new Map<string, FailureView>();
  const held = [...traces.all()].filter((trace) => trace.failed && trace.names('f', (each) => each === name));
  for (const trace of held.sort((a, b) => b.startMs - a.startMs).slice(0, MAX_FAILURES)) {
    const span = hopOf(trace.spans(), name);
    const provider = span?.provider ?? '';
    found.set(trace.id, {
      trace_id: trace.id,
      code: span?.code ?? trace.head.code,
      name: nameOf(span?.code ?? trace.head.code),
      elapsed_ms: span?.elapsed_ms ?? trace.endMs - trace.startMs,
      caller: span?.caller ?? trace.head.caller,
      provider: serves(provider) ? provider : '',
      at_ms: Math.round(span?.start_ms ?? trace.startMs),
    });
  }
  for (const { caller, provider, figures } of edges)
    for (const { trace_id: id, code, elapsed_ms: elapsed } of figures.examples)
      if (code !== 0 && !found.has(id))
        found.set(id, { trace_id: id, code, name: nameOf(code), elapsed_ms: elapsed, caller, provider, at_ms: null });
  return [...found.values()].slice(0, MAX_FAILURES);
}

/** The failed hop by which its caller was told, or what comes nearest to it. */
function hopOf(spans: readonly ToldSpan[], name: string): ToldSpan | undefined {
  const failed = spans.filter((span) => span.capability === name && span.code !== 0);
  for (const stage of ['outbound', 'deliver', 'inbound'] as const) {
    const found = failed.find((span) => span.stage === stage);
    if (found !== undefined) return found;
  }
  return failed[0];
}

const nameOf = (code: number): string => (isCode(code) ? codeEntry(code).name : '');

/** Three segments, each a name or `*`. */
function fits(target: string, name: string): boolean {
  const parts = name.split('.');
  return target.split('.').every((part, i) => part === '*' || part === parts[i]);
}
