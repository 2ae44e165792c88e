/**
 * Every capability in one line: what was asked of it lately, how that ended, and who is left to serve it; worst first. And what is
 * wrong with it, in sentences. Lately is the last two whole minutes and the one that runs: of less, a capability with a call each
 * ten seconds would tell nothing, and of more it would still be red when it is long well again.
 */
import { Code, codeEntry, isCode } from '../../proto/wire/codes.ts';
import { OTHER } from '../../proto/wire/digests.ts';
import type { ProviderView } from '../registry/views.ts';
import type { Example, Figures } from '../traffic/figures.ts';
import type { ProviderFigures, Traffic, Window } from '../traffic/traffic.ts';
import type { BreakerState } from './breakers.ts';
import { counted, named, percent, type Problem, problem } from './problem.ts';

export const LATELY: Window = Object.freeze({ minutes: 2 });
export const LATELY_WORDS = 'in the last 3 minutes';

/** What a caller has brought on itself, or an operator has ordered: no fault of who serves. */
const OWN_FAULT: ReadonlySet<number> = new Set([
  Code.blocked_by_operator,
  Code.caller_busy,
  Code.rate_limited,
  Code.unauthenticated,
  Code.forbidden,
  Code.invalid_request,
  Code.payload_too_large,
  Code.bad_name,
  Code.in_flight,
  Code.key_reused,
  Code.affinity_key_missing,
  Code.deadline_too_short,
  Code.cancelled,
]);

/** Fewer failures may be chance. */
const FEW = 3;
const WARNING_SHARE = 0.05;
const CRITICAL_SHARE = 0.2;
const CRITICAL_FAILURES = 5;
/** A provider is named when it has so much of the failed attempts. */
const MOSTLY = 0.8;
/** Single ones are named; of more there is one sentence. */
const MANY = 8;

export interface CapabilityRow {
  readonly capability: string;
  /** null = it was not called. */
  readonly figures: Figures | null;
  /** Failures that are not the callers' own. */
  readonly faults: number;
  readonly providers: readonly ProviderView[];
  readonly online: number;
  readonly open: readonly BreakerState[];
}

/** All that have a provider or were called. */
export function capabilityRows(traffic: Traffic, providers: readonly ProviderView[], breakers: readonly BreakerState[]): CapabilityRow[] {
  const serving = new Map<string, Set<ProviderView>>();
  for (const provider of providers)
    for (const offer of provider.offers) {
      const name = offer.slice(0, offer.indexOf('@'));
      const known = serving.get(name);
      if (known === undefined) serving.set(name, new Set([provider]));
      else known.add(provider);
    }
  for (const name of traffic.capabilities(LATELY)) if (!serving.has(name) && name !== OTHER && name !== '') serving.set(name, new Set());
  const open = new Map<string, BreakerState[]>();
  for (const breaker of breakers) {
    if (breaker.state !== 'open') continue;
    const known = open.get(breaker.capability);
    if (known === undefined) open.set(breaker.capability, [breaker]);
    else known.push(breaker);
  }
  return [...serving].map(([capability, set]) => {
    const list = [...set];
    const figures = traffic.capability(capability, LATELY);
    return {
      capability,
      figures,
      faults: figures === null ? 0 : faultsOf(figures),
      providers: list,
      online: list.filter(({ status }) => status === 'online').length,
      open: open.get(capability) ?? [],
    };
  });
}

export function faultsOf({ codes }: Figures): number {
  let faults = 0;
  for (const [code, times] of codes) if (!OWN_FAULT.has(code)) faults += times;
  return faults;
}

export function rowsWorstFirst(rows: readonly CapabilityRow[]): CapabilityRow[] {
  const badness = ({ figures, faults, online, providers, open }: CapabilityRow): number =>
    (figures !== null && figures.calls > 0 ? (faults / figures.calls) * 1_000 : 0) +
    (online === 0 && (providers.length > 0 || faults > 0) ? (figures === null ? 50 : 500) : 0) +
    open.length * 100 +
    (providers.length - online);
  const scored = rows.map((row) => ({ row, badness: badness(row) }));
  scored.sort(
    (a, b) =>
      b.badness - a.badness ||
      (b.row.figures?.calls ?? 0) - (a.row.figures?.calls ?? 0) ||
      (a.row.capability < b.row.capability ? -1 : a.row.capability > b.row.capability ? 1 : 0),
  );
  return scored.map(({ row }) => row);
}

