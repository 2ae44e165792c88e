/**
 * What this sidecar tells the registry: that it is there, whom it hosts and who calls through it. Whatever cannot be said now is said later: a hello carries everything, so that one hello heals whatever
 * was lost before it. Attempts are spaced out and have chance in them; a control plane that comes back to two hundred
 * sidecars hears them one after another.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { BusReply } from '../../base/bus-message.ts';
import { replyWords } from '../../base/bus-message.ts';
import type { Random } from '../../base/random.ts';
import type { TableDocument } from '../../proto/language/types.ts';
import { type AgentRegistration, type Answer, type Hello, type Leave, REGISTRY_WIRE, type Register } from '../../proto/wire/registry.ts';
import type { Subjects } from '../../proto/wire/subjects.ts';
import { readAnswer } from './answer.ts';
import { type Activity, Beats } from './beats.ts';
import { bytesOf, type RegistryBus } from './bus.ts';
import { isDialIn, type OwnAgent, type OwnAgents, type OwnSource } from './own-agents.ts';
import type { LeaderNews } from './sync.ts';

/** Who this sidecar is, to the registry. */
export interface Self {
  readonly sidecar: string;
  /** Made anew at each start of the process. */
  readonly instance: string;
  readonly region: string | null;
  readonly zone: string | null;
  readonly callers: readonly string[];
  readonly heartbeatMs: number;
  readonly leaseMs: number;
}

export interface AnnounceParts {
  readonly bus: RegistryBus;
  readonly subjects: Subjects;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly own: OwnAgents;
  readonly activity: Activity;
}

/** A leader under load answers within this; after it the next hello says it again. */
const REQUEST_MS = 3_000;
/** A hello may carry much, and nobody waits for it. */
const HELLO_MS = 8_000;
const FIRST_PAUSE_MS = 250;
/** An agent that was refused is not asked about more often than this. */
const ASK_AGAIN_MS = 1_000;
const MAX_PAUSE_MS = 15_000;
/** Two hundred sidecars that see the control plane come back spread their words over this. */
const SPREAD_MS = 1_500;
/** A registry that has taken a hello and still has no scope for this sidecar is not asked more often than this. */
const UNKNOWN_REST_MS = 15_000;
/** So many changes of the file are announced one by one; more in one hello. */
const MAX_SINGLE = 4;
/** Agents that show their credentials for the first time wait for this. */
const MET_MS = 5;
const FORGOTTEN_MS = 1_000;
const CALLERS_PER_MS = 10;
/** Half of what a server takes by default. */
const USUAL_BYTES = 524_288;

export class Announcer {
  readonly #parts: AnnounceParts;
  readonly #self: Self;
  readonly #beats: Beats;
  #mesh: string | null = null;
  #isStarted = false;
  #isStopped = false;
  /** The hello that is under way; null = none is. */
  #talk: Promise<void> | null = null;
  #failures = 0;
  /** Agents that have shown a credential here, beside the callers of the settings. */
  readonly #met = new Set<string>();
  #isEveryCallerTold = true;
  /** Told of each hello that the registry has taken: the sequence at which what it said is in force. */
  onHello: (seq: number) => void = () => {};
  /** Epoch in which the registry has taken a hello of this process; null = in none. */
  #admittedTo: string | null = null;
  #answeredAt = Number.NEGATIVE_INFINITY;
  #helloTimer: Timer | null = null;
  #helloAt = Number.POSITIVE_INFINITY;
  #state: { close(): void } | null = null;
  /** Why the last hello had no effect; '' = it had, or none was tried. */
  trouble = '';

