/**
 * Where sidecars say hello, register an agent and say goodbye: who is listened to, what of it is taken, whom it replaces.
 * Saying the same thing again changes nothing.
 */
import type { AgentRegistration, Hello, Leave, Refusal, Register } from '../../proto/wire/registry.ts';
import { SidecarEntry } from './entries.ts';
import { isShared, judgeAgent, rivalsOf } from './judge.ts';
import { Touch } from './marks.ts';
import { refusal } from './requests.ts';
import type { RegistryState } from './state.ts';

export class Reception {
  readonly #state: RegistryState;

  constructor(state: RegistryState) {
    this.#state = state;
  }

  hello(hello: Hello, refused: readonly Refusal[] = []): void {
    const { marks } = this.#state;
    for (const each of refused) marks.refuse(each);
    if (refused.some((each) => each.agent === '')) return;
    const known = this.#state.sidecars.get(hello.sidecar);
    if (known !== undefined && this.#isTwin(known, hello.instance)) {
      const words = `another process calls itself ${hello.sidecar} and is the newer one: give each sidecar a name of its own`;
      marks.event({ kind: 'twin', agent: '', sidecar: hello.sidecar, why: '', words });
      marks.refuse(refusal('', [words]));
      return;
    }
    const isNewProcess = known?.instance !== hello.instance;
    const sidecar = this.#greet(known, hello);
    const unreadable = new Set(refused.map((each) => each.agent));
    const inForce = this.#registerAll(
      sidecar,
      hello.agents.filter(({ record }) => !unreadable.has(record.agentId)),
    );
    const listed = new Set([...hello.agents.map(({ record }) => record.agentId), ...unreadable]);
    for (const entry of sidecar.agents.values()) {
      // a refused change of a process that goes on leaves what it had in force; a new process has nothing else
      if (inForce.has(entry.agentId) || (!isNewProcess && listed.has(entry.agentId))) continue;
      this.#state.setOffline(entry, 'left', `${entry.agentId} is no longer among what ${sidecar.name} hosts`);
    }
  }

  #isTwin(sidecar: SidecarEntry, instance: string): boolean {
    const isHeard = sidecar.leftAt === null && this.#state.clock.now() - sidecar.lastSignAt() < this.#state.times.offlineMs;
    return isHeard && sidecar.instance !== instance && sidecar.former.includes(instance);
  }

  /** The sidecar itself: its process, its place, its callers. */
  #greet(known: SidecarEntry | undefined, hello: Hello): SidecarEntry {
    const now = this.#state.clock.now();
    const sidecar = known ?? new SidecarEntry(hello, now, true);
    const touch = new Touch();
    if (known === undefined || known.leftAt !== null)
      this.#state.marks.event({
        kind: 'sidecar-joined',
        agent: '',
        sidecar: hello.sidecar,
        why: '',
        words: `the sidecar ${hello.sidecar} joined`,
      });
    if (known === undefined) {
      this.#state.sidecars.set(sidecar.name, sidecar);
      touch.registrations.add(sidecar.name);
      this.#state.scopes.refresh(sidecar);
      touch.scopes.add(sidecar.name);
    }
    const { callers } = hello;
    const callersChanged = sidecar.callers.length !== callers.length || sidecar.callers.some((caller, i) => caller !== callers[i]);
    // Where it is, and that it is another process: what callers have found out about the one before counts no more.
    if (sidecar.mesh !== hello.mesh || sidecar.instance !== hello.instance)
      for (const entry of sidecar.agents.values())
        if (entry.record.via !== null) for (const { name } of entry.record.offers) touch.capabilities.add(name);
    if (
      sidecar.instance !== hello.instance ||
      sidecar.mesh !== hello.mesh ||
      sidecar.region !== hello.region ||
      sidecar.zone !== hello.zone ||
      sidecar.isNamed !== (hello.named === true) ||
      callersChanged
    )
      touch.registrations.add(sidecar.name);
    if (sidecar.instance !== hello.instance) sidecar.replace(hello.instance);
    sidecar.mesh = hello.mesh;
    sidecar.region = hello.region;
    sidecar.zone = hello.zone;
    sidecar.isNamed = hello.named === true;
    sidecar.callers = callers;
    sidecar.beatAt = now;
    sidecar.knownAt = now;
    sidecar.leftAt = null;
    sidecar.refusedAt = null;
    if (callersChanged && this.#state.scopes.refresh(sidecar)) touch.scopes.add(sidecar.name);
    this.#state.marks.touch(`sidecar:${sidecar.name}`, touch);
    return sidecar;
  }

  /** Agents may rely on contracts that others of the same hello bring, in any order. @returns those that are in force. */
  #registerAll(sidecar: SidecarEntry, agents: readonly AgentRegistration[]): Set<string> {
    const inForce = new Set<string>();
    let waiting = agents;
    let refusals: Refusal[] = [];
    for (let progress = true; progress && waiting.length > 0; ) {
      progress = false;
      refusals = [];
      const again: AgentRegistration[] = [];
      for (const agent of waiting) {
        const refused = this.#registerOne(sidecar, agent);
        if (refused === null) {
          inForce.add(agent.record.agentId);
          progress = true;
        } else {
          again.push(agent);
          refusals.push(refused);
        }
      }
      waiting = again;
    }
    for (const each of refusals) this.#refuse(sidecar, each);
    return inForce;
  }

  #refuse(sidecar: SidecarEntry, refused: Refusal): void {
    sidecar.refusedAt = this.#state.revision;
    this.#state.marks.refuse(refused);
  }

  #registerOne(sidecar: SidecarEntry, agent: AgentRegistration): Refusal | null {
    const { refusal: refused, warning, contested } = judgeAgent(this.#state, sidecar, agent);
    if (refused !== null) return refused;
    const rivals = rivalsOf(this.#state, sidecar, agent.record.agentId);
    this.#state.install(sidecar, agent, contested);
    // the new one first, so that contracts which both hold are never without a holder
    for (const rival of rivals) if (!isShared(rival, agent.record)) this.#state.drop(rival, true);
    if (warning !== null) {
      sidecar.refusedAt = this.#state.revision;
      this.#state.marks.warn(warning);
    }
    return null;
  }

  register(register: Register, refused: readonly Refusal[] = []): void {
    const { marks } = this.#state;
    for (const each of refused) marks.refuse(each);
    if (refused.length > 0) return;
    const sidecar = this.#heard(register);
    if (sidecar === null) return;
    const problem = this.#registerOne(sidecar, register.agent);
    if (problem !== null) this.#refuse(sidecar, problem);
  }

  /** The sidecar that asks, when it has said hello; else the refusal is noted. */
  #heard(from: { readonly sidecar: string; readonly instance: string }): SidecarEntry | null {
    const sidecar = this.#state.sidecars.get(from.sidecar);
    if (sidecar !== undefined && sidecar.instance === from.instance && sidecar.leftAt === null) {
      sidecar.beatAt = this.#state.clock.now();
      return sidecar;
    }
    this.#state.marks.stranger();
    this.#state.marks.refuse(refusal('', [`this process of ${from.sidecar} has not said hello here: say hello first`]));
    return null;
  }

  leave(leave: Leave): void {
    const { marks } = this.#state;
    const sidecar = this.#heard(leave);
    if (sidecar === null) return;
    if (leave.agent !== null) {
      const entry = sidecar.agents.get(leave.agent);
      const isSilent = leave.why === 'lease';
      if (entry !== undefined)
        this.#state.setOffline(
          entry,
          isSilent ? 'lease' : 'left',
          isSilent ? `${leave.agent} is offline: its sidecar hears nothing of it` : `${leave.agent} said goodbye`,
        );
      return;
    }
    sidecar.leftAt = this.#state.clock.now();
    marks.event({ kind: 'sidecar-left', agent: '', sidecar: sidecar.name, why: 'left', words: `the sidecar ${sidecar.name} said goodbye` });
    for (const entry of sidecar.agents.values()) {
      // a third party is reached without this sidecar: it stays for the rest of its lease, in which the sidecar may be back
      if (entry.record.via === null) entry.isOrphan = true;
      else this.#state.setOffline(entry, 'left', `${entry.agentId} left with its sidecar`);
    }
  }
}
