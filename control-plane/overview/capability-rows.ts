/**
 * Every capability in one line: what was asked of it lately, how that ended, and who is left to serve it; worst first. And what is
 * wrong with it, in sentences. Lately is the last two whole minutes and the one that runs: of less, a capability with a call each
 * ten seconds would tell nothing, and of more it would still be red when it is long well again.
 */
import { Code, codeEntry, isCode } from '../../proto/wire/codes.ts';
import { OTHER, UNKNOWN } from '../../proto/wire/digests.ts';
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
/** A provider is named when it has so much of the failed attempts, and they fail so many times as often as those at all others. */
const MOSTLY = 0.8;
const CLEARLY = 2;
/** Names that stand for many, or for nobody's. */
export const NO_CAPABILITY: ReadonlySet<string> = new Set([OTHER, UNKNOWN, '']);
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
  /** Of them, who is online and not drained: calls go to nobody else. */
  readonly serving: readonly ProviderView[];
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
  for (const name of traffic.capabilities(LATELY)) if (!serving.has(name) && !NO_CAPABILITY.has(name)) serving.set(name, new Set());
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
      serving: list.filter((each) => each.status === 'online' && !isDrained(each)),
      open: open.get(capability) ?? [],
    };
  });
}

export function faultsOf({ codes }: Figures): number {
  let faults = 0;
  for (const [code, times] of codes) if (isFault(code)) faults += times;
  return faults;
}

/** By itself, or by an operator. */
export function isDrained({ drain, operator }: ProviderView): boolean {
  return drain || operator?.drain === true;
}

const isFault = (code: number): boolean => !OWN_FAULT.has(code);
const isOwn = (code: number): boolean => OWN_FAULT.has(code);

