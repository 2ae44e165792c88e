/**
 * The bus without a server: streams, subscriptions and requests in memory, in one process, with no time of its own. Replicas of the
 * control plane and sidecars that share one hub run together on a virtual clock, so that minutes and days of leases pass in moments.
 * It keeps the promises that are built on (expected sequences, republishing with the sequence before, loss with the connection);
 * what a real server does beside that is asked of a real one (nats.ts).
 */
import type { BusMessage, BusReply, Headers } from '../../base/bus-message.ts';
import type { ConsumerFacts, ConsumerSpec } from '../../base/consumer.ts';
import type { ConsumerReady } from '../../base/consumers.ts';
import type { Stored, StreamFacts, StreamSpec } from '../../base/jetstream.ts';
import type { Bus, BusState } from '../../base/nats.ts';
import type { BusSubscription } from '../../base/nats-listeners.ts';
import { patternProblem, subjectProblem } from '../../base/subject.ts';
import type { Appended, AppendOptions, Failed, StreamReady } from '../../base/streams.ts';

type Handler = (message: BusMessage) => void | Promise<void>;
type Responder = (message: BusMessage) => Uint8Array | null | Promise<Uint8Array | null>;

class Message implements BusMessage {
  readonly subject: string;
  readonly data: Buffer;
  readonly reply: string;
  readonly #headers: Headers;
  constructor(subject: string, data: Uint8Array, reply: string, headers: Headers = {}) {
    this.subject = subject;
    this.data = Buffer.from(data);
    this.reply = reply;
    this.#headers = headers;
  }
  header(name: string): string | null {
    return this.#headers[name] ?? null;
  }
}

class Stream {
  readonly spec: StreamSpec;
  readonly created: string;
  lastSeq = 0;
  messages: Stored[] = [];
  /** Only that they are there: nothing is delivered by them. */
  readonly consumers = new Map<string, ConsumerSpec>();
  constructor(spec: StreamSpec, created: string) {
    this.spec = spec;
    this.created = created;
  }
  takes(subject: string): boolean {
    return this.spec.subjects.some((pattern) => matches(pattern, subject));
  }
  lastOf(subject: string): Stored | null {
    return this.messages.findLast((one) => one.subject === subject) ?? null;
  }
  store(subject: string, data: Uint8Array, timestampMs: number): Stored {
    const stored = { subject, seq: ++this.lastSeq, data: Buffer.from(data), timestampMs };
    const most = this.spec.maxMsgsPerSubject ?? 0;
    if (most > 0) {
      const same = this.messages.filter((one) => one.subject === subject);
      if (same.length >= most) this.messages = this.messages.filter((one) => one !== same[0]);
    }
    this.messages.push(stored);
    return stored;
  }
}

interface Subscription {
  readonly bus: MemoryBus;
  readonly pattern: string;
  readonly queue: string;
  readonly handler: Handler;
}

export class MemoryNats {
  readonly streams = new Map<string, Stream>();
  readonly subscriptions = new Set<Subscription>();
  readonly clients = new Set<MemoryBus>();
  /** Messages that went through: all that was published, stored or asked. */
  messages = 0;
  /** A message for which it gives true does not reach that client. */
  loses: (client: string, subject: string) => boolean = () => false;
  readonly wallMs: () => number;
  #isUp = true;
  #made = 0;

  /** @param wallMs the server's clock. */
  constructor(wallMs: () => number) {
    this.wallMs = wallMs;
  }

