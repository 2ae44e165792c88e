/** A control plane on a real nats-server, and sidecars as it sees them: just enough to talk to it. */
import { type Clock, realClock } from '../../base/clock.ts';
import { createLog } from '../../base/log.ts';
import type { Bus } from '../../base/nats.ts';
import { readControlPlaneConfig } from '../../control-plane/config.ts';
import { ControlPlane } from '../../control-plane/control-plane.ts';
import type { Contract, ProviderRecord } from '../../proto/language/types.ts';
import {
  type Answer,
  type Ask,
  type Beacon,
  type CapabilityState,
  type Hello,
  REGISTRY_WIRE,
  type Report,
  type ScopeState,
} from '../../proto/wire/registry.ts';
import { CONFIG_STREAM, Subjects, Tail } from '../../proto/wire/subjects.ts';
import { putAside } from '../run/written.ts';
import { MARK } from './credential-mark.ts';
import type { NatsServer } from './nats.ts';
import { contractOf, providerOf } from './route-table.ts';
import { waitUntil } from './settle.ts';

export const OPERATOR = `operator-token-${MARK}`;
export const VIEWER = `viewer-token-${MARK}`;
export const ENV = 'test';

interface Teardown {
  teardown(end: () => void | Promise<void>): unknown;
}

/** Settings as a person writes them; `more` are lines under `control_plane`, `natsMore` stands beside the address of NATS. */
export function settingsText(name: string, natsUrl: string, more = '', port = 0, natsMore = ''): string {
  return `control_plane:
  name: ${name}
  env: ${ENV}
  nats: {url: "${natsUrl}"${natsMore === '' ? '' : `, ${natsMore}`}}
  api:
    listen: 127.0.0.1:${port}
    operators:
      - {name: ada, role: operator, token: ${OPERATOR}}
      - {name: vic, role: viewer, token: ${VIEWER}}
  leader: {ttl: 2s, renew: 300ms}
${more.includes('addresses:') ? '' : '  addresses: {loopback: true}\n'}  log: {level: silent}
${more}`;
}

/** A replica in this process; what it logs is kept. */
export class Plane {
  readonly control: ControlPlane;
  readonly lines: Readonly<Record<string, unknown>>[];
  /** The wall clock of this replica's machine is so far ahead. */
  wallAheadMs = 0;

  static async start(t: Teardown, nats: NatsServer, name = 'cp-1', more = '', natsMore = ''): Promise<Plane> {
    return Plane.startWith(t, settingsText(name, nats.url, more, 0, natsMore));
  }

  /** @param settings whole, as a person writes them */
  static async startWith(t: Teardown, settings: string): Promise<Plane> {
    const plane = new Plane(settings);
    await plane.control.start();
    t.teardown(async () => {
      await plane.control.stop(0);
      putAside(`plane-log.${process.pid}`, plane.lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
    });
    return plane;
  }

  private constructor(settings: string) {
    const reading = readControlPlaneConfig(settings, 'control-plane.yaml');
    if ('problems' in reading) throw new Error(reading.problems.map(({ message }) => message).join('\n'));
    const lines: Readonly<Record<string, unknown>>[] = [];
    this.lines = lines;
    const to = { write: (line: string) => void lines.push(JSON.parse(line) as Record<string, unknown>) };
    const log = createLog({ level: 'debug', to, service: reading.config.name });
    const clock: Clock = {
      now: () => realClock.now(),
      wallMs: () => realClock.wallMs() + this.wallAheadMs,
      after: (delayMs, fire) => realClock.after(delayMs, fire),
    };
    this.control = new ControlPlane(reading.config, log, '0.0.0', reading.config.restore, clock);
  }

  get url(): string {
    return this.control.api.url;
  }

  leads(): Promise<void> {
    return waitUntil(`${this.control.name} leads`, () => this.control.status === 'leading', 10_000);
  }

  follows(): Promise<void> {
    return waitUntil(`${this.control.name} follows`, () => this.control.status === 'following' && this.control.leader() !== null, 10_000);
  }

  ask(path: string, init: { method?: string; body?: string; json?: unknown; token?: string | null; type?: string } = {}): Promise<Asked> {
    return ask(this.url, path, init);
  }

  said(words: RegExp): boolean {
    return this.lines.some(({ msg }) => typeof msg === 'string' && words.test(msg));
  }
}

export interface Asked {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Readonly<Record<string, unknown>>;
}

/** Redirects are not followed. */
export async function ask(
  url: string,
  path: string,
  init: { method?: string; body?: string; json?: unknown; token?: string | null; type?: string } = {},
): Promise<Asked> {
  const body = init.json === undefined ? init.body : JSON.stringify(init.json);
  const token = init.token === undefined ? OPERATOR : init.token;
  const response = await fetch(`${url}${path}`, {
    method: init.method ?? (body === undefined ? 'GET' : 'POST'),
    redirect: 'manual',
    headers: {
      ...(token === null ? {} : { authorization: `Bearer ${token}` }),
      ...(body === undefined ? {} : { 'content-type': init.type ?? (init.json === undefined ? 'application/yaml' : 'application/json') }),
    },
    ...(body === undefined ? {} : { body }),
  });
  const text = await response.text();
  return {
    status: response.status,
    headers: response.headers,
    body: (text.startsWith('{') ? JSON.parse(text) : { text }) as Asked['body'],
  };
}

/** Asks the leader, as long as nobody listens: who has just begun to lead does a moment later, and sidecars ask again as well. */
export async function askLeader(bus: Bus, subject: string, request: unknown): Promise<unknown> {
  const until = realClock.now() + 15_000;
  for (;;) {
    const reply = await bus.request(subject, Buffer.from(JSON.stringify(request), 'utf8'), 8_000);
    if (reply.kind === 'ok') return JSON.parse(reply.message.data.toString('utf8'));
    if (reply.kind !== 'no_responder' || realClock.now() > until) throw new Error(`${subject}: ${reply.kind}`);
    await new Promise<void>((done) => void realClock.after(50, done));
  }
}

/** A sidecar by hand. It hosts what it is given and says hello again whenever the epoch changes. */
export class FakeSidecar {
  readonly name: string;
  instance: string;
  readonly bus: Bus;
  readonly subjects = new Subjects(ENV);
  readonly beacons: Beacon[] = [];
  /** Answers to `ask`; null = it stays silent. */
  answer: (ask: Ask) => unknown = () => null;
  callers: readonly string[] = ['crm.front.x'];
  /** Of this version, or of the one before. */
  named = false;
  agents: { contracts: readonly Contract[]; record: ProviderRecord }[] = [];
  readonly #epochs = new Set<string>();

