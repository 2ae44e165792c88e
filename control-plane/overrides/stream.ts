/** The stream of overrides: one message, the whole list, republished to every sidecar. Any replica makes it; nobody leads it. */
import type { StreamSpec } from '../../base/jetstream.ts';
import { OVERRIDE_STREAM, type Subjects } from '../../proto/wire/subjects.ts';

export function overrideStream(subjects: Subjects, replicas: number): StreamSpec {
  return {
    name: OVERRIDE_STREAM,
    description: 'Agent-Reach: emergency overrides of the operators',
    subjects: [subjects.allOverrides],
    storage: 'file',
    discard: 'old',
    maxMsgsPerSubject: 1,
    allowDirect: true,
    replicas,
    republish: { source: subjects.allOverrides, destination: subjects.allPushedOverrides },
  };
}