  /** Connects before `open` returns its caller to the event loop, unless the server is down. */
  open(name: string): MemoryBus {
    if (subjectProblem(name) !== null) throw new Error(`${JSON.stringify(name)} cannot stand in a subject`);
    const bus = new MemoryBus(this, name);
    this.clients.add(bus);
    if (this.#isUp) queueMicrotask(() => bus.connect());
    return bus;
  }

  get isUp(): boolean {
    return this.#isUp;
  }

  /** Everybody loses the connection; what is stored stays. */
  down(): void {
    this.#isUp = false;
    for (const client of [...this.clients]) client.disconnect('the server is down');
  }

  up(): void {
    this.#isUp = true;
    for (const client of [...this.clients]) client.connect();
  }

  deleteStream(name: string): void {
    this.streams.delete(name);
  }

  ensure(spec: StreamSpec): StreamReady {
    const before = this.streams.get(spec.name);
    if (before !== undefined) return { facts: factsOf(before), change: 'none', ignored: [] };
    const made = new Stream(spec, `created-${++this.#made}`);
    this.streams.set(spec.name, made);
    return { facts: factsOf(made), change: 'created', ignored: [] };
  }

  append(subject: string, data: Uint8Array, options: AppendOptions): Appended {
    const stream = [...this.streams.values()].find((each) => each.takes(subject));
    if (stream === undefined || (options.stream !== undefined && options.stream !== stream.spec.name))
      return { failed: `storing ${subject}: nobody answers there`, ambiguous: false };
    if (options.expectLastSeq !== undefined && options.expectLastSeq !== stream.lastSeq) return { conflict: stream.lastSeq };
    const before = stream.lastOf(subject);
    if (options.expectLastSubjectSeq !== undefined && options.expectLastSubjectSeq !== (before?.seq ?? 0))
      return { conflict: before?.seq ?? 0 };
    const stored = stream.store(subject, data, this.wallMs());
    const { republish } = stream.spec;
    if (republish !== undefined) {
      const to = republish.destination.replace(/>$/, '') + subject.slice(republish.source.replace(/>$/, '').length);
      this.route(to, data, '', {
        'Nats-Stream': stream.spec.name,
        'Nats-Subject': subject,
        'Nats-Sequence': String(stored.seq),
        'Nats-Last-Sequence': String(before?.seq ?? 0),
      });
    }
    return { seq: stored.seq, duplicate: false };
  }

  /** True when somebody listens. */
  route(subject: string, data: Uint8Array, reply: string, headers: Headers = {}): boolean {
    this.messages++;
    const chosen = new Set<string>();
    let isHeard = false;
    for (const one of [...this.subscriptions]) {
      if (!one.bus.connected || !matches(one.pattern, subject)) continue;
      if (one.queue !== '') {
        if (chosen.has(one.queue)) continue;
        chosen.add(one.queue);
      }
      isHeard = true;
      if (this.loses(one.bus.name, subject)) continue;
      const message = new Message(subject, data, reply, headers);
      queueMicrotask(() => {
        if (one.bus.connected && this.subscriptions.has(one)) void one.handler(message);
      });
    }
    return isHeard;
  }
}

/** In place of a `Bus`: `memory.bus` is the same object under the other type. */
export class MemoryBus implements Omit<Bus, 'converse' | 'serviceInfo' | 'openBox' | 'post' | 'confirm' | 'answers' | 'broke'> {
  readonly name: string;
  readonly serverVersion = '2.14.0';
  readonly serverWarning = null;
  readonly maxPayload = 1_048_576;
  readonly #hub: MemoryNats;
  readonly #listeners = new Set<(state: BusState) => void>();
  readonly #waiting = new Set<(reply: BusReply) => void>();
  #isConnected = false;
  #isClosed = false;
  #connections = 0;
  #why = 'not connected yet';
  #inboxes = 0;

  constructor(hub: MemoryNats, name: string) {
    this.#hub = hub;
    this.name = name;
  }

  get bus(): Bus {
    return this as unknown as Bus;
  }

  get connected(): boolean {
    return this.#isConnected;
  }

