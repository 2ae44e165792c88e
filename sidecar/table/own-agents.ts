/**
 * The agents that this sidecar registers: those of its own file, and those that came through its API. What is known of
 * each here is what it said and what the registry answered; the registry alone decides whether it is in force.
 *
 * They are always routable at their own sidecar: one that the registry has not judged yet stands beside its word, and one
 * that it has accepted does so until the message has come in which it is named. After that the registry's word counts
 * alone: an agent that is missing from it has been taken out.
 */
import type { Contract, ProviderRecord, TableDocument } from '../../proto/language/types.ts';
import type { AgentRegistration, Answer } from '../../proto/wire/registry.ts';
import type { Beside } from './parts.ts';

export type OwnSource = 'file' | 'api';
/** `gone`: nothing was heard of it for a whole lease; it comes back with its next beat. */
export type OwnState = 'pending' | 'in_force' | 'refused' | 'gone';

export class OwnAgent {
  readonly agentId: string;
  registration: AgentRegistration;
  source: OwnSource;
  state: OwnState = 'pending';
  /** Why it was refused. */
  code = 0;
  problems: readonly string[] = [];
  /** What of it is in force otherwise than it was said. */
  warnings: readonly string[] = [];
  /** Sequence at which it came into force, and the epoch that counts it; 0 = not yet. */
  seq = 0;
  epoch = '';
  /** By capability: sequence of the state from which on the registry's word on it counts. */
  readonly #states = new Map<string, number>();
  /** `clock.now()` when the registry was last asked about it alone. */
  askedAt = Number.NEGATIVE_INFINITY;
  /** `clock.now()` of its last sign of life by itself: registering or beating. */
  lastBeatAt: number;

  /** Its declared health check fails: whatever else it says, it is not to be called. */
  isUnwell = false;

  constructor(registration: AgentRegistration, source: OwnSource, now: number) {
    this.agentId = registration.record.agentId;
    this.registration = registration;
    this.source = source;
    this.lastBeatAt = now;
  }

  /** Capabilities that it offers. */
  get names(): string[] {
    return [...new Set(this.registration.record.offers.map(({ name }) => name))];
  }

  /** The registry has it in force: where its word on it is to be found. An answer that was overtaken by another one changes nothing. */
  accepted({ epoch, seq, states }: Answer): void {
    this.#begin(epoch);
    this.seq = Math.max(this.seq, seq);
    for (const name of this.names) {
      const known = this.#states.get(name) ?? 0;
      this.#states.set(name, Math.max(known, states === undefined ? this.seq : (states[name] ?? 0)));
    }
  }

  refused({ epoch }: Answer): void {
    this.#begin(epoch);
    this.forget();
  }

  /** What the registry said of it counts no more. */
  forget(): void {
    this.seq = 0;
    this.#states.clear();
  }

  #begin(epoch: string): void {
    if (this.epoch !== epoch) this.forget();
    this.epoch = epoch;
  }

  /** Whether the registry's word on it has come, when this is the newest sequence that is held of the capability, in that epoch. */
  isToldBy(name: string, heldSeq: number, epoch: string): boolean {
    return this.epoch === epoch && heldSeq >= (this.#states.get(name) ?? 0);
  }
}

/** It has no port: it is there exactly while it is connected. */
export function isDialIn(agent: OwnAgent): boolean {
  return agent.registration.record.endpoint.type === 'channel';
}

export interface FileChange {
  /** New ones, and those that say something else than before. */
  readonly changed: readonly string[];
  readonly removed: readonly string[];
}

export class OwnAgents {
  readonly #agents = new Map<string, OwnAgent>();
  /** What the registry has not been told yet: agent id → number of the change. */
  readonly #untold = new Map<string, number>();
  #changes = 0;
  /** The registry is about to forget them, since this sidecar stops: here they can be called until it has. */
  #isLeaving = false;
  /** Told which capabilities may have changed for the own table. */
  onChange: (names: readonly string[]) => void = () => {};
  /** Whether an agent that dials in is connected; set by whoever holds the connections. */
  isConnected: (agentId: string) => boolean = () => true;
  /** Told when the agents of the API have changed, to be kept on disk. */
  onApiChange: () => void = () => {};

  all(): IterableIterator<OwnAgent> {
    return this.#agents.values();
  }

  get(agentId: string): OwnAgent | null {
    return this.#agents.get(agentId) ?? null;
  }

