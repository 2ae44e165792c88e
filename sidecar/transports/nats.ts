/**
 * The way out over NATS: request and reply, publishing, and services of the micro convention. What is written for it stands in
 * `nats-options.ts`, connections in `nats-buses.ts`, one request in `nats-exchange.ts`, the words of a message in
 * `nats-message.ts`. Decided here: where a request goes, and what is said when it cannot go.
 *
 * That nobody listens is known at once (the server says so) and proves that nothing has begun; so is a connection that is
 * away. What is published is answered 202 when NATS has been given it: nobody has confirmed anything then.
 */
import { messageBytes, replyWords } from '../../base/bus-message.ts';
import type { Bus } from '../../base/nats.ts';
import { subjectProblem } from '../../base/subject.ts';
import { reachedFields } from '../../proto/language/endpoint.ts';
import type { SecretRef } from '../../proto/language/types.ts';
import { Code } from '../../proto/wire/codes.ts';
import { answered, failed, NO_BODY, type Reply } from '../call/reply.ts';
import type { Candidate } from '../table/snapshot.ts';
import type { Mode } from './http-exchange.ts';
import { type BusPlan, Buses, shownServers } from './nats-buses.ts';
import { NatsExchange } from './nats-exchange.ts';
import { headersFor } from './nats-message.ts';
import { isProblems } from './options.ts';
import { natsFields, type NatsOptions, readNats, subjectOf } from './nats-options.ts';
import type { Exchange, Transport, TransportContext, TransportKind } from './transport.ts';

/** A service says what it has within moments, or is not there. */
const DISCOVERY_MS = 2_000;

/** What can be made once per candidate. */
class NatsTarget {
  readonly owner: object;
  readonly plan: BusPlan;
  readonly options: NatsOptions;
  readonly capability: string;
  /** Where requests go; '' = the service has not said yet. */
  subject: string;
  /** The service is being asked. */
  finding: Promise<string> | null = null;

  constructor(owner: object, candidate: Candidate, context: TransportContext) {
    const { endpoint } = candidate.provider.record;
    const options = readNats(endpoint);
    if (isProblems(options)) throw new Error(options.join('; '));
    const secret: SecretRef | null = endpoint.credential?.secret ?? null;
    const { destinations = null } = context;
    const isHosted = candidate.provider.reach === 'self';
    this.owner = owner;
    this.options = options;
    this.capability = candidate.version.capability.name;
    this.plan = {
      key: JSON.stringify([options.servers, secret, options.login, options.user, isHosted]),
      options,
      secret,
      destination: destinations === null ? null : isHosted ? destinations.hosted : destinations.thirdParty,
    };
    this.subject = options.mode === 'service' ? '' : subjectOf(options.subject, this.capability);
  }

  /** For messages. */
  get where(): string {
    const { mode, service } = this.options;
    const what = mode === 'service' ? `the service ${service}${this.subject === '' ? '' : ` (${this.subject})`}` : this.subject;
    const forWhat = this.subject === this.capability ? '' : ` for ${this.capability}`;
    return `${what}${forWhat} on ${shownServers(this.options)}`;
  }
}

export class NatsTransport implements Transport {
  readonly buses: Buses;
  readonly #context: TransportContext;

  constructor(context: TransportContext) {
    this.#context = context;
    this.buses = new Buses(context);
  }

  invoke(exchange: Exchange): Promise<Reply> {
    return this.#send(exchange, 'whole');
  }

  cast(exchange: Exchange): Promise<Reply> {
    return this.#send(exchange, 'head');
  }

  invokeStream(exchange: Exchange): Promise<Reply> {
    return this.#send(exchange, 'stream');
  }

  close(): Promise<void> {
    return this.buses.close();
  }

