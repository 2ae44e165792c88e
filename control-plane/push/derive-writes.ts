/**
 * From what the registry says has changed to the messages that say so, in the order in which they must stand in the
 * stream: first what the next leader reads (`reg`, `op`), so that nothing pushed can be lost with this one; then the
 * capabilities, then the scopes, so that a sidecar is never sent to look for what is not there yet.
 */
import type { CapabilityState, RegistrationState, ScopeState } from '../../proto/wire/registry.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import { Tail } from '../../proto/wire/subjects.ts';
import type { OperatorsPart } from '../registry/change.ts';
import type { OperatorsState } from '../registry/operators.ts';
import type { Mirror } from './mirror.ts';
import type { Change as Message } from './writer.ts';

/** What is asked of the registry. */
export interface States {
  registration(sidecar: string): RegistrationState;
  operators(): OperatorsState;
  capabilityStates(name: string): readonly CapabilityState[];
  scope(sidecar: string): ScopeState;
  capabilityNames(): readonly string[];
  sidecarNames(): readonly string[];
}

export interface Changed {
  readonly registrations: readonly string[];
  readonly operators: readonly OperatorsPart[];
  readonly capabilities: readonly string[];
  readonly scopes: readonly string[];
}

const OPERATORS_TAIL: Readonly<Record<OperatorsPart, string>> = { policies: Tail.policies, providers: Tail.providers, canary: Tail.canary };

export function inputMessages(states: States, changed: Changed): Message[] {
  const messages: Message[] = changed.registrations.map((name) => message(Tail.registration(name), states.registration(name)));
  if (changed.operators.length > 0) {
    const operators = states.operators();
    for (const part of changed.operators) messages.push(message(OPERATORS_TAIL[part], operators[part]));
  }
  return messages;
}

export function pushedMessages(states: States, changed: Changed, latest: (tail: string) => string | null): Message[] {
  const messages = changed.capabilities.flatMap((name) => capabilityMessages(name, states.capabilityStates(name), latest));
  for (const name of changed.scopes) messages.push(message(Tail.scope(name), states.scope(name)));
  return messages;
}

/**
 * The shards of one capability. When providers become more they move to higher shards, so those go first; when they
 * become fewer they move to lower ones. In between a provider may stand in two shards, never in none.
 */
function capabilityMessages(name: string, states: readonly CapabilityState[], latest: (tail: string) => string | null): Message[] {
  const messages = states.map((state) => message(Tail.shard(name, state.shard), state));
  const before = latest(Tail.capability(name));
  const shardsBefore = before === null ? 1 : shardsIn(before);
  if (states.length <= 1 && shardsBefore <= 1) return messages;
  const providersBefore = countBefore(name, shardsBefore, latest);
  const providersAfter = states.reduce((sum, state) => sum + state.providers.length, 0);
  return providersAfter >= providersBefore ? messages.reverse() : messages;
}

function countBefore(name: string, shards: number, latest: (tail: string) => string | null): number {
  let count = 0;
  for (let shard = 0; shard < shards; shard++) {
    const text = latest(Tail.shard(name, shard));
    if (text !== null) count += (JSON.parse(text) as CapabilityState).providers.length;
  }
  return count;
}

/** The number stands in the head of the message, which is all that is looked at: this is asked for every change. */
function shardsIn(text: string): number {
  const head = /"shards":(\d+)/.exec(text.slice(0, 512));
  return head === null ? (JSON.parse(text) as CapabilityState).shards : Number(head[1]);
}

function message(tail: string, state: unknown): Message {
  return { tail, text: JSON.stringify(state) };
}

/** Everything that is derived, and an empty state for what is stored and is derived from nothing any more. */
export function everything(states: States, mirror: Mirror, epoch: string): { changed: Changed; voids: Message[] } {
  const capabilities = [...states.capabilityNames()];
  const scopes = [...states.sidecarNames()];
  const voids: Message[] = [];
  const known = new Set(capabilities);
  for (const tail of mirror.tails('cap.')) {
    const state = mirror.state<CapabilityState>(tail);
    const name = state?.name ?? tail.slice('cap.'.length).split('.').slice(0, 3).join('.');
    if (known.has(name) || tail !== Tail.capability(name)) continue;
    const empty: CapabilityState = {
      wire: REGISTRY_WIRE,
      epoch,
      name,
      shard: 0,
      shards: 1,
      contracts: [],
      policies: [],
      staged: null,
      providers: [],
    };
    voids.push(message(tail, empty));
  }
  const sidecars = new Set(scopes);
  for (const tail of mirror.tails('scope.')) {
    const name = tail.slice('scope.'.length);
    if (sidecars.has(name)) continue;
    const empty: ScopeState = { wire: REGISTRY_WIRE, epoch, capabilities: [] };
    voids.push(message(tail, empty));
  }
  return { changed: { registrations: [], operators: [], capabilities, scopes }, voids };
}