  counts(): Record<OwnState, number> {
    const counts = { pending: 0, in_force: 0, refused: 0, gone: 0 };
    for (const { state } of this.#agents.values()) counts[state]++;
    return counts;
  }

  /** The file as a whole: what is no longer in it is gone. An agent that registered by API is not the file's to remove. */
  setFile(document: TableDocument, now: number): FileChange {
    const changed: string[] = [];
    const named = new Set<string>();
    for (const registration of registrationsOf(document)) {
      const { agentId } = registration.record;
      named.add(agentId);
      const known = this.#agents.get(agentId);
      if (known !== undefined && known.source === 'file' && isSame(known.registration, registration)) continue;
      this.put(registration, 'file', now);
      changed.push(agentId);
    }
    const removed = [...this.#agents.values()]
      .filter((agent) => agent.source === 'file' && !named.has(agent.agentId))
      .map((agent) => agent.agentId);
    for (const agentId of removed) this.remove(agentId);
    return { changed, removed };
  }

  put(registration: AgentRegistration, source: OwnSource, now: number): OwnAgent {
    const before = this.#agents.get(registration.record.agentId);
    const agent = new OwnAgent(registration, source, now);
    if (isDialIn(agent) && !this.isConnected(agent.agentId)) agent.state = 'gone';
    this.#agents.set(agent.agentId, agent);
    this.#moved(agent.agentId, [...(before?.names ?? []), ...agent.names], source === 'api' || before?.source === 'api');
    return agent;
  }

  #moved(agentId: string, names: readonly string[], isOfApi: boolean): void {
    this.#untold.set(agentId, ++this.#changes);
    if (isOfApi) this.onApiChange();
    this.onChange(names);
  }

  /** What is to be told now; hand it to `told` when it has been. */
  untold(): ReadonlyMap<string, number> {
    return new Map(this.#untold);
  }

  get isAllTold(): boolean {
    return this.#untold.size === 0;
  }

  /** Changes that came after what was told stay untold. */
  told(what: ReadonlyMap<string, number>): void {
    for (const [agentId, change] of what) if (this.#untold.get(agentId) === change) this.#untold.delete(agentId);
  }

  /** Puts back what stood there before an attempt. */
  restore(agentId: string, before: OwnAgent | null): void {
    const failed = this.#agents.get(agentId);
    // It has hung up while the registry was asked: this was told of the one that is taken out here.
    if (before !== null && before.state !== 'refused' && isDialIn(before) && !this.isConnected(agentId)) before.state = 'gone';
    if (before === null) this.#agents.delete(agentId);
    else this.#agents.set(agentId, before);
    this.onApiChange();
    this.onChange([...(failed?.names ?? []), ...(before?.names ?? [])]);
  }

  remove(agentId: string): OwnAgent | null {
    const agent = this.#agents.get(agentId) ?? null;
    if (agent === null) return null;
    this.#agents.delete(agentId);
    this.#moved(agentId, agent.names, agent.source === 'api');
    return agent;
  }

  /** Takes the registry's answer for the agents that were in the request; `sent` is what was said of each. */
  settle(answer: Answer, sent: readonly OwnAgent[]): void {
    const refused = new Map(answer.refused.map((refusal) => [refusal.agent, refusal]));
    const isJudged = answer.again === undefined;
    const whole = isJudged ? (refused.get('') ?? null) : null;
    for (const agent of sent) {
      // It has been replaced or removed meanwhile: the answer is about something that is no longer said.
      if (this.#agents.get(agent.agentId) !== agent) continue;
      const refusal = refused.get(agent.agentId) ?? whole;
      // It stays as it was until it has been asked about again.
      if (refusal === null && !isJudged) continue;
      agent.warnings = (answer.warned ?? []).flatMap((each) => (each.agent === agent.agentId ? each.problems : []));
      if (refusal !== null) {
        agent.state = 'refused';
        agent.code = refusal.code;
        agent.problems = refusal.problems;
        agent.refused(answer);
      } else if (answer.ok || answer.refused.length > 0) {
        if (agent.state !== 'gone') agent.state = 'in_force';
        agent.code = 0;
        agent.problems = [];
        agent.accepted(answer);
      }
      this.onChange(agent.names);
    }
  }

  setState(agent: OwnAgent, state: OwnState): void {
    if (agent.state === state) return;
    agent.state = state;
    this.onChange(agent.names);
  }

  /** Not to be called here now: gone, or it dials in and has not, whatever the registry said of it last. */
  isAbsent(agent: OwnAgent): boolean {
    return agent.state === 'gone' || (isDialIn(agent) && !this.isConnected(agent.agentId));
  }

  /**
   * It has been taken out here, whatever the registry says until it has heard of that. One that the registry has at another
   * sidecar has moved there: what was known of it here counts no more.
   */
  isAway({ agentId, via }: ProviderRecord): boolean {
    const agent = this.#agents.get(agentId);
    if (agent === undefined) return this.#untold.has(agentId);
    return agent.state === 'gone' && via === agent.registration.record.via;
  }

  /** This sidecar stops: what its agents ask of one another does not go by the registry's word any more. */
  leave(): void {
    this.#isLeaving = true;
    for (const agent of this.#agents.values()) this.onChange(agent.names);
  }

  /** The registry has begun anew and knows nobody but those whom it has judged since. */
  forgetConfirmations(epoch: string): void {
    for (const agent of this.#agents.values()) {
      if (this.isAbsent(agent) || agent.epoch === epoch) continue;
      agent.state = 'pending';
      agent.forget();
      this.onChange(agent.names);
    }
  }

  /**
   * What stands beside the registry's word on a capability.
   * @param heldSeq newest sequence that is held of the capability, in that epoch.
   */
  beside(name: string, heldSeq: number, epoch: string): Beside | null {
    let beside: { contracts: Contract[]; providers: Beside['providers'][number][] } | null = null;
    for (const agent of this.#agents.values()) {
      const counts = countsBeside(agent, name, heldSeq, epoch) || (this.#isLeaving && agent.state === 'in_force');
      if (!counts || !agent.names.includes(name)) continue;
      beside ??= { contracts: [], providers: [] };
      beside.contracts.push(...agent.registration.contracts.filter((contract) => contract.name === name));
      beside.providers.push({ record: agent.registration.record, mesh: '' });
    }
    return beside;
  }
}

function countsBeside(agent: OwnAgent, name: string, heldSeq: number, epoch: string): boolean {
  return agent.state === 'pending' || (agent.state === 'in_force' && !agent.isToldBy(name, heldSeq, epoch));
}

/** Each provider of a document with the contracts of what it offers. */
function registrationsOf(document: TableDocument): AgentRegistration[] {
  return document.providers.map((record) => ({ contracts: contractsFor(record, document.contracts), record }));
}

function contractsFor(record: ProviderRecord, contracts: readonly Contract[]): readonly Contract[] {
  const names = new Set(record.offers.map(({ name }) => name));
  return contracts.filter(({ name }) => names.has(name));
}

function isSame(a: AgentRegistration, b: AgentRegistration): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
