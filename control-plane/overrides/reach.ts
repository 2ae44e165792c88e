/**
 * Whom an override would hit, by what the registry knows at this moment: for the operator who asks before he presses, and for
 * the one who has mistyped a name. The control plane sees no calls; how busy something is, it knows from what providers report.
 */
import { nearest } from '../../base/suggest.ts';
import { coversAgent, coversName } from '../../proto/language/covers.ts';
import { isAgentId, isCapabilityName } from '../../proto/language/names.ts';
import { type OverrideEntry, TO_PROVIDER } from '../../proto/wire/overrides.ts';
import type { Registry } from '../registry/registry.ts';

export interface Reach {
  readonly capabilities: readonly string[];
  readonly providers: readonly string[];
  /** Agents that call through some sidecar and whose calls it concerns; with patterns and `all`, everybody. */
  readonly callers: readonly string[];
  readonly sidecars: number;
  /** Calls under way at those providers, by their last heartbeats. */
  readonly in_flight: number;
}

/** Named one by one up to here. */
const MAX_NAMED = 200;

type Known = Pick<Registry, 'capabilities' | 'providers' | 'sidecars'>;

export function reachOf(registry: Known, { target }: OverrideEntry): Reach {
  const providers = registry.providers().filter((one) => {
    if (target.provider !== undefined && !coversAgent(target.provider, one.agent)) return false;
    if (target.capability !== undefined && !one.offers.some((offer) => coversName(target.capability ?? null, nameOf(offer)))) return false;
    return target.agent === undefined || coversAgent(target.agent, one.agent);
  });
  const offered = new Set(providers.flatMap(({ offers }) => offers.map(nameOf)));
  const isBySide = target.provider !== undefined;
  const capabilities = registry
    .capabilities()
    .map(({ capability }) => capability)
    .filter((name) => coversName(target.capability ?? null, name) && (!isBySide || offered.has(name)));
  const sidecars = registry.sidecars();
  const pattern = target.caller ?? target.agent ?? null;
  const callers = new Set(sidecars.flatMap((one) => one.callers).filter((agent) => coversAgent(pattern, agent)));
  return {
    capabilities: capabilities.slice(0, MAX_NAMED),
    providers: [...new Set(providers.map(({ agent }) => agent))].slice(0, MAX_NAMED),
    callers: [...callers].sort().slice(0, MAX_NAMED),
    sidecars: sidecars.length,
    in_flight: providers.reduce((sum, { inFlight }) => sum + inFlight, 0),
  };
}

/** A name that nobody has: most likely a slip. Null = all are known. */
export function unknownName(registry: Known, { target, to }: OverrideEntry): string | null {
  const capabilities = registry.capabilities().map(({ capability }) => capability);
  const agents = registry.providers().map(({ agent }) => agent);
  const callers = registry.sidecars().flatMap((one) => one.callers);
  return (
    capabilityUnknown(target.capability, capabilities) ??
    agentUnknown(target.provider, agents, 'no provider is called') ??
    agentUnknown(target.agent, [...agents, ...callers], 'no agent is called') ??
    agentUnknown(target.caller, [...callers, ...agents], 'no agent that calls is called') ??
    (to?.startsWith(TO_PROVIDER) === true ? agentUnknown(to.slice(TO_PROVIDER.length), agents, 'no provider is called') : null) ??
    (to === null || to.startsWith('@') || to.startsWith(TO_PROVIDER) ? null : capabilityUnknown(nameOf(to), capabilities))
  );
}

function capabilityUnknown(name: string | undefined, known: readonly string[]): string | null {
  if (name === undefined || !isCapabilityName(name) || known.includes(name)) return null;
  return `nobody offers ${name}${meant(name, known)}`;
}

function agentUnknown(pattern: string | undefined, known: readonly string[], words: string): string | null {
  const id = pattern?.startsWith('agent:') === true ? pattern.slice(6) : pattern;
  if (id === undefined || !isAgentId(id) || known.includes(id)) return null;
  return `${words} ${id}${meant(id, known)}`;
}

function meant(name: string, known: readonly string[]): string {
  const near = nearest(name, known);
  return near === null ? '' : `; did you mean ${near}?`;
}

/** Of `name@version`. */
function nameOf(offer: string): string {
  const at = offer.indexOf('@');
  return at < 0 ? offer : offer.slice(0, at);
}
