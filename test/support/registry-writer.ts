/**
 * A tiny control plane for tests of the sidecar's side: it writes what it is told to write, in the form of the real one,
 * answers hello, register and leave, and beats. It decides nothing: whoever registers is in force, unless the test refuses.
 */
import { realClock, type Clock, type Timer } from '../../base/clock.ts';
import type { BusMessage } from '../../base/bus-message.ts';
import type { Bus } from '../../base/nats.ts';
import { readTable } from '../../proto/language/document.ts';
import { policiesFor } from '../../proto/language/merge.ts';
import type { TableDocument } from '../../proto/language/types.ts';
import type {
  Answer,
  CapabilityState,
  Heartbeat,
  Hello,
  Leave,
  PushedProvider,
  Refusal,
  Register,
  Report,
} from '../../proto/wire/registry.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import { CONFIG_STREAM, PROVIDERS_PER_SHARD, Subjects, Tail } from '../../proto/wire/subjects.ts';

const BEACON_MS = 1_000;

export class RegistryWriter {
  readonly subjects: Subjects;
  readonly bus: Pick<Bus, 'append' | 'ensureStream' | 'publish' | 'serve' | 'subscribe' | 'request' | 'last'>;
  readonly hellos: Hello[] = [];
  readonly registers: Register[] = [];
  readonly leaves: Leave[] = [];
  readonly beats: Heartbeat[] = [];
  readonly reports: Report[] = [];
  epoch: string;
  lastSeq = 0;
  /** Why an agent ('' = a whole request) is refused; null = it is not. */
  refuses: (agent: string) => Refusal | null = () => null;
  /** What is in force otherwise than an agent said; null = nothing. */
  warns: (agent: string) => Refusal | null = () => null;
  /** Done with what a hello says before it is answered. */
  onHello: (hello: Hello) => Promise<void> = () => Promise.resolve();
  onRegister: (register: Register) => Promise<void> = () => Promise.resolve();
  onLeave: (leave: Leave) => Promise<void> = () => Promise.resolve();
  /** What else an answer says, by what was asked. */
  more: (verb: 'hello' | 'register' | 'leave') => Partial<Answer> = () => ({});
  readonly #clock: Clock;
  readonly #open: { close(): void }[] = [];
  #recent: [string, number][] = [];
  #since = 0;
  #timer: Timer | null = null;
  #isBeating = false;

  constructor(bus: RegistryWriter['bus'], epoch = 'epoch-1', clock: Clock = realClock, env = 'test') {
    this.bus = bus;
    this.subjects = new Subjects(env);
    this.epoch = epoch;
    this.#clock = clock;
  }

  /** Makes the stream and mints the epoch. */
  async begin(): Promise<void> {
    const { subjects } = this;
    const ready = await this.bus.ensureStream({
      name: CONFIG_STREAM,
      subjects: [subjects.config],
      storage: 'file',
      maxMsgsPerSubject: 1,
      allowDirect: true,
      republish: { source: subjects.config, destination: subjects.push },
    });
    if ('failed' in ready) throw new Error(ready.failed);
    this.#recent = [];
    this.#since = 0;
    this.lastSeq = 0;
    await this.put(Tail.epoch, {});
  }

