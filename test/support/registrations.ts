/** Registrations for tests of the registry: contracts and records by their short forms, sidecars that speak, a store that is written to. */
import type { VirtualClock } from '../../base/virtual-clock.ts';
import type { Contract, ProviderRecord } from '../../proto/language/types.ts';
import { contract as contractShape } from '../../proto/language/contract.ts';
import { deepFreeze } from '../../proto/language/document.ts';
import { provider as providerShape } from '../../proto/language/provider.ts';
import { BAD, openSource, Place, type Shape } from '../../proto/language/reader.ts';
import type { AgentRegistration, CapabilityState, Hello, RegistrationState, ScopeState } from '../../proto/wire/registry.ts';
import type { Change } from '../../control-plane/registry/change.ts';
import {
  noCanary,
  noOperators,
  noPolicies,
  noProviderSettings,
  type OperatorsState,
  noQuotas,
} from '../../control-plane/registry/operators.ts';
import { noShifts } from '../../control-plane/shifts/shift.ts';
import { inputMessages, pushedMessages } from '../../control-plane/push/derive-writes.ts';
import type { Change as Write } from '../../control-plane/push/writer.ts';
import { Registry } from '../../control-plane/registry/registry.ts';
import { readHello } from '../../control-plane/registry/requests.ts';

/** A contract out of YAML flow text: `contract('crm.order.query', '2.0.0', 'execution: idempotent')`. */
export function contract(name: string, version = '1.0.0', more = ''): Contract {
  const acl = /\bacl:/.test(more) ? '' : ', acl: public';
  return read(contractShape, `{ name: ${name}, version: "${version}"${acl}${more === '' ? '' : `, ${more}`} }`);
}

/** A record: `record('crm.order.a1', ['crm.order.query@2.0.0'])`. */
export function record(agentId: string, offers: readonly string[], via: string | null = 's1', more = ''): ProviderRecord {
  const endpoint = /\bendpoint:/.test(more) ? '' : ', endpoint: { type: http, address: "http://127.0.0.1:8080" }';
  const text = `{ agent_id: ${agentId}, offers: [${offers.map((offer) => `"${offer}"`).join(', ')}]${via === null ? '' : `, via: ${via}`}${endpoint}${more === '' ? '' : `, ${more}`} }`;
  return read(providerShape, text);
}

function read<T>(shape: Shape<T>, text: string): T {
  const { source, value } = openSource(text, 'test');
  const made = value === undefined ? BAD : shape.read(value, new Place(source));
  if (made === BAD) throw new Error(source.problems.map((problem) => problem.message).join('; '));
  return deepFreeze(JSON.parse(JSON.stringify(made)) as T);
}

/** An agent with public contracts for everything that it offers. */
export function agent(agentId: string, offers: readonly string[], via: string | null = 's1', more = ''): AgentRegistration {
  return {
    contracts: offers.map((offer) => contract(...(offer.split('@') as [string, string]))),
    record: record(agentId, offers, via, more),
  };
}

export function hello(sidecar: string, agents: readonly AgentRegistration[], more: Partial<Hello> = {}): Hello {
  return { wire: 1, sidecar, instance: 'i1', mesh: `http://10.0.0.1:7701`, region: null, zone: null, callers: [], agents, ...more };
}

/** As it arrives: through JSON and the reader. */
export function arrive(registry: Registry, message: Hello): Change {
  const reading = readHello(JSON.parse(JSON.stringify(message)));
  if (reading.request === null) throw new Error(reading.refused.flatMap((each) => each.problems).join('; '));
  return registry.hello(reading.request, reading.refused);
}

/** What AR_CFG would hold, written in the planned order. */
export class Store {
  readonly texts = new Map<string, string>();
  writes = 0;

  get(tail: string): unknown {
    const text = this.texts.get(tail);
    return text === undefined ? undefined : JSON.parse(text);
  }

  write(change: Change, registry: Registry, afterEach: (write: Write) => void = () => undefined): Write[] {
    const planned = [...inputMessages(registry, change), ...pushedMessages(registry, change, (tail) => this.texts.get(tail) ?? null)];
    const writes = planned.filter(({ tail, text }) => this.texts.get(tail) !== text);
    for (const write of writes) {
      this.writes++;
      this.texts.set(write.tail, write.text);
      afterEach(write);
    }
    for (const tail of change.forgotten) this.texts.delete(tail);
    return writes;
  }

  registrations(): RegistrationState[] {
    return [...this.texts.keys()].filter((tail) => tail.startsWith('reg.')).map((tail) => this.get(tail) as RegistrationState);
  }

  operators(): OperatorsState {
    return {
      policies: (this.get('op.policies') ?? noPolicies('e1')) as OperatorsState['policies'],
      providers: (this.get('op.providers') ?? noProviderSettings('e1')) as OperatorsState['providers'],
      canary: (this.get('op.canary') ?? noCanary('e1')) as OperatorsState['canary'],
      quotas: (this.get('op.quotas') ?? noQuotas('e1')) as OperatorsState['quotas'],
      shifts: (this.get('op.shifts') ?? noShifts('e1')) as OperatorsState['shifts'],
    };
  }

  /** Agents that a reader of the stored shards of a capability knows. */
  readers(name: string): Set<string> {
    const head = this.get(`cap.${name}`) as CapabilityState | undefined;
    const agents = new Set<string>();
    for (let shard = 0; shard < (head?.shards ?? 0); shard++) {
      const part = (shard === 0 ? head : this.get(`cap.${name}.${shard}`)) as CapabilityState | undefined;
      for (const provider of part?.providers ?? []) agents.add(provider.record.agentId);
    }
    return agents;
  }

  scope(sidecar: string): readonly string[] {
    return (this.get(`scope.${sidecar}`) as ScopeState | undefined)?.capabilities ?? [];
  }
}

export function fresh(clock: VirtualClock): Registry {
  const registry = new Registry(clock);
  registry.load('e1', [], noOperators('e1'));
  return registry;
}

/** Agents of a capability as it would be pushed now. */
export function pushed(registry: Registry, name: string): string[] {
  return registry
    .capabilityStates(name)
    .flatMap((state) => state.providers.map((provider) => provider.record.agentId))
    .sort();
}

/** Several changes as one, in their order. */
export function mergeChanges(changes: readonly Change[]): Change {
  type Lists = Exclude<keyof Change, 'isStranger'>;
  const all = <K extends Lists>(key: K): Change[K] =>
    changes.flatMap((change) => change[key] as readonly unknown[]) as unknown as Change[K];
  const once = <K extends Lists>(key: K): Change[K] => [...new Set(all(key) as readonly unknown[])] as unknown as Change[K];
  return {
    isStranger: changes.some((change) => change.isStranger),
    refused: all('refused'),
    warned: all('warned'),
    registrations: once('registrations'),
    operators: once('operators'),
    capabilities: once('capabilities'),
    scopes: once('scopes'),
    forgotten: once('forgotten'),
    deferred: once('deferred'),
    events: all('events'),
  };
}