export function capabilityProblems(rows: readonly CapabilityRow[], served: readonly ProviderFigures[]): Problem[] {
  const problems: Problem[] = [];
  const idle: string[] = [];
  for (const row of rows) {
    const { capability, figures, faults, providers, online } = row;
    if (figures !== null) problems.push(...failing(row, figures, faults, served));
    if (online > 0 || providers.length === 0) continue;
    const many = `${providers.length === 1 ? 'its only agent' : `all ${providers.length} of its agents`} (${named(providers.map(({ agent }) => agent))})`;
    if (figures === null) idle.push(capability);
    else
      problems.push(
        problem(
          'critical',
          'no_provider',
          `Nobody serves ${capability}: ${many} cannot be reached, and it is being called`,
          figures.calls,
          {
            capability,
            agent: providers.length === 1 ? (providers[0]?.agent ?? null) : null,
            traceId: exampleOf(figures)?.trace_id ?? null,
          },
        ),
      );
  }
  if (idle.length > MANY)
    problems.push(
      problem(
        'warning',
        'no_provider',
        `Nobody serves ${counted(idle.length, 'capability', 'capabilities')}, which nobody calls at present: ${named(idle)}`,
        idle.length,
      ),
    );
  else
    for (const capability of idle)
      problems.push(problem('warning', 'no_provider', `Nobody serves ${capability}, which nobody calls at present`, 0, { capability }));
  return problems;
}

function failing({ capability }: CapabilityRow, figures: Figures, faults: number, served: readonly ProviderFigures[]): Problem[] {
  const { calls, failed } = figures;
  const share = faults / calls;
  if (faults >= FEW && share >= WARNING_SHARE) {
    const provider = culprit(capability, served);
    const isBad = share >= CRITICAL_SHARE && faults >= CRITICAL_FAILURES;
    const where = provider === null ? '' : `; ${provider.words}`;
    const words = `${faults} of ${counted(calls, 'call')} of ${capability} failed ${LATELY_WORDS} (${percent(share)}), ${mostly(figures)}${where}`;
    return [
      problem(isBad ? 'critical' : 'warning', 'failing', words, faults, {
        capability,
        agent: provider?.agent ?? null,
        traceId: exampleOf(figures)?.trace_id ?? null,
      }),
    ];
  }
  const own = failed - faults;
  if (own < FEW || own / calls < WARNING_SHARE) return [];
  const words = `${own} of ${counted(calls, 'call')} of ${capability} were refused ${LATELY_WORDS} (${percent(own / calls)}), ${mostly(figures)}: no fault of who serves it`;
  return [problem('info', 'refused', words, own, { capability, traceId: exampleOf(figures)?.trace_id ?? null })];
}

/** What most of them ended with. */
function mostly({ codes, failed }: Figures): string {
  let most: readonly [number, number] = [0, 0];
  for (const entry of codes) if (entry[1] > most[1]) most = entry;
  const [code, times] = most;
  return `${times === failed ? 'all' : 'most'} with ${code}${isCode(code) ? ` ${codeEntry(code).name}` : ''}`;
}

/** The agent at which nearly all attempts that failed were made, where others serve as well. */
function culprit(capability: string, served: readonly ProviderFigures[]): { readonly agent: string; readonly words: string } | null {
  let all = 0;
  let worst: ProviderFigures | null = null;
  const agents = new Set<string>();
  for (const each of served) {
    if (each.capability !== capability || each.provider === OTHER) continue;
    agents.add(each.provider);
    all += each.figures.failures;
    if (worst === null || each.figures.failures > worst.figures.failures) worst = each;
  }
  if (worst === null || worst.figures.failures === 0 || worst.figures.failures < MOSTLY * all) return null;
  const { provider, version, figures } = worst;
  const others = agents.size > 1 ? `, the ${agents.size === 2 ? 'other agent fares' : 'others fare'} better` : '';
  return {
    agent: provider,
    words: `at ${provider} (version ${version}) ${figures.failures} of ${counted(figures.attempts, 'attempt')} failed${others}`,
  };
}

/** The newest failure that is nobody's own fault; of the others one is better than none. */
export function exampleOf({ examples }: Figures): Example | null {
  let found: Example | null = null;
  for (const example of examples) {
    if (example.code === 0) continue;
    if (found === null || !OWN_FAULT.has(example.code) || OWN_FAULT.has(found.code)) found = example;
  }
  return found;
}
