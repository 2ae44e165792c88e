/**
 * The writes that a change comes to, compared with what is stored and in the order in which they are to be made:
 * 1. what operators and sidecars have said: a leader that dies in the middle leaves a successor who can work out the rest;
 * 2. what adds: capabilities, then the scopes that grow by them;
 * 3. what takes away: scopes, then capabilities.
 * So a provider that moves is there twice for a moment and never missing (make before break).
 */
import { sameValue } from '../../proto/language/schema-compat.ts';
import type { CapabilityState, RegistrationState, ScopeState } from '../../proto/wire/registry.ts';
import { Tail } from '../../proto/wire/subjects.ts';
import type { Change } from './change.ts';
import type { CanaryState, OperatorsState, PoliciesState, ProvidersState } from './operators.ts';

export type StoredBody = CapabilityState | ScopeState | RegistrationState | PoliciesState | ProvidersState | CanaryState;

export interface Write {
  readonly tail: string;
  readonly body: StoredBody;
}

/** The part of the registry that writes are made from. */
export interface Source {
  registration(sidecar: string): RegistrationState;
  operators(): OperatorsState;
  capabilityStates(name: string): CapabilityState[];
  scope(sidecar: string): ScopeState;
}

/** @param stored what AR_CFG holds under a tail; undefined = nothing. */
export function planWrites(change: Change, source: Source, stored: (tail: string) => unknown): Write[] {
  const inputs: Write[] = [];
  const adding: Write[] = [];
  const scopesUp: Write[] = [];
  const scopesDown: Write[] = [];
  const taking: Write[] = [];
  const operators = source.operators();
  for (const part of change.operators) push(inputs, { tail: Tail[part], body: operators[part] }, stored);
  const registrations = change.registrations.map((name) => ({ tail: Tail.registration(name), body: source.registration(name) }));
  for (const write of registrations.filter(({ body }) => body.hello.agents.length > 0)) push(inputs, write, stored);
  for (const write of registrations.filter(({ body }) => body.hello.agents.length === 0)) push(inputs, write, stored);
  for (const name of change.scopes) {
    const body = source.scope(name);
    const write = { tail: Tail.scope(name), body };
    const before = stored(write.tail) as ScopeState | undefined;
    const isLoss = before?.capabilities.some((capability) => !body.capabilities.includes(capability)) === true;
    push(isLoss ? scopesDown : scopesUp, write, stored);
  }
  for (const name of change.capabilities) planCapability(name, source.capabilityStates(name), stored, adding, taking);
  return [...inputs, ...adding, ...scopesUp, ...scopesDown, ...taking];
}

function push(writes: Write[], write: Write, stored: (tail: string) => unknown): void {
  if (!sameValue(stored(write.tail), write.body)) writes.push(write);
}

/**
 * Shard 0 says how many shards count. When there are more, the new ones come first, then shard 0, then those that lost
 * what the new ones took; when there are fewer, those that gain come first and shard 0 last.
 */
function planCapability(
  name: string,
  states: readonly CapabilityState[],
  stored: (tail: string) => unknown,
  adding: Write[],
  taking: Write[],
): void {
  const before = stored(Tail.capability(name)) as CapabilityState | undefined;
  const had = before?.shards ?? 0;
  const [head, ...rest] = states as [CapabilityState, ...CapabilityState[]];
  const gains: Write[] = [];
  const losses: Write[] = [];
  for (const body of rest) {
    const write = { tail: Tail.shard(name, body.shard), body };
    const old = stored(write.tail) as CapabilityState | undefined;
    push(body.shard >= had || !losesProviders(old, body) ? gains : losses, write, stored);
  }
  const first: Write[] = [];
  push(first, { tail: Tail.capability(name), body: head }, stored);
  if (states.length > had) adding.push(...gains, ...first);
  else if (states.length < had) taking.push(...gains, ...losses, ...first);
  else {
    adding.push(...gains);
    (takesAway(before, head) ? taking : adding).push(...first);
  }
  if (states.length >= had) taking.push(...losses);
}

function losesProviders(before: CapabilityState | undefined, after: CapabilityState): boolean {
  if (before === undefined) return false;
  const kept = new Set(after.providers.map(({ record }) => record.agentId));
  return before.providers.some(({ record }) => !kept.has(record.agentId));
}

function takesAway(before: CapabilityState | undefined, after: CapabilityState): boolean {
  if (before === undefined) return false;
  const versions = new Set(after.contracts.map((contract) => contract.version));
  return losesProviders(before, after) || before.contracts.some((contract) => !versions.has(contract.version));
}