  static async join(nats: NatsServer, name: string, offers: Readonly<Record<string, readonly string[]>> = {}): Promise<FakeSidecar> {
    const sidecar = new FakeSidecar(name, await nats.connect());
    for (const [agent, list] of Object.entries(offers)) sidecar.host(agent, list);
    return sidecar;
  }

  private constructor(name: string, bus: Bus, instance = `${name}-1`) {
    this.name = name;
    this.bus = bus;
    this.instance = instance;
    bus.subscribe(this.subjects.beacon, (message) => {
      const beacon = JSON.parse(message.data.toString('utf8')) as Beacon;
      this.beacons.push(beacon);
      if (this.#epochs.size === 0 || this.#epochs.has(beacon.epoch)) return;
      this.#epochs.add(beacon.epoch);
      void this.hello();
    });
    bus.serve(this.subjects.ask(name), (message) => {
      const answer = this.answer(JSON.parse(message.data.toString('utf8')) as Ask);
      return answer === null ? null : Buffer.from(JSON.stringify(answer), 'utf8');
    });
  }

  /** `offers` as name@version; the contracts are made from them. */
  host(agent: string, offers: readonly string[], parts: Partial<ProviderRecord> = {}): void {
    const endpoint = { type: 'http', address: 'http://127.0.0.1:9', path: null, mapping: {}, credential: null, options: {} };
    const contracts = offers.map((offer) => contractOf(offer.slice(0, offer.indexOf('@')), offer.slice(offer.indexOf('@') + 1)));
    this.agents.push({ contracts, record: providerOf(agent, offers, { endpoint, via: this.name, ...parts }) });
  }

  async hello(): Promise<Answer> {
    const hello: Hello = {
      wire: REGISTRY_WIRE,
      sidecar: this.name,
      instance: this.instance,
      mesh: 'http://127.0.0.1:7701',
      region: null,
      zone: null,
      callers: this.callers,
      ...(this.named ? { named: true as const } : null),
      agents: this.agents,
    };
    const answer = await this.#ctl('hello', hello);
    this.#epochs.add(answer.epoch);
    return answer;
  }

  leave(agent: string | null = null): Promise<Answer> {
    return this.#ctl('leave', { wire: REGISTRY_WIRE, sidecar: this.name, instance: this.instance, agent });
  }

  beat(): void {
    const agents = Object.fromEntries(this.agents.map(({ record }) => [record.agentId, { idleMs: 5, inFlight: 2 }]));
    this.#say(this.subjects.heartbeat(this.name), { wire: REGISTRY_WIRE, sidecar: this.name, instance: this.instance, agents });
  }

  report(parts: Partial<Report> = {}): void {
    const report: Report = {
      wire: REGISTRY_WIRE,
      sidecar: this.name,
      instance: this.instance,
      version: '0.0.0',
      epoch: [...this.#epochs].at(-1) ?? '',
      appliedSeq: 0,
      tableVersion: 1,
      capabilities: 1,
      providers: 1,
      staleBecause: '',
      refused: [],
      policies: { version: 0, staged: false },
      ...parts,
    };
    this.#say(this.subjects.report(this.name), report);
  }

  /** What is stored about a capability; null = nothing. */
  async capability(name: string): Promise<{ seq: number; state: CapabilityState } | null> {
    return this.#read<CapabilityState>(Tail.capability(name));
  }

  async scope(): Promise<{ seq: number; state: ScopeState } | null> {
    return this.#read<ScopeState>(Tail.scope(this.name));
  }

  /** Agent ids that are pushed for a capability. */
  async pushed(name: string): Promise<string[]> {
    return ((await this.capability(name))?.state.providers ?? []).map(({ record }) => record.agentId);
  }

  async #read<T>(tail: string): Promise<{ seq: number; state: T } | null> {
    const stored = await this.bus.last(CONFIG_STREAM, this.subjects.cfg(tail));
    if (stored === null || 'failed' in stored) return null;
    return { seq: stored.seq, state: JSON.parse(stored.data.toString('utf8')) as T };
  }

  async #ctl(verb: 'hello' | 'leave', request: unknown): Promise<Answer> {
    const until = realClock.now() + 15_000;
    for (;;) {
      const reply = await this.bus.request(this.subjects.ctl(verb), Buffer.from(JSON.stringify(request), 'utf8'), 3_000);
      if (reply.kind === 'ok') return JSON.parse(reply.message.data.toString('utf8')) as Answer;
      if (realClock.now() > until) throw new Error(`nobody answers ${verb}: ${reply.kind}`);
      await new Promise<void>((done) => void realClock.after(100, done));
    }
  }

  #say(subject: string, message: unknown): void {
    this.bus.publish(subject, Buffer.from(JSON.stringify(message), 'utf8'));
  }
}
