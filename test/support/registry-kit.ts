/** What sidecars say to a registry, made from the YAML that people write: for tests and benches that play a sidecar themselves. */
import { readTable } from '../../proto/language/document.ts';
import {
  type AgentRegistration,
  type Answer,
  type Heartbeat,
  type Hello,
  type Leave,
  REGISTRY_WIRE,
  type Register,
} from '../../proto/wire/registry.ts';
import type { Subjects } from '../../proto/wire/subjects.ts';

/** The agents in a sidecar's own file, each with the contracts of what it offers. Throws with the file's problems. */
export function agentsOf(text: string, sidecar: string | null = null): AgentRegistration[] {
  const reading = readTable(text, 'agents.yaml', sidecar, false);
  if ('problems' in reading)
    throw new Error(reading.problems.map((each) => `${each.line}:${each.column} ${each.path} ${each.message}`).join('\n'));
  const { contracts, providers } = reading.document;
  return providers.map((record) => {
    const names = new Set(record.offers.map(({ name }) => name));
    return { contracts: contracts.filter(({ name }) => names.has(name)), record };
  });
}

/** The only agent of a file. */
export function agentOf(text: string, sidecar: string | null = null): AgentRegistration {
  const [agent, ...more] = agentsOf(text, sidecar);
  if (agent === undefined || more.length > 0) throw new Error('a file with exactly one provider was expected');
  return agent;
}

/** Who speaks. */
export interface Speaker {
  readonly sidecar: string;
  readonly instance: string;
  readonly mesh?: string | null;
  readonly callers?: readonly string[];
}

export function helloOf(from: Speaker, agents: readonly AgentRegistration[] = []): Hello {
  const { sidecar, instance, mesh = null, callers = [] } = from;
  return { wire: REGISTRY_WIRE, sidecar, instance, mesh, region: null, zone: null, callers, agents };
}

export function registerOf({ sidecar, instance }: Speaker, agent: AgentRegistration): Register {
  return { wire: REGISTRY_WIRE, sidecar, instance, agent };
}

export function leaveOf({ sidecar, instance }: Speaker, agent: string | null): Leave {
  return { wire: REGISTRY_WIRE, sidecar, instance, agent };
}

export function beatOf({ sidecar, instance }: Speaker, agents: Heartbeat['agents']): Heartbeat {
  return { wire: REGISTRY_WIRE, sidecar, instance, agents };
}

interface Asking {
  request(
    subject: string,
    data: Uint8Array,
    timeoutMs: number,
  ): Promise<{ readonly kind: string; readonly message?: { readonly data: Buffer } }>;
}

const ANSWER_WITHIN_MS = 10_000;

/** Asks the leader and gives its answer; throws when there is none. */
export async function askLeader(bus: Asking, subjects: Subjects, verb: 'hello' | 'register' | 'leave', message: object): Promise<Answer> {
  const reply = await bus.request(subjects.ctl(verb), Buffer.from(JSON.stringify(message)), ANSWER_WITHIN_MS);
  if (reply.message === undefined) throw new Error(`the control plane did not answer a ${verb}: ${reply.kind}`);
  return JSON.parse(reply.message.data.toString('utf8')) as Answer;
}
