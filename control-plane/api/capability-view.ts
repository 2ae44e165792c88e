/**
 * One capability as somebody looks at it who has been called because of it: who serves it and in what condition, how it has been
 * doing, what limits it, what operators have ordered about it, and which calls failed. Every replica answers.
 */
import { nearest } from '../../base/suggest.ts';
import { codeEntry, isCode } from '../../proto/wire/codes.ts';
import { coversAgent, coversName } from '../../proto/language/covers.ts';
import type { AffinityRule, LimitsPolicy } from '../../proto/language/types.ts';
import { breakerStates } from '../overview/breakers.ts';
import { LATELY } from '../overview/capability-rows.ts';
import type { CapabilityView, ProviderView } from '../registry/views.ts';
import { isOver } from '../shifts/shift.ts';
import type { ToldSpan } from '../traces/read-batch.ts';
import { edgeView, type EdgeView, wallOf } from './overview.ts';
import type { OverrideShown } from './override-shapes.ts';
import { shownOverrides } from './overrides.ts';
import type { Plane } from './plane.ts';
import { absent } from './problem.ts';
import { type QuotaView, shownQuotas } from './quotas.ts';
import { json, type Reply, type Route } from './route.ts';
import { type Snake, snake } from './shapes.ts';

const BREAKERS_MS = 7_200_000;
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
  /** Calls at once that it takes; null = not limited. */
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
  /** By version: what its contract and the operators' policies say, field by field. */
  readonly limits: Readonly<Record<string, LimitsPolicy & { readonly timeoutMs: number | null; readonly deadlineMs: number | null }>>;
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
        doc: 'What is called lately is of the last 3 minutes. Breakers are known as far back as this replica listens, 2 hours at most.',
      },
      handle: ({ params }) => view(plane, params['name'] ?? ''),
    },
  ];
}

function view(plane: Plane, name: string): Reply {
  const registry = plane.registry();
  const all = registry.capabilities();
  const found = all.find((each) => each.capability === name);
  if (found === undefined) {
    const near = nearest(
      name,
      all.map((each) => each.capability),
    );
    return absent(`no capability is called ${JSON.stringify(name.slice(0, 200))}${near === null ? '' : `; did you mean ${near}?`}`);
  }
  const { traffic } = plane;
  const state = registry.capabilityStates(name)[0];
  const contracts = state?.contracts ?? [];
  const policies = state?.policies ?? [];
  const figures = traffic.capability(name, LATELY);
  const seconds = traffic.seconds(LATELY);
  const providers = registry.providers().filter(({ offers }) => offers.some((offer) => offer.startsWith(`${name}@`)));
  const serves = (agent: string): boolean => providers.some((each) => each.agent === agent);
  const answer: CapabilityViewAnswer = {
    ...snake(found),
    affinity: Object.fromEntries(contracts.map(({ version, affinity }) => [version, affinity])),
    limits: Object.fromEntries(
      contracts.map((contract) => [
        contract.version,
        {
          ...merged(
            contract.limits,
            policies.map((policy) => policy.limits),
          ),
          timeoutMs: last([contract.timeoutMs, ...policies.map((policy) => policy.timeoutMs)]),
          deadlineMs: last([contract.deadlineMs, ...policies.map((policy) => policy.deadlineMs)]),
        },
      ]),
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
    provider_list: servingViews(
      plane,
      name,
      providers,
      policies.map((policy) => policy.limits.perProvider),
    ),
    callers: traffic
      .edges(LATELY)
      .filter((edge) => edge.capability === name)
      .slice(0, MAX_CALLERS)
      .map((edge) => edgeView(edge, seconds)),
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
    failures: failures(plane, name, serves),
  };
  return json(answer);
}

function servingViews(
  plane: Plane,
  name: string,
  providers: readonly ProviderView[],
  policySlots: readonly (number | null)[],
): ServingView[] {
  const { clock, traffic } = plane;
  const breakers = breakerStates(traffic.breakerMoves(BREAKERS_MS), clock.now()).filter(({ capability }) => capability === name);
  const served = traffic.providers(LATELY).filter(({ capability }) => capability === name);
  const slots = new Map(
    plane
      .registry()
      .capabilityStates(name)
      .flatMap((state) => state.providers.map(({ record }) => [record.agentId, record.limits.perProvider] as const)),
  );
  return providers.map((provider): ServingView => {
    const breaker = breakers.find((each) => each.provider === provider.agent);
    const of = served.filter((each) => each.provider === provider.agent);
    const busiest = of.toSorted((a, b) => b.figures.attempts - a.figures.attempts)[0]?.figures;
    return {
      ...snake(provider),
      versions: provider.offers.filter((offer) => offer.startsWith(`${name}@`)).map((offer) => offer.slice(name.length + 1)),
      breaker: {
        state: breaker?.state ?? 'closed',
        sidecars: breaker?.sidecars ?? [],
        why: breaker?.why ?? '',
        since_ms: breaker === undefined ? null : wallOf(clock, breaker.atMs),
      },
      slots: slots.get(provider.agent) ?? last(policySlots),
      attempts: of.reduce((sum, { figures }) => sum + figures.attempts, 0),
      failures: of.reduce((sum, { figures }) => sum + figures.failures, 0),
      p50_ms: busiest?.times.quantile(0.5) ?? null,
      p95_ms: busiest?.times.quantile(0.95) ?? null,
    };
  });
}

/** Those of which this replica holds the trace, newest first; and those that sidecars gave as examples. */
function failures({ traces, traffic }: Plane, name: string, serves: (agent: string) => boolean): FailureView[] {
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
  for (const { capability, caller, provider, figures } of traffic.edges(LATELY)) {
    if (capability !== name) continue;
    for (const { trace_id: id, code, elapsed_ms: elapsed } of figures.examples)
      if (code !== 0 && !found.has(id))
        found.set(id, { trace_id: id, code, name: nameOf(code), elapsed_ms: elapsed, caller, provider, at_ms: null });
  }
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

/** The strongest that says something. @param values weakest first */
function last<T>(values: readonly (T | null)[]): T | null {
  return values.findLast((value) => value !== null) ?? null;
}

/** Field by field. */
function merged(weakest: LimitsPolicy, stronger: readonly LimitsPolicy[]): LimitsPolicy {
  const all = [weakest, ...stronger];
  return {
    perCaller: last(all.map((each) => each.perCaller)),
    perProvider: last(all.map((each) => each.perProvider)),
    requestBytes: last(all.map((each) => each.requestBytes)),
    responseBytes: last(all.map((each) => each.responseBytes)),
    eventBytes: last(all.map((each) => each.eventBytes)),
  };
}
