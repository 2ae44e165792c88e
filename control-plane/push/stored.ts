/** Between the stream and the registry: what is stored becomes the registry's state, what is to be stored goes to the bus. */
import type { Bus } from '../../base/nats.ts';
import type { RegistrationState } from '../../proto/wire/registry.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import { CONFIG_STREAM, type Subjects, Tail } from '../../proto/wire/subjects.ts';
import { noOperators, type OperatorsState } from '../registry/operators.ts';
import type { Registry } from '../registry/registry.ts';
import type { Mirror } from './mirror.ts';
import type { ConfigStream } from './writer.ts';

/** Fills a registry from what is stored; troubles in words. */
export function loadRegistry(registry: Registry, mirror: Mirror, epoch: string): readonly string[] {
  const troubles: string[] = [];
  const registrations: RegistrationState[] = [];
  for (const tail of mirror.tails('reg.')) {
    const state = mirror.state<RegistrationState>(tail);
    if (state === null || state.wire !== REGISTRY_WIRE) troubles.push(`${tail} is not in a form that this version reads`);
    else registrations.push(state);
  }
  const none = noOperators(epoch);
  const operators: OperatorsState = {
    policies: mirror.state<OperatorsState['policies']>(Tail.policies) ?? none.policies,
    providers: mirror.state<OperatorsState['providers']>(Tail.providers) ?? none.providers,
    canary: mirror.state<OperatorsState['canary']>(Tail.canary) ?? none.canary,
    quotas: mirror.state<OperatorsState['quotas']>(Tail.storedQuotas) ?? none.quotas,
    shifts: mirror.state<OperatorsState['shifts']>(Tail.storedShifts) ?? none.shifts,
  };
  return troubles.length > 0
    ? troubles
    : registry.load(epoch, registrations, operators, (sidecar) => mirror.get(Tail.registration(sidecar))?.seq ?? 0);
}

/** The stream as the pen needs it. */
export function configStream(bus: Bus, subjects: Subjects): ConfigStream {
  return {
    append: async (tail, text, expectLastSeq) => {
      const appended = await bus.append(subjects.cfg(tail), Buffer.from(text, 'utf8'), { expectLastSeq, stream: CONFIG_STREAM });
      if ('seq' in appended) return { kind: 'stored', seq: appended.seq };
      if ('conflict' in appended)
        return { kind: 'conflict', why: `the stream is at ${appended.conflict ?? 'another sequence'}, expected was ${expectLastSeq}` };
      return { kind: 'unavailable', why: appended.failed };
    },
  };
}