  /** Answers, listens and beats, as a leader does. */
  lead(): void {
    const { subjects, bus } = this;
    this.#open.push(
      bus.serve(subjects.ctl('hello'), (message) => this.#answerHello(message)),
      bus.serve(subjects.ctl('register'), (message) => this.#answerRegister(message)),
      bus.serve(subjects.ctl('leave'), (message) => this.#answerLeave(message)),
      bus.subscribe(subjects.heartbeats, ({ data }) => void this.beats.push(parsed<Heartbeat>(data))),
      bus.subscribe(subjects.reports, ({ data }) => void this.reports.push(parsed<Report>(data))),
    );
    this.startBeacon();
  }

  /** Dies without a word. */
  die(): void {
    this.stopBeacon();
    for (const one of this.#open) one.close();
    this.#open.length = 0;
  }

  startBeacon(): void {
    this.#isBeating = true;
    const beat = (): void => {
      if (!this.#isBeating) return;
      this.beacon();
      this.#timer = this.#clock.after(BEACON_MS, beat);
    };
    beat();
  }

  stopBeacon(): void {
    this.#isBeating = false;
    this.#timer?.cancel();
  }

  beacon(): void {
    const message = { wire: REGISTRY_WIRE, epoch: this.epoch, lastSeq: this.lastSeq, recent: this.#recent, since: this.#since, term: 1 };
    this.bus.publish(this.subjects.beacon, bytes(message));
  }

  /** What beacons name is forgotten, as it is after ten seconds. */
  forgetRecent(): void {
    this.#recent = [];
    this.#since = this.lastSeq;
  }

  async put(tail: string, state: object): Promise<number> {
    const stored = await this.bus.append(this.subjects.cfg(tail), bytes({ wire: REGISTRY_WIRE, epoch: this.epoch, ...state }));
    if (!('seq' in stored)) throw new Error(`not stored: ${JSON.stringify(stored)}`);
    this.lastSeq = stored.seq;
    this.#recent = [...this.#recent.filter(([known]) => known !== tail), [tail, stored.seq]];
    return stored.seq;
  }

  /** Anything at all under a tail. */
  async putRaw(tail: string, text: string): Promise<number> {
    const stored = await this.bus.append(this.subjects.cfg(tail), Buffer.from(text));
    if (!('seq' in stored)) throw new Error(`not stored: ${JSON.stringify(stored)}`);
    this.lastSeq = stored.seq;
    this.#recent = [...this.#recent.filter(([known]) => known !== tail), [tail, stored.seq]];
    return stored.seq;
  }

  scope(sidecar: string, capabilities: readonly string[]): Promise<number> {
    return this.put(Tail.scope(sidecar), { capabilities });
  }

  /** Writes what a table says of one capability; gives the sequence of the last message. */
  async capability(table: string | TableDocument, name: string, more: Partial<CapabilityState> = {}): Promise<number> {
    let seq = 0;
    for (const [shard, state] of statesOf(table, name, more).entries()) seq = await this.put(Tail.shard(name, shard), state);
    return seq;
  }

  /** Every capability of a table, and the scope of a sidecar that may use them all. */
  async all(table: string | TableDocument, sidecar: string): Promise<void> {
    const document = documentOf(table);
    const names = [...new Set(document.contracts.map(({ name }) => name))].sort();
    for (const name of names) await this.capability(document, name);
    await this.scope(sidecar, names);
  }

  async #answerHello(message: BusMessage): Promise<Uint8Array> {
    const hello = parsed<Hello>(message.data);
    this.hellos.push(hello);
    await this.onHello(hello);
    return this.#answer(
      'hello',
      hello.agents.map(({ record }) => record.agentId),
    );
  }

  async #answerRegister(message: BusMessage): Promise<Uint8Array> {
    const register = parsed<Register>(message.data);
    this.registers.push(register);
    await this.onRegister(register);
    return this.#answer('register', [register.agent.record.agentId]);
  }

  async #answerLeave(message: BusMessage): Promise<Uint8Array> {
    const leave = parsed<Leave>(message.data);
    this.leaves.push(leave);
    await this.onLeave(leave);
    return this.#answer('leave', []);
  }

  #answer(verb: 'hello' | 'register' | 'leave', agents: readonly string[]): Uint8Array {
    const refused = ['', ...agents].map((agent) => this.refuses(agent)).filter((each) => each !== null);
    const plain: Answer = { wire: REGISTRY_WIRE, ok: refused.length === 0, refused, seq: this.lastSeq, epoch: this.epoch };
    const answer: Answer = { ...plain, ...this.more(verb) };
    const warned = agents.map((agent) => this.warns(agent)).filter((each) => each !== null);
    return bytes(warned.length === 0 ? answer : { ...answer, warned });
  }
}

/** One message for each shard. */
export function statesOf(table: string | TableDocument, name: string, more: Partial<CapabilityState> = {}): object[] {
  const document = documentOf(table);
  const meshes = new Map(document.sidecars.map((sidecar) => [sidecar.name, sidecar.mesh]));
  const providers: PushedProvider[] = document.providers
    .filter((record) => record.offers.some((offer) => offer.name === name))
    .map((record) => ({ record, mesh: record.via === null ? null : (meshes.get(record.via) ?? null) }));
  const shards = Math.max(1, Math.ceil(providers.length / PROVIDERS_PER_SHARD));
  const states: object[] = [];
  for (let shard = 0; shard < shards; shard++) {
    states.push({
      name,
      shard,
      shards,
      contracts: shard === 0 ? document.contracts.filter((contract) => contract.name === name) : [],
      policies: shard === 0 ? policiesFor(name, document.policies) : [],
      staged: null,
      providers: providers.slice(shard * PROVIDERS_PER_SHARD, (shard + 1) * PROVIDERS_PER_SHARD),
      ...(shard === 0 ? more : {}),
    });
  }
  return states;
}

export function documentOf(table: string | TableDocument): TableDocument {
  if (typeof table !== 'string') return table;
  const reading = readTable(table, 'table.yaml', 'here');
  if ('problems' in reading) throw new Error(reading.problems.map(({ message }) => message).join('\n'));
  return reading.document;
}

function parsed<T>(data: Uint8Array): T {
  return JSON.parse(Buffer.from(data).toString('utf8')) as T;
}

function bytes(value: object): Uint8Array {
  return Buffer.from(JSON.stringify(value), 'utf8');
}
