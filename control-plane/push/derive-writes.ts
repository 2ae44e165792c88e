/**
 * From what the registry says has changed to the messages that say so, in the order in which they must stand in the
 * stream (make before break):
 * 1. what the next leader reads (`reg`, `op`), so that nothing pushed can be lost with this one;
 * 2. capabilities, as far as they take nothing away;
 * 3. scopes, those that grow first, so that a sidecar is never sent to look for what is not there yet;
 * 4. capabilities that take something away.
 * So a provider that moves, between shards or between capabilities, is there twice for a moment and never missing.
 */
import type { CapabilityState, RegistrationState, ScopeState } from '../../proto/wire/registry.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import type { RulesState } from '../../proto/wire/messages.ts';
import type { QuotasState } from '../../proto/wire/quotas.ts';
import type { ShiftsState } from '../../proto/wire/shifts.ts';
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
  rules(): RulesState;
  quotas(): QuotasState;
  shifts(): ShiftsState;
  capabilityNames(): readonly string[];
  sidecarNames(): readonly string[];
}

export interface Changed {
  readonly registrations: readonly string[];
  readonly operators: readonly OperatorsPart[];
  readonly capabilities: readonly string[];
  readonly scopes: readonly string[];
}

const OPERATORS_TAIL: Readonly<Record<OperatorsPart, string>> = {
  policies: Tail.policies,
  providers: Tail.providers,
  canary: Tail.canary,
  quotas: Tail.storedQuotas,
  shifts: Tail.storedShifts,
};

/** Pushed messages of capabilities; what adds comes before the scopes, what takes away after them. */
export interface Pushed {
  readonly adding: Message[];
  readonly taking: Message[];
}

/** The text that is in force under a tail, or will be once what is under way is stored; null = there is none. */
export type Latest = (tail: string) => string | null;

export function inputMessages(states: States, changed: Changed): Message[] {
  const messages: Message[] = [];
  const emptied: Message[] = [];
  for (const name of changed.registrations) {
    const state = states.registration(name);
    // An agent that goes to another sidecar is written there before it is taken out here.
    (state.hello.agents.length > 0 ? messages : emptied).push(message(Tail.registration(name), state));
  }
  messages.push(...emptied);
  if (changed.operators.length > 0) {
    const operators = states.operators();
    for (const part of changed.operators) messages.push(message(OPERATORS_TAIL[part], operators[part]));
  }
  return messages;
}

export function pushedMessages(states: States, changed: Changed, latest: Latest): Message[] {
  const { adding, taking } = capabilityMessages(states, changed.capabilities, latest);
  return [...adding, ...scopeMessages(states, changed.scopes, latest), ...taking];
}

/** The rules for messages, when they are other ones than those in force. Of a registry that never had any, nothing is written. */
export function rulesMessages(states: States, latest: Latest): Message[] {
  const state = states.rules();
  const next = message(Tail.rules, state);
  const before = latest(Tail.rules);
  if (before === next.text || (before === null && state.rules.length === 0 && state.staged === null)) return [];
  return [next];
}

/** Quotas, and what is to be measured while traffic is shifted, where they are other ones than those in force. */
export function steeringMessages(states: States, latest: Latest): Message[] {
  const quotas = states.quotas();
  const shifts = states.shifts();
  return [
    ...changed(message(Tail.quotas, quotas), quotas.quotas.length === 0, latest),
    ...changed(message(Tail.shifts, shifts), shifts.watched.length === 0, latest),
  ];
}

/** Of a registry that never had any, nothing is written. */
function changed(next: Message, isEmpty: boolean, latest: Latest): Message[] {
  const before = latest(next.tail);
  return before === next.text || (before === null && isEmpty) ? [] : [next];
}

export function capabilityMessages(states: States, names: readonly string[], latest: Latest): Pushed {
  const pushed: Pushed = { adding: [], taking: [] };
  for (const name of names) orderShards(name, states.capabilityStates(name), latest, pushed);
  return pushed;
}

export function scopeMessages(states: States, names: readonly string[], latest: Latest): Message[] {
  const growing: Message[] = [];
  const shrinking: Message[] = [];
  for (const name of names) {
    const state = states.scope(name);
    const next = message(Tail.scope(name), state);
    (isScopeLess(latest(next.tail), state, next.text) ? shrinking : growing).push(next);
  }
  return [...growing, ...shrinking];
}

/**
 * Shard 0 says how many shards count. When there are more, the new ones come first, then shard 0, then those that lost
 * what the new ones took; when there are fewer, those that gain come first and shard 0 last.
 */
function orderShards(name: string, states: readonly CapabilityState[], latest: Latest, { adding, taking }: Pushed): void {
  const before = latest(Tail.capability(name));
  const had = before === null ? 0 : shardsIn(before);
  const [first, ...rest] = states as [CapabilityState, ...CapabilityState[]];
  const head = message(Tail.capability(name), first);
  const gains: Message[] = [];
  const losses: Message[] = [];
  for (const state of rest) {
    const next = message(Tail.shard(name, state.shard), state);
    const isLoss = state.shard < had && takesAway(latest(next.tail), state, next.text);
    (isLoss ? losses : gains).push(next);
  }
  if (states.length < had) taking.push(...gains, ...losses, head);
  else {
    adding.push(...gains);
    (states.length === had && takesAway(before, first, head.text) ? taking : adding).push(head);
    taking.push(...losses);
  }
}

function takesAway(before: string | null, after: CapabilityState, text: string): boolean {
  if (before === null || before === text) return false;
  const old = JSON.parse(before) as CapabilityState;
  const agents = new Set(after.providers.map(({ record }) => record.agentId));
  if (old.providers.some(({ record }) => !agents.has(record.agentId))) return true;
  const versions = new Set(after.contracts.map(({ version }) => version));
  return old.contracts.some(({ version }) => !versions.has(version));
}

function isScopeLess(before: string | null, after: ScopeState, text: string): boolean {
  if (before === null || before === text) return false;
  const names = new Set(after.capabilities);
  return (JSON.parse(before) as ScopeState).capabilities.some((name) => !names.has(name));
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
