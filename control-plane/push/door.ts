/**
 * Where sidecars knock: requests (hello, register, leave), beats and reports. Reads them, has their addresses judged, hands
 * them to the registry, and answers when what follows is in force. Open only while this replica leads.
 */
import { type Clock, nextTurn } from '../../base/clock.ts';
import type { BusMessage } from '../../base/bus-message.ts';
import type { Bus } from '../../base/nats.ts';
import type { BusSubscription } from '../../base/nats-listeners.ts';
import { Code } from '../../proto/wire/codes.ts';
import {
  type AgentRegistration,
  type Answer,
  type Hello,
  type Leave,
  type Refusal,
  type Register,
  REGISTRY_WIRE,
  type Report,
} from '../../proto/wire/registry.ts';
import type { Subjects, Verb } from '../../proto/wire/subjects.ts';
import type { Change } from '../registry/change.ts';
import type { Registry } from '../registry/registry.ts';
import { type Reading, readHeartbeat, readHello, readLeave, readRegister, readReport } from '../registry/requests.ts';
import type { Admission } from './admission.ts';
import { encode, parse } from './json.ts';
import { speakerProblem } from './speaker.ts';
import type { Written } from './writer.ts';

/** So long requests are worked on without a pause; then timers and other connections have their turn: the lease above all. */
const SLICE_MS = 20;

export interface DoorParts {
  readonly bus: Bus;
  readonly clock: Clock;
  readonly subjects: Subjects;
  readonly admission: Admission;
  readonly epoch: string;
  readonly registry: () => Registry;
  readonly commit: (change: Change) => Promise<Written>;
  /** The same, but no longer than an asker waits. */
  readonly commitInTime: (change: Change) => Promise<Written>;
  /** What it measured; heard after the registry has. */
  readonly onReport?: (report: Report) => void;
  /** Sequence of the newest state of a capability; 0 = none is stored. */
  readonly stateSeq: (capability: string) => number;
  /** The newest of all. */
  readonly lastSeq: () => number;
}

export class Door {
  readonly #parts: DoorParts;
  readonly #subscriptions: BusSubscription[] = [];
  /** Of each sidecar the request that is being worked on. */
  readonly #turns = new Map<string, Promise<Change>>();
  /** The last of those that wait for their slice. */
  #line: Promise<void> = Promise.resolve();
  #waiting = 0;
  #sliceSinceMs = 0;
  #isClosed = false;