export function rowsWorstFirst(rows: readonly CapabilityRow[]): CapabilityRow[] {
  const badness = ({ figures, faults, online, serving, providers, open }: CapabilityRow): number =>
    (figures !== null && figures.calls > 0 ? (faults / figures.calls) * 1_000 : 0) +
    (serving.length === 0 && (providers.length > 0 || faults > 0) ? (figures === null ? 50 : 500) : 0) +
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
    const { capability, figures, faults, providers, serving } = row;
    if (figures !== null) problems.push(...failing(row, figures, faults, served));
    if (serving.length > 0) continue;
    // Who is not registered any more, or stands in a sidecar's file alone, may have served it a moment ago.
    if (providers.length === 0 && served.some((each) => each.capability === capability && each.figures.failures < each.figures.attempts))
      continue;
    if (figures === null) idle.push(capability);
    else
      problems.push(
        problem('critical', 'no_provider', `Nobody serves ${capability}: ${whyNobody(providers)}, and it is being called`, figures.calls, {
          capability,
          agent: providers.length === 1 ? (providers[0]?.agent ?? null) : null,
          traceId: exampleOf(figures)?.trace_id ?? null,
        }),
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
    const words = `${faults} of ${counted(calls, 'call')} of ${capability} failed ${LATELY_WORDS} (${percent(share)}), ${mostly(figures, isFault, faults)}${where}`;
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
  const words = `${own} of ${counted(calls, 'call')} of ${capability} were refused ${LATELY_WORDS} (${percent(own / calls)}), ${mostly(figures, isOwn, own)}: no fault of who serves it`;
  return [problem('info', 'refused', words, own, { capability, traceId: exampleOf(figures)?.trace_id ?? null })];
}

/** What most of those ended with that count. @param all how many they are */
function mostly({ codes }: Figures, counts: (code: number) => boolean, all: number): string {
  let most: readonly [number, number] = [0, 0];
  for (const entry of codes) if (counts(entry[0]) && entry[1] > most[1]) most = entry;
  const [code, times] = most;
  const how = times === all ? 'all' : times * 2 > all ? 'most' : `${times}`;
  return `${how} with ${code}${isCode(code) ? ` ${codeEntry(code).name}` : ''}`;
}

function whyNobody(providers: readonly ProviderView[]): string {
  if (providers.length === 0) return 'no agent that does is registered';
  const who = `${providers.length === 1 ? 'its only agent' : `all ${providers.length} of its agents`} (${named(providers.map(({ agent }) => agent))})`;
  const drained = providers.filter((each) => each.status === 'online' && isDrained(each)).length;
  if (drained === 0) return `${who} cannot be reached`;
  if (drained === providers.length) return `${who} ${drained === 1 ? 'is' : 'are'} drained`;
  return `${who} cannot be reached or are drained`;
}

/**
 * Calls of names that nobody has: whoever made them has to look. One sentence about all of them, since sidecars do not tell such
 * names; and no place to look at, since there is none.
 */
export function unknownNames(traffic: Traffic): Problem[] {
  const figures = traffic.capability(UNKNOWN, LATELY);
  if (figures === null || figures.calls === 0) return [];
  const by = new Map<string, number>();
  for (const edge of traffic.edges(LATELY, UNKNOWN)) by.set(edge.caller, (by.get(edge.caller) ?? 0) + edge.figures.calls);
  const callers = [...by].sort((a, b) => b[1] - a[1]).map(([caller]) => CALLERS[caller] ?? caller);
  const words = `${counted(figures.calls, 'call')} asked for names that nobody has ${LATELY_WORDS}, by ${named(callers)}`;
  return [problem('warning', 'unknown_name', words, figures.calls, { traceId: exampleOf(figures)?.trace_id ?? null })];
}

/** Names of callers that are none. */
const CALLERS: Readonly<Record<string, string>> = { [UNKNOWN]: 'callers nobody knows', [OTHER]: 'others' };

interface Attempts {
  attempts: number;
  failures: number;
}

/**
 * The agent at which nearly all attempts that failed were made. Where others serve as well, it has to fail clearly more often than
 * they do together: whoever has most of the calls has most of the failures, and is not to blame for them. A call more at the others,
 * failed, keeps few of their calls from proving anything.
 */
function culprit(capability: string, served: readonly ProviderFigures[]): { readonly agent: string; readonly words: string } | null {
  const byAgent = new Map<string, Attempts>();
  const all: Attempts = { attempts: 0, failures: 0 };
  const rows = served.filter((each) => each.capability === capability && each.provider !== OTHER && each.figures.attempts > 0);
  for (const { provider, figures } of rows) {
    const sum = byAgent.get(provider);
    if (sum === undefined) byAgent.set(provider, { attempts: figures.attempts, failures: figures.failures });
    else add(sum, figures);
    add(all, figures);
  }
  let worst: readonly [string, Attempts] | null = null;
  for (const entry of byAgent) if (worst === null || entry[1].failures > worst[1].failures) worst = entry;
  if (worst === null || worst[1].failures === 0 || worst[1].failures < MOSTLY * all.failures) return null;
  const [agent, sum] = worst;
  if (byAgent.size > 1) {
    const others = (all.failures - sum.failures + 1) / (all.attempts - sum.attempts + 1);
    if (sum.failures / sum.attempts < CLEARLY * others) return null;
  }
  const of = rows.filter(({ provider }) => provider === agent);
  const version = of.find(({ figures }) => figures.failures >= MOSTLY * sum.failures) ?? null;
  const { attempts, failures } = version?.figures ?? sum;
  const others = byAgent.size > 1 ? `, the ${byAgent.size === 2 ? 'other agent fares' : 'others fare'} better` : '';
  return {
    agent,
    words: `at ${agent}${version === null ? '' : ` (version ${version.version})`} ${failures} of ${counted(attempts, 'attempt')} failed${others}`,
  };
}

function add(sum: Attempts, { attempts, failures }: Readonly<Attempts>): void {
  sum.attempts += attempts;
  sum.failures += failures;
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