  get state(): BusState {
    return { connected: this.#isConnected, reconnects: Math.max(0, this.#connections - 1), why: this.#isConnected ? '' : this.#why };
  }

  connect(): void {
    if (this.#isConnected || this.#isClosed || !this.#hub.isUp) return;
    this.#isConnected = true;
    this.#connections++;
    this.#tell();
  }

  /** This one alone loses its connection. */
  disconnect(why: string): void {
    if (!this.#isConnected) return;
    this.#isConnected = false;
    this.#why = why;
    for (const end of [...this.#waiting]) end({ kind: 'unreachable', sent: true });
    this.#tell();
  }

  onState(listener: (state: BusState) => void): { close(): void } {
    this.#listeners.add(listener);
    return { close: () => void this.#listeners.delete(listener) };
  }

  async ready(): Promise<boolean> {
    await null;
    return this.#isConnected;
  }

  publish(subject: string, data: Uint8Array, headers?: Headers): boolean {
    if (!this.#isConnected || subjectProblem(subject) !== null) return false;
    this.#hub.route(subject, data, '', headers);
    return true;
  }

  subscribe(pattern: string, handler: Handler, options: { readonly queue?: string } = {}): BusSubscription {
    const problem = patternProblem(pattern);
    if (problem !== null) return { refused: problem, close: () => {} };
    const one: Subscription = { bus: this, pattern, queue: options.queue ?? '', handler };
    this.#hub.subscriptions.add(one);
    return { refused: null, close: () => void this.#hub.subscriptions.delete(one) };
  }

  serve(subject: string, respond: Responder, options: { readonly queue?: string } = {}): BusSubscription {
    return this.subscribe(
      subject,
      async (message) => {
        const answer = await respond(message);
        if (answer !== null && message.reply !== '') this.publish(message.reply, answer);
      },
      options,
    );
  }

  request(subject: string, data: Uint8Array, _timeoutMs: number, headers?: Headers): Promise<BusReply> {
    const problem = subjectProblem(subject);
    if (problem !== null) return Promise.resolve({ kind: 'refused', why: problem });
    if (!this.#isConnected) return Promise.resolve({ kind: 'unreachable', sent: false });
    return new Promise((resolve) => {
      const inbox = `_INBOX.${this.name}.${++this.#inboxes}`;
      const end = (reply: BusReply): void => {
        this.#waiting.delete(end);
        answers.close();
        resolve(reply);
      };
      const answers = this.subscribe(inbox, (message) => end({ kind: 'ok', message }));
      this.#waiting.add(end);
      if (!this.#hub.route(subject, data, inbox, headers)) end({ kind: 'no_responder' });
    });
  }

  async append(subject: string, data: Uint8Array, options: AppendOptions = {}): Promise<Appended> {
    if (!this.#isConnected) return { failed: `storing ${subject}: no connection`, ambiguous: false };
    const appended = this.#hub.append(subject, data, options);
    await null;
    return this.#isConnected ? appended : { failed: `storing ${subject}: the connection broke before the answer came`, ambiguous: true };
  }

  async last(stream: string, subject: string): Promise<Stored | null | Failed> {
    const found = this.#stream(stream);
    await null;
    return 'failed' in found ? found : found.lastOf(subject);
  }

  async lastAtLeader(stream: string, subject: string): Promise<Stored | null | Failed> {
    return await this.last(stream, subject);
  }

  async readAll(stream: string, pattern: string): Promise<{ readonly messages: Stored[]; readonly lastSeq: number } | Failed> {
    const found = this.#stream(stream);
    if ('failed' in found) return found;
    const read = { messages: found.messages.filter(({ subject }) => matches(pattern, subject)), lastSeq: found.lastSeq };
    await null;
    return read;
  }

  async subjects(stream: string, pattern: string): Promise<Map<string, number> | Failed> {
    const found = this.#stream(stream);
    await null;
    if ('failed' in found) return found;
    const counts = new Map<string, number>();
    for (const { subject } of found.messages) if (matches(pattern, subject)) counts.set(subject, (counts.get(subject) ?? 0) + 1);
    return counts;
  }

  async history(stream: string, subject: string, limit = 1_000, fromSeq = 1): Promise<Stored[] | Failed> {
    const found = this.#stream(stream);
    if ('failed' in found) return found;
    await null;
    return found.messages.filter((one) => one.seq >= fromSeq && matches(subject, one.subject)).slice(0, limit);
  }

  async stream(name: string): Promise<StreamFacts | null | Failed> {
    await null;
    if (!this.#isConnected) return { failed: 'no connection' };
    const found = this.#hub.streams.get(name);
    return found === undefined ? null : factsOf(found);
  }

  async ensureStream(spec: StreamSpec): Promise<StreamReady> {
    await null;
    return this.#isConnected ? this.#hub.ensure(spec) : { failed: 'no connection' };
  }

  async deleteMessage(stream: string, seq: number): Promise<true | null | Failed> {
    const found = this.#stream(stream);
    await null;
    if ('failed' in found) return found;
    const at = found.messages.findIndex((one) => one.seq === seq);
    if (at < 0) return null;
    found.messages.splice(at, 1);
    return true;
  }

  async ensureConsumer(spec: ConsumerSpec): Promise<ConsumerReady> {
    const found = this.#stream(spec.stream);
    await null;
    if ('failed' in found) return found;
    const before = found.consumers.get(spec.name);
    found.consumers.set(spec.name, spec);
    const change = before === undefined ? 'created' : JSON.stringify(before) === JSON.stringify(spec) ? 'none' : 'updated';
    return { facts: consumerFactsOf(found, spec), change };
  }

  async deleteConsumer(stream: string, name: string): Promise<boolean | Failed> {
    const found = this.#stream(stream);
    await null;
    return 'failed' in found ? found : found.consumers.delete(name);
  }

  async consumer(stream: string, name: string): Promise<ConsumerFacts | null | Failed> {
    const found = this.#stream(stream);
    await null;
    if ('failed' in found) return found;
    const spec = found.consumers.get(name);
    return spec === undefined ? null : consumerFactsOf(found, spec);
  }

  async consumers(stream: string): Promise<readonly ConsumerFacts[] | Failed> {
    const found = this.#stream(stream);
    await null;
    if ('failed' in found) return found;
    return [...found.consumers.values()].map((spec) => consumerFactsOf(found, spec)).sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.disconnect('closed');
    for (const one of [...this.#hub.subscriptions]) if (one.bus === this) this.#hub.subscriptions.delete(one);
    this.#hub.clients.delete(this);
    await null;
  }

  #stream(name: string): Stream | Failed {
    if (!this.#isConnected) return { failed: 'no connection to NATS' };
    this.#hub.messages++;
    return this.#hub.streams.get(name) ?? { failed: `there is no stream ${name}` };
  }

  #tell(): void {
    const { state } = this;
    for (const listener of [...this.#listeners]) listener(state);
  }
}

function consumerFactsOf(stream: Stream, spec: ConsumerSpec): ConsumerFacts {
  return {
    name: spec.name,
    filter: spec.filter,
    pending: stream.messages.filter((one) => matches(spec.filter, one.subject)).length,
    ackPending: 0,
    redelivered: 0,
    waiting: 0,
    ackFloorSeq: 0,
    deliveredSeq: 0,
    deliveredConsumerSeq: 0,
    deliveredAtMs: 0,
    ackWaitNs: spec.ackWaitMs * 1_000_000,
    maxAckPending: spec.maxAckPending,
    created: stream.created,
  };
}

function factsOf(stream: Stream): StreamFacts {
  const { name, subjects } = stream.spec;
  return {
    name,
    messages: stream.messages.length,
    bytes: stream.messages.reduce((sum, { data }) => sum + data.length, 0),
    firstSeq: stream.messages[0]?.seq ?? 0,
    lastSeq: stream.lastSeq,
    lastAtMs: stream.messages.at(-1)?.timestampMs ?? 0,
    maxMessages: stream.spec.maxMsgs ?? -1,
    maxBytes: stream.spec.maxBytes ?? -1,
    consumers: 0,
    created: stream.created,
    subjects,
  };
}

function matches(pattern: string, subject: string): boolean {
  if (pattern === subject) return true;
  const wanted = pattern.split('.');
  const tokens = subject.split('.');
  for (const [i, token] of wanted.entries()) {
    if (token === '>') return tokens.length > i;
    if (tokens[i] === undefined || (token !== '*' && token !== tokens[i])) return false;
  }
  return wanted.length === tokens.length;
}