  constructor(parts: DoorParts) {
    this.#parts = parts;
    const { bus, subjects } = parts;
    const subscribed = (one: BusSubscription): void => void this.#subscriptions.push(one);
    const serve = (verb: Verb, answer: (message: BusMessage) => Promise<Uint8Array | null>): void => {
      for (const asked of subjects.asked(verb)) subscribed(bus.serve(asked, answer));
    };
    serve('hello', (message) =>
      this.#serve(
        message,
        readHello,
        (hello, refused) => this.#hello(hello, refused),
        (hello) => hello.agents,
      ),
    );
    serve('register', (message) =>
      this.#serve(
        message,
        readRegister,
        (register, refused) => this.#register(register, refused),
        (register) => [register.agent],
      ),
    );
    serve('leave', (message) => this.#serve(message, readLeave, (leave) => this.#leave(leave), noAgents));
    subscribed(bus.subscribe(subjects.heartbeats, (message) => this.#beatOf(message)));
    subscribed(bus.subscribe(subjects.reports, (message) => this.#reportOf(message)));
  }

  async #serve<T extends { readonly sidecar: string }>(
    message: BusMessage,
    read: (json: unknown) => Reading<T>,
    act: (request: T, refused: readonly Refusal[]) => Change | Promise<Change>,
    agentsOf: (request: T) => readonly AgentRegistration[],
  ): Promise<Uint8Array | null> {
    await this.#slice();
    if (this.#isClosed) return null;
    const reading = read(parse(message.data));
    if (reading.request === null) return encode(this.#answer(reading.refused, 0));
    const { request } = reading;
    const stranger = speakerProblem(this.#parts.subjects, message, request.sidecar);
    if (stranger !== null) return encode(this.#answer([{ agent: '', code: Code.forbidden, problems: [stranger] }], 0));
    const change = await this.#inTurn(request.sidecar, () => act(request, reading.refused));
    if (this.#isClosed) return null;
    if (change.isStranger) return encode({ ...this.#answer(change.refused, 0), again: 'hello' } satisfies Answer);
    const written = await this.#parts.commitInTime(change);
    if (this.#isClosed) return null;
    if (written.ok) {
      const states = this.#statesOf(agentsOf(request), change);
      return encode({ ...this.#answer(change.refused, written.seq, change.warned), states } satisfies Answer);
    }
    const unwritten: Refusal = { agent: '', code: Code.delivery_unavailable, problems: [`not written: ${written.why}; ask again`] };
    return encode({ ...this.#answer([...change.refused, unwritten], 0, change.warned), again: 'later' } satisfies Answer);
  }

  /** An agent that changes too often is told of later: by a state that is still to be written. */
  #statesOf(agents: readonly AgentRegistration[], change: Change): Record<string, number> {
    const deferred = new Set(change.deferred);
    const states: Record<string, number> = {};
    for (const { record } of agents) {
      const isLater = deferred.has(record.agentId);
      for (const { name } of record.offers) {
        if (isLater) states[name] = this.#parts.lastSeq() + 1;
        else states[name] ??= this.#parts.stateSeq(name);
      }
    }
    return states;
  }

  /** Requests wait here; more will change in a moment. */
  get isCrowded(): boolean {
    return this.#waiting > 0;
  }

  async #slice(): Promise<void> {
    if (this.#waiting++ === 0) this.#sliceSinceMs = this.#parts.clock.now();
    const turn = this.#line.then(() => this.#breathe());
    this.#line = turn;
    await turn;
    this.#waiting--;
  }

  async #breathe(): Promise<void> {
    const { clock } = this.#parts;
    if (clock.now() - this.#sliceSinceMs < SLICE_MS) return;
    await nextTurn();
    this.#sliceSinceMs = clock.now();
  }

  /** Requests of one sidecar one after another: a goodbye must not overtake the hello whose address is still being looked up. */
  async #inTurn(sidecar: string, act: () => Change | Promise<Change>): Promise<Change> {
    const before = this.#turns.get(sidecar);
    const turn = before === undefined ? Promise.resolve(act()) : before.then(act, act);
    this.#turns.set(sidecar, turn);
    try {
      return await turn;
    } finally {
      if (this.#turns.get(sidecar) === turn) this.#turns.delete(sidecar);
    }
  }

  async #hello(hello: Hello, refused: readonly Refusal[]): Promise<Change> {
    const { admission } = this.#parts;
    const mesh = admission.mesh(hello.mesh);
    if (mesh === null) admission.own(hello.sidecar, hello.mesh);
    const { admitted, refused: unwanted } = await admission.judge(hello.agents);
    const all = [...refused, ...unwanted, ...(mesh === null ? [] : [{ agent: '', code: Code.forbidden, problems: [`mesh: ${mesh}`] }])];
    return this.#parts.registry().hello({ ...hello, agents: admitted }, all);
  }

  async #register(register: Register, refused: readonly Refusal[]): Promise<Change> {
    const { refused: unwanted } = await this.#parts.admission.judge([register.agent]);
    return this.#parts.registry().register(register, [...refused, ...unwanted]);
  }

  #leave(leave: Leave): Change {
    if (leave.agent === null) this.#parts.admission.own(leave.sidecar, null);
    return this.#parts.registry().leave(leave);
  }

  #answer(refused: readonly Refusal[], seq: number, warned: readonly Refusal[] = []): Answer {
    const answer: Answer = { wire: REGISTRY_WIRE, ok: refused.length === 0, refused, seq, epoch: this.#parts.epoch };
    return warned.length === 0 ? answer : { ...answer, warned };
  }

  #beatOf(message: BusMessage): void {
    const { bus, subjects } = this.#parts;
    const beat = readHeartbeat(parse(message.data));
    if (beat === null || message.subject !== subjects.heartbeat(beat.sidecar)) return;
    const { change, askHello } = this.#parts.registry().heartbeat(beat);
    void this.#parts.commit(change);
    if (askHello) bus.publish(subjects.ask(beat.sidecar), encode({ wire: REGISTRY_WIRE, what: 'hello' }));
  }

  #reportOf(message: BusMessage): void {
    const report = readReport(parse(message.data));
    if (report === null || message.subject !== this.#parts.subjects.report(report.sidecar)) return;
    void this.#parts.commit(this.#parts.registry().report(report));
    this.#parts.onReport?.(report);
  }

  /** Who has knocked already gets no answer, and knocks again where it is opened. */
  close(): void {
    this.#isClosed = true;
    for (const each of this.#subscriptions) each.close();
  }
}

function noAgents(): readonly AgentRegistration[] {
  return [];
}