  constructor(parts: AnnounceParts, self: Self) {
    this.#parts = parts;
    this.#self = self;
    this.#beats = new Beats({
      ...parts,
      ...self,
      onSilent: (agent) => this.#silent(agent),
      onBack: (agent) => this.beat(agent.agentId),
    });
  }

  get leaseMs(): number {
    return this.#self.leaseMs;
  }

  /** The registry has answered a hello of this process, and nothing has changed since. */
  get isKnown(): boolean {
    return this.isAdmitted && this.#parts.own.isAllTold && this.#isEveryCallerTold;
  }

  /** The registry has taken a hello of this process. */
  get isAdmitted(): boolean {
    return this.#admittedTo !== null;
  }

  /** The registry has been told of all who call through here, and of no others. */
  get isEveryCallerTold(): boolean {
    return this.#isEveryCallerTold;
  }

  /** Everybody who calls through here, as far as it is known; sorted. */
  get callers(): readonly string[] {
    const { callers } = this.#self;
    return this.#met.size === 0 ? callers : [...new Set([...callers, ...this.#met])].sort();
  }

  /** @param mesh address at which the other sidecars reach this one; null = they do not. */
  start(mesh: string | null): void {
    const { bus, random } = this.#parts;
    this.#mesh = mesh;
    this.#isStarted = true;
    this.#state = bus.onState(({ connected }) => {
      if (connected) this.#helloIn(random.next() * SPREAD_MS);
    });
    if (bus.connected) this.#helloIn(0);
    this.#beats.start();
  }

  /** Says goodbye to the registry, waiting for its answer no longer than this. */
  async goodbye(withinMs: number): Promise<void> {
    this.#halt();
    if (!this.#isStarted || !this.#parts.bus.connected) return;
    await this.#parts.bus.request(this.#parts.subjects.ctl('leave'), bytesOf(this.#leave(null, 'left')), withinMs);
  }

  stop(): void {
    this.#halt();
    this.#state?.close();
  }

  #halt(): void {
    this.#isStopped = true;
    this.#beats.stop();
    this.#helloTimer?.cancel();
    this.#helloTimer = null;
  }

  /**
   * The control plane is heard again, has begun anew, or has nothing for this sidecar.
   * @param epoch in which that was found out.
   */
  leaderIs(why: LeaderNews, epoch: string): void {
    const isAdmittedThere = this.#admittedTo === epoch;
    if (why === 'new epoch' && isAdmittedThere) return;
    if (why === 'unknown here') {
      // A hello is on its way or planned, or its answer has overtaken what is to be read of it.
      const isRecent = isAdmittedThere && this.#parts.clock.now() - this.#answeredAt < UNKNOWN_REST_MS;
      if (this.#talk !== null || this.#helloTimer !== null || isRecent) return;
    }
    if (why !== 'back') this.#admittedTo = null;
    const spread = this.#parts.random.next() * SPREAD_MS;
    if (!this.isKnown) {
      // Whoever has failed often begins with short pauses again.
      this.#failures = 0;
      this.#helloIn(spread);
    } else this.#beats.onceMore(this.#answeredAt);
  }

  /** An agent has shown a credential; false when the registry knows of it, or is about to. */
  meet(agent: string): boolean {
    if (this.#met.has(agent) || this.#self.callers.includes(agent)) return false;
    this.#met.add(agent);
    this.#callersChanged(MET_MS);
    return true;
  }

  /** Its credentials have ended. */
  forget(agent: string): void {
    if (this.#met.delete(agent)) this.#callersChanged(FORGOTTEN_MS);
  }

  /** A hello names all of them: the more there are, the more of those that come together are to be in one. */
  #callersChanged(afterMs: number): void {
    this.#isEveryCallerTold = false;
    if (this.#isStarted && this.#parts.bus.connected) this.#helloIn(afterMs + this.#met.size / CALLERS_PER_MS);
  }

  /** The leader asks for a hello. */
  helloSoon(): void {
    this.#admittedTo = null;
    this.#helloIn(this.#parts.random.next() * SPREAD_MS);
  }

  /** The own file has been read (again): the difference is announced. */
  setFile(document: TableDocument): void {
    const { own, clock } = this.#parts;
    const { changed, removed } = own.setFile(document, clock.now());
    if (!this.#isStarted || changed.length + removed.length === 0) return;
    if (changed.length + removed.length > MAX_SINGLE || !this.#parts.bus.connected) this.#helloIn(0);
    else void this.#announceEach(changed, removed);
  }

  async #announceEach(changed: readonly string[], removed: readonly string[]): Promise<void> {
    for (const agentId of changed) {
      const agent = this.#parts.own.get(agentId);
      if (agent !== null && agent.state !== 'gone') await this.#registerNow(agent);
    }
    for (const agentId of removed) await this.#leaveNow(agentId, 'left');
  }

  /** Registers one agent now; `pending`: the control plane cannot be reached, and will be told later. */
  async register(registration: AgentRegistration, source: OwnSource): Promise<OwnAgent> {
    const { own, clock } = this.#parts;
    const { agentId } = registration.record;
    const before = own.get(agentId);
    const agent = own.put(registration, source, clock.now());
    await this.#registerNow(agent);
    // What was in force before stays in force at the registry when the new word is refused, and so it does here.
    if (agent.state === 'refused' && own.get(agentId) === agent) own.restore(agentId, before);
    // It has been judged, and can be called when it has dialled in.
    else if (agent.state === 'gone') await this.#leaveNow(agentId, 'left');
    return agent;
  }

  /** False when there is no such agent. */
  async deregister(agentId: string): Promise<boolean> {
    if (this.#parts.own.remove(agentId) === null) return false;
    await this.#leaveNow(agentId, 'left');
    return true;
  }

  /** An agent that dials in has lost its connection, or closed it: no lease is waited for. */
  disconnected(agentId: string): void {
    const { own } = this.#parts;
    const agent = own.get(agentId);
    if (agent === null || !isDialIn(agent) || agent.state === 'gone') return;
    // Of one that was refused an earlier word may be in force there. It stays refused until it is asked about again.
    if (agent.state !== 'refused') own.setState(agent, 'gone');
    void this.#leaveNow(agentId, 'left');
  }

  /** A sign of life of an agent; null when there is no such agent. */
  beat(agentId: string): OwnAgent | null {
    const { own, clock } = this.#parts;
    const agent = own.get(agentId);
    if (agent === null) return null;
    agent.lastBeatAt = clock.now();
    // An agent that dials in is there while it is connected, whatever it says by other ways.
    if (isDialIn(agent) && !own.isConnected(agentId)) return agent;
    if (agent.isUnwell) return agent;
    if (agent.state === 'gone') {
      own.setState(agent, 'pending');
      void this.#registerNow(agent);
    } else if (agent.state === 'refused' && isDialIn(agent) && clock.now() - agent.askedAt >= ASK_AGAIN_MS) {
      // It comes to whom it likes: the sidecar that had it, and for whose sake it was refused here, may have lost it since.
      void this.#registerNow(agent);
    }
    return agent;
  }

  /** Milliseconds since the agent last beat or answered a call. */
  idleMs(agent: OwnAgent): number {
    return this.#beats.idleMs(agent);
  }

  /** Its health check has found it dead. */
  lost(agent: OwnAgent): void {
    if (agent.state === 'gone') return;
    this.#parts.own.setState(agent, 'gone');
    void this.#leaveNow(agent.agentId, 'lease');
  }

  #silent(agent: OwnAgent): void {
    const { own, log } = this.#parts;
    own.setState(agent, 'gone');
    const what = { agent: agent.agentId, leaseMs: this.#self.leaseMs };
    log.warn(what, 'an agent has neither beaten nor answered for a whole lease: it is reported gone');
    void this.#leaveNow(agent.agentId, 'lease');
  }

  // ---- single words

  async #registerNow(agent: OwnAgent): Promise<void> {
    const told = onlyOf(this.#parts.own.untold(), agent.agentId);
    agent.askedAt = this.#parts.clock.now();
    const message: Register = {
      wire: REGISTRY_WIRE,
      sidecar: this.#self.sidecar,
      instance: this.#self.instance,
      agent: agent.registration,
    };
    let answer = await this.#ask('register', message);
    if (answer?.again === 'hello') {
      // It would be taken for no word at all: first who speaks, then the word. A hello that fails plans the next one itself.
      if (!(await this.#greeted(agent.askedAt))) return;
      // Meanwhile something else may be said of it, or nothing: then that word counts.
      if (this.#parts.own.get(agent.agentId) !== agent) return;
      answer = await this.#ask('register', message);
    }
    if (answer !== null && answer.again !== 'hello') this.#parts.own.settle(answer, [agent]);
    if (answer === null || answer.again !== undefined) this.#helloIn(this.#pauseMs());
    else this.#parts.own.told(told);
  }

  async #leaveNow(agentId: string, why: 'left' | 'lease'): Promise<void> {
    const told = onlyOf(this.#parts.own.untold(), agentId);
    const answer = await this.#ask('leave', this.#leave(agentId, why));
    // A hello says who is there, and so who is not.
    if (answer === null || answer.again !== undefined) this.#helloIn(this.#pauseMs());
    else this.#parts.own.told(told);
  }

  #leave(agent: string | null, why: 'left' | 'lease'): Leave {
    return { wire: REGISTRY_WIRE, sidecar: this.#self.sidecar, instance: this.#self.instance, agent, why };
  }

  async #ask(verb: 'hello' | 'register' | 'leave', message: object): Promise<Answer | null> {
    const { bus, subjects } = this.#parts;
    const reply: BusReply = await bus.request(subjects.ctl(verb), bytesOf(message), verb === 'hello' ? HELLO_MS : REQUEST_MS);
    if (reply.kind !== 'ok') {
      this.trouble = replyWords(reply, 'the control plane');
      return null;
    }
    const answer = readAnswer(reply.message.data);
    this.trouble = typeof answer === 'string' ? `the control plane's answer cannot be used: ${answer}` : putOff(answer);
    if (typeof answer === 'string') return null;
    for (const { agent, problems } of answer.warned ?? [])
      this.#parts.log.warn({ agent, problems }, 'the registry has a registration in force otherwise than it was said');
    return answer;
  }

  // ---- hello

  #pauseMs(): number {
    return Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(this.#failures, 10)) * (0.5 + this.#parts.random.next());
  }

  /** At the latest then; an earlier one that is planned stays. */
  #helloIn(ms: number): void {
    if (this.#isStopped || !this.#isStarted) return;
    const at = this.#parts.clock.now() + ms;
    if (this.#helloTimer !== null && this.#helloAt <= at) return;
    this.#helloTimer?.cancel();
    this.#helloAt = at;
    this.#helloTimer = this.#parts.clock.after(ms, () => {
      this.#helloTimer = null;
      void this.#hello();
    });
  }

  /**
   * Whether the registry has taken a hello of this process: of late, or now.
   * @param since when it had taken none (`clock.now()` scale).
   */
  async #greeted(since: number): Promise<boolean> {
    if (this.#answeredAt < since) this.#admittedTo = null;
    if (this.#admittedTo === null) await (this.#talk ?? this.#hello());
    return this.#admittedTo !== null;
  }

  #hello(): Promise<void> {
    if (this.#talk !== null) return this.#talk;
    if (this.#isStopped || !this.#isStarted || !this.#parts.bus.connected) return Promise.resolve();
    // It says all that the one that was planned would have said.
    this.#helloTimer?.cancel();
    this.#helloTimer = null;
    this.#talk = this.#talkOnce();
    return this.#talk;
  }

  async #talkOnce(): Promise<void> {
    const { own, log } = this.#parts;
    const told = own.untold();
    const sent = [...own.all()].filter((agent) => !own.isAbsent(agent));
    this.#isEveryCallerTold = true;
    const answer = await this.#ask('hello', this.#fitting(this.#helloOf(sent)));
    this.#talk = null;
    if (this.#isStopped) return;
    if (answer?.again === 'later') own.settle(answer, sent);
    if (answer === null || answer.again !== undefined) {
      this.#isEveryCallerTold = false;
      this.#failures++;
      this.#helloIn(this.#pauseMs());
      return;
    }
    this.#failures = 0;
    this.#answeredAt = this.#parts.clock.now();
    own.told(told);
    own.settle(answer, sent);
    const whole = answer.refused.find(({ agent }) => agent === '');
    this.#admittedTo = whole === undefined ? answer.epoch : null;
    if (whole === undefined) this.onHello(answer.seq);
    if (whole !== undefined) this.trouble = `the registry refuses this sidecar: ${whole.problems.join('; ')}`;
    for (const { agent, code, problems } of answer.refused) log.error({ agent, code, problems }, 'the registry refused a registration');
    // Whoever is refused as a whole may be taken later, when an operator has changed something.
    if (whole !== undefined) this.#helloIn(MAX_PAUSE_MS * (1 + this.#parts.random.next()));
    else if (!this.isKnown) this.#helloIn(0);
  }

  /** Hundreds of agents of one kind say the same contract hundreds of times; where that is too much, it is said once. */
  #fitting(hello: Hello): Hello {
    return JSON.stringify(hello).length < USUAL_BYTES ? hello : { ...hello, agents: withoutRepeats(hello.agents) };
  }

  #helloOf(agents: readonly OwnAgent[]): Hello {
    return {
      wire: REGISTRY_WIRE,
      sidecar: this.#self.sidecar,
      instance: this.#self.instance,
      mesh: this.#mesh,
      region: this.#self.region,
      zone: this.#self.zone,
      callers: this.callers,
      named: true,
      agents: agents.map(({ registration }) => registration),
    };
  }
}

/** Why it has no effect yet; '' = it has. */
function putOff({ again, refused }: Answer): string {
  if (again === undefined) return '';
  return refused.find(({ agent }) => agent === '')?.problems.join('; ') ?? `the control plane asks to say it again (${again})`;
}

function onlyOf(untold: ReadonlyMap<string, number>, agentId: string): ReadonlyMap<string, number> {
  const change = untold.get(agentId);
  return new Map(change === undefined ? [] : [[agentId, change]]);
}

/** Each contract once. */
function withoutRepeats(registrations: readonly AgentRegistration[]): AgentRegistration[] {
  const said = new Set<string>();
  return registrations.map(({ contracts, record }) => ({
    contracts: contracts.filter((contract) => {
      const text = JSON.stringify(contract);
      if (said.has(text)) return false;
      said.add(text);
      return true;
    }),
    record,
  }));
}