  #send(exchange: Exchange, mode: Mode): Promise<Reply> {
    const target = this.#target(exchange.candidate);
    if (typeof target === 'string') return Promise.resolve(failed(Code.internal, 'not_started', target));
    return new Promise((resolve) => {
      const running = new NatsExchange(mode, target.options.isStream, exchange.maxResponseBytes, target.where, resolve);
      exchange.abort = stopper(running);
      void this.#run(running, exchange, target);
    });
  }

  async #run(running: NatsExchange, exchange: Exchange, target: NatsTarget): Promise<void> {
    const bus = await this.buses.take(target.plan);
    if (typeof bus === 'string') {
      running.settle(failed(Code.connect_timeout, 'not_started', bus));
      return;
    }
    running.whenOver(() => this.buses.giveBack(target.plan));
    try {
      await this.#sendOn(bus, running, exchange, target, true);
    } catch (error) {
      running.settle(failed(Code.internal, 'started', `a fault in Agent-Reach: ${(error as Error).name}`));
    }
  }

  /** @param mayAsk the service may be asked (again) where it is. */
  async #sendOn(bus: Bus, running: NatsExchange, exchange: Exchange, target: NatsTarget, mayAsk: boolean): Promise<void> {
    const known = target.subject;
    if (known === '') {
      const problem = await this.#find(bus, target);
      if (problem !== '') running.settle(failed(Code.connect_timeout, 'not_started', problem));
    }
    if (running.isSettled) return;
    const headers = headersFor(exchange, exchange.candidate);
    if (typeof headers === 'string') return running.settle(failed(Code.invalid_request, 'not_started', headers));
    const bytes = messageBytes(exchange.body, headers);
    if (bytes > bus.maxPayload)
      return running.settle(
        failed(Code.payload_too_large, 'not_started', `the message has ${bytes} bytes with its headers, and NATS takes ${bus.maxPayload}`),
      );
    if (target.options.mode === 'publish') return running.settle(published(bus, exchange, target, headers));
    const conversation = bus.converse(target.subject, exchange.body, headers, (reply) => running.hear(reply));
    if ('close' in conversation) {
      // A subject that was known before may have moved with its service.
      const again = mayAsk && known !== '' && target.options.mode === 'service' ? () => this.#again(bus, running, exchange, target) : null;
      running.began(conversation, again);
    } else if (conversation.kind === 'refused') {
      running.settle(failed(Code.invalid_request, 'not_started', conversation.why));
    } else running.settle(failed(Code.connect_timeout, 'not_started', replyWords(conversation, `no request for ${target.where}`)));
  }

  #again(bus: Bus, running: NatsExchange, exchange: Exchange, target: NatsTarget): void {
    target.subject = '';
    void this.#sendOn(bus, running, exchange, target, false).catch((error: unknown) =>
      running.settle(failed(Code.internal, 'not_started', `a fault in Agent-Reach: ${(error as Error).name}`)),
    );
  }

  /** Asks the service where the endpoint is, once for all who wait for it; '' = it is known now. */
  async #find(bus: Bus, target: NatsTarget): Promise<string> {
    // Not within the time of whoever came first: others who have more of it wait for the same answer.
    target.finding ??= found(bus, target);
    try {
      return await target.finding;
    } finally {
      target.finding = null;
    }
  }

  /** What was prepared for a candidate, or the words why it cannot be. */
  #target(candidate: Candidate): NatsTarget | string {
    const prepared = candidate.prepared;
    if (prepared instanceof NatsTarget && prepared.owner === this) return prepared;
    try {
      const target = new NatsTarget(this, candidate, this.#context);
      candidate.prepared = target;
      return target;
    } catch (error) {
      return `the endpoint of ${candidate.provider.agentId} cannot be used: ${(error as Error).message}`;
    }
  }
}

/** Not a literal where it is assigned: V8 would allocate it in the old generation, see `attempt`. */
function stopper(running: NatsExchange): () => void {
  return () => running.stop();
}

function published(bus: Bus, exchange: Exchange, target: NatsTarget, headers: Readonly<Record<string, string>>): Reply {
  if (bus.publish(target.subject, exchange.body, headers)) return answered(202, NO_HEADERS, NO_BODY);
  return failed(Code.connect_timeout, 'not_started', `NATS did not take the message for ${target.where}: no connection that reads`);
}

const NO_HEADERS = Object.freeze({});

/** '' when the target knows its subject now, else why not. */
async function found(bus: Bus, target: NatsTarget): Promise<string> {
  const { service } = target.options;
  const reply = await bus.serviceInfo(service, DISCOVERY_MS);
  if (reply.kind !== 'ok') return replyWords(reply, `the service ${service} on ${shownServers(target.options)} does not say where it is`);
  const endpoints = endpointsIn(reply.message.data);
  if (endpoints === null) return `what answers as the service ${service} does not speak the micro convention`;
  const fitting = fittingOf(endpoints, target);
  if (fitting === undefined) {
    const names = endpoints.map(({ name }) => name).slice(0, 20);
    return `the service ${service} has no endpoint ${target.options.endpoint ?? `that fits ${target.capability}`}; it has ${names.length === 0 ? 'none' : names.join(', ')}`;
  }
  const problem = subjectProblem(fitting.subject);
  if (problem !== null) return `the subject of the endpoint ${fitting.name} ${problem}`;
  target.subject = fitting.subject;
  return '';
}

function fittingOf(endpoints: readonly ServiceEndpoint[], { options, capability }: NatsTarget): ServiceEndpoint | undefined {
  if (options.endpoint !== null) return endpoints.find(({ name }) => name === options.endpoint);
  const flat = capability.replaceAll('.', '_');
  const action = capability.slice(capability.lastIndexOf('.') + 1);
  return (
    endpoints.find(({ subject }) => subject === capability) ??
    endpoints.find(({ name }) => name === capability || name === flat) ??
    endpoints.find(({ name }) => name === action) ??
    (endpoints.length === 1 ? endpoints[0] : undefined)
  );
}

interface ServiceEndpoint {
  readonly name: string;
  readonly subject: string;
}

/** Null when it is no such answer. */
function endpointsIn(data: Buffer): readonly ServiceEndpoint[] | null {
  let info: unknown;
  try {
    info = JSON.parse(data.toString('utf8'));
  } catch {
    return null;
  }
  const endpoints = typeof info === 'object' && info !== null ? (info as { endpoints?: unknown }).endpoints : null;
  if (!Array.isArray(endpoints)) return null;
  return endpoints.filter(
    (each: unknown): each is ServiceEndpoint =>
      typeof each === 'object' &&
      each !== null &&
      typeof (each as { name?: unknown }).name === 'string' &&
      typeof (each as { subject?: unknown }).subject === 'string',
  );
}

export const natsKind: TransportKind = {
  make: (context) => new NatsTransport(context),
  problems: (endpoint) => {
    const read = readNats(endpoint);
    return isProblems(read) ? read : [];
  },
  fields: { ...reachedFields, ...natsFields },
};
