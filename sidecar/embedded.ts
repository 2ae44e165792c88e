/**
 * The engine as a library: calls from inside a Node process, and agents that are functions of it, without a socket between them
 * (SPEC R7.6). The same settings, table, policies and Results as those of a sidecar of its own; the ports of one are opened
 * only when the settings name them (`listen`, `mesh`).
 *
 *     const reach = await startReach({ settings: 'sidecar.yaml', as: 'support.planner.1' });
 *     const result = await reach.invoke('crm.order.query@^2.0', { id: 7 });
 */
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { type Clock, realClock, type Timer } from '../base/clock.ts';
import { createLog, type LogOptions } from '../base/log.ts';
import { type Random, systemRandom } from '../base/random.ts';
import { isAgentId, parseTarget } from '../proto/language/names.ts';
import { openSource } from '../proto/language/reader.ts';
import { readRegistration } from '../proto/language/registration.ts';
import type { AgentRegistration } from '../proto/wire/registry.ts';
import { type Handler, ServingAgent } from './embed/agent.ts';
import { Calls } from './embed/calls.ts';
import { type CastOptions, type CastResult, Casts, type TaskStatus } from './embed/casts.ts';
import { type DoneOptions, type Mail, type MailOptions, Mailroom } from './embed/mail.ts';
import type { CallOptions } from './embed/options.ts';
import type { Result } from './embed/result.ts';
import type { ReachStream } from './embed/stream.ts';
import type { Explanation } from './explain.ts';
import { type Inside, type Started, StartRefused, startSidecar } from './sidecar.ts';
import { wordsOfProblem } from './table/file.ts';
import { LocalHub } from './transports/local-hub.ts';

export interface ReachOptions {
  /** The settings file of a sidecar, or the same as an object: `{sidecar: {name: …}, contracts: […], providers: […]}`. */
  readonly settings: string | Readonly<Record<string, unknown>>;
  /** The agent (`team.role.id`) in whose name calls are made. */
  readonly as?: string;
  /** Where paths in an object of settings begin. Default: the working directory. */
  readonly folder?: string;
  /** Least severe lines that go to stderr, or a stream for all. Default `warn`. */
  readonly log?: LogOptions['level'] | Exclude<LogOptions['to'], string>;
  /** For tests. */
  readonly clock?: Clock;
  readonly random?: Random;
}

export interface ServeOptions {
  /** The agent that serves it; default: the one the engine was started for. */
  readonly agent?: string;
  /** What the contract says beside name and version, for what is not in the table: at least `acl`. */
  readonly contract?: Readonly<Record<string, unknown>>;
  /**
   * What the agent's record says beside agent, offers and endpoint: tags, weight, limits … It holds for all that the agent serves;
   * given again with another function of it, its members take the place of those said before, and the rest stays.
   */
  readonly provider?: Readonly<Record<string, unknown>>;
}

/** One function that is served. */
export interface Serving {
  readonly agent: string;
  /** `name@version` */
  readonly target: string;
  /** Takes no new calls; those under way end in peace. */
  stop(): Promise<void>;
}

/** Starts the engine; rejects with `StartRefused` and all that is wrong with the settings. */
export async function startReach(options: ReachOptions): Promise<Reach> {
  if (options.as !== undefined && !isAgentId(options.as))
    throw new StartRefused([`as: ${JSON.stringify(options.as)} is no agent: it reads like support.planner.1`]);
  const { clock = realClock, random = systemRandom, log = 'warn' } = options;
  const { settings } = options;
  const file = typeof settings === 'string' ? resolve(settings) : join(resolve(options.folder ?? '.'), 'settings');
  const text = typeof settings === 'string' ? null : JSON.stringify(completed(settings));
  const local = new LocalHub();
  const inside: Inside = {
    text,
    local,
    callers: options.as === undefined ? [] : [options.as],
    opensHttp: namesPort(text ?? textOf(file), file),
  };
  const logging = createLog(
    typeof log === 'string' ? { level: log, to: 'stderr', service: 'agent-reach' } : { level: 'debug', to: log, service: 'agent-reach' },
  );
  const started = await startSidecar(file, logging, clock, random, inside);
  return new Reach(started, local, options.as ?? null, clock, (words) => logging.logger.warn(words));
}

/** An agent of this process as it stands in the table or the registry, and what was said of its record for all that it serves. */
interface Registered {
  readonly registration: AgentRegistration;
  readonly provider: Readonly<Record<string, unknown>>;
}

export class Reach {
  readonly #started: Started;
  readonly #local: LocalHub;
  readonly #calls: Calls;
  readonly #casts: Casts;
  readonly #mailroom: Mailroom;
  readonly #agent: string | null;
  readonly #clock: Clock;
  readonly #lost: (words: string) => void;
  readonly #agents = new Map<string, ServingAgent>();
  readonly #registered = new Map<string, Registered>();
  #beat: Timer | null = null;
  #lastTurn: Promise<void> = Promise.resolve();

  /** @internal */
  constructor(started: Started, local: LocalHub, agent: string | null, clock: Clock, lost: (words: string) => void) {
    this.#started = started;
    this.#local = local;
    this.#calls = new Calls(started.front, agent);
    this.#casts = new Casts(started.front, this.#calls);
    this.#mailroom = new Mailroom(started.front);
    this.#agent = agent;
    this.#clock = clock;
    this.#lost = lost;
  }

  /** Where agents outside call in; '' = the settings name no `listen`. */
  get url(): string {
    return this.#started.url;
  }

  /** Where other sidecars call in; null = the settings name no `mesh`. */
  get meshUrl(): string | null {
    return this.#started.meshUrl;
  }

  /** A call can succeed. */
  get ready(): boolean {
    return this.#started.front.ready;
  }

  /** One call. Never rejects for what a provider or a policy does: the Result says it. */
  invoke<T = unknown>(target: string, payload?: unknown, options: CallOptions = {}): Promise<Result<T>> {
    return this.#calls.invoke<T>(target, payload, options);
  }

  /** The answer piece by piece; the call is made when it is read. */
  stream(target: string, payload?: unknown, options: CallOptions = {}): ReachStream {
    return this.#calls.stream(target, payload, options);
  }

  /** A durable message: settles when it is durable, or refused. `target` null: a role or an agent is addressed by the options. */
  cast(target: string | null, payload?: unknown, options: CastOptions = {}): Promise<CastResult> {
    return this.#casts.cast(target, payload, options);
  }

  /** What became of a task; null = not known, or another agent's; `unsure` = not remembered here, and it cannot be looked up now. */
  task(taskId: string, as?: string): Promise<TaskStatus | null | 'unsure'> {
    return this.#casts.task(taskId, as);
  }

  /** The same when it has ended, or as it is when the time is over. */
  waitForTask(taskId: string, timeoutMs: number, as?: string): Promise<TaskStatus | null | 'unsure'> {
    return this.#casts.wait(taskId, timeoutMs, as);
  }

  /** What waits for an agent: results and states of what it has sent, and messages to it. The position is the caller's to keep. */
  inbox(options: MailOptions = {}): Promise<Mail> {
    return this.#mailroom.read(this.#casts.agentOf(options.as), options);
  }

  /** Everything up to a position of the inbox has been taken. */
  acknowledge(seq: number, as?: string): ReturnType<Mailroom['acknowledge']> {
    return this.#mailroom.acknowledge(this.#casts.agentOf(as), seq);
  }

  /**
   * How work ended that a function has taken with status 202 and gone on with; the id is its request's `taskId`. `unreachable`:
   * it could not be stored yet, say it again. `fenced`: it took too long, and is somebody else's by now.
   */
  done(taskId: string, result?: unknown, options: DoneOptions = {}): ReturnType<Mailroom['done']> {
    return this.#mailroom.done(this.#casts.agentOf(options.as), taskId, result, options);
  }

  /** It is still being worked on: its time begins anew. Milliseconds that are left; null = the agent has no such task here. */
  extendTask(taskId: string, as?: string): number | null {
    return this.#mailroom.extend(this.#casts.agentOf(as), taskId);
  }

  /** Calls a task off, as far as nobody has ended it. */
  cancelTask(taskId: string, as?: string): Promise<'cancelled' | 'requested' | 'too_late' | 'unknown' | 'unsure'> {
    return this.#casts.cancel(taskId, as);
  }

  /** Who would serve it and why, without sending anything. */
  explain(target: string, payload?: unknown, options: CallOptions = {}): Explanation {
    return this.#calls.explain(target, payload, options);
  }

  /** Makes a function of this process an agent. Rejects with words when the table or the registry has no place for it. */
  async serve(target: string, handler: Handler, options: ServeOptions = {}): Promise<Serving> {
    const agent = options.agent ?? this.#agent;
    if (agent === null) throw new TypeError('nobody is named who serves it: give `agent`, or start the engine with `as`');
    const parsed = parseTarget(target);
    if ('problem' in parsed) throw new TypeError(parsed.problem);
    if (!target.includes('@')) throw new TypeError(`${target} names no version: serve the exact one, such as ${target}@1.0.0`);
    const serving = this.#agents.get(agent) ?? new ServingAgent(agent, this.#clock, this.#lost);
    if (serving.has(target)) throw new TypeError(`${agent} serves ${target} already`);
    serving.set(target, handler);
    // Before anything is waited for: whoever serves more of the same agent meanwhile meets it.
    this.#agents.set(agent, serving);
    try {
      await this.#inTurn(async () => {
        if (!this.#isInTable(agent, parsed.name, target)) await this.#put(agent, target, parsed.name, options);
      });
    } catch (error) {
      serving.delete(target);
      if (serving.isEmpty && this.#agents.get(agent) === serving) this.#agents.delete(agent);
      throw error;
    }
    this.#local.set(serving);
    return { agent, target, stop: () => this.#unserve(serving, target) };
  }

  /** Takes no new calls, lets those under way end within the grace, and closes everything. */
  async stop(graceMs = 5_000): Promise<void> {
    this.#beat?.cancel();
    this.#beat = null;
    // The sidecar's own order (`stop.ts`): the registry first; calls of this process are under way there as all others are.
    for (const agent of this.#calls.agents()) this.#started.front.finishing?.said(agent);
    const stopped = this.#started.stop(graceMs);
    await this.#calls.drain(graceMs);
    await stopped;
    for (const agent of this.#agents.keys()) this.#local.delete(agent);
    this.#agents.clear();
  }

  /** The file says it already. */
  #isInTable(agent: string, name: string, target: string): boolean {
    const provider = this.#started.front.table.current().providers.get(agent);
    if (provider === undefined || provider.record.endpoint.type !== 'local' || this.#registered.has(agent)) return false;
    return provider.record.offers.some((offer) => offer.name === name && `${offer.name}@${offer.version}` === target);
  }

  async #put(agent: string, target: string, name: string, options: ServeOptions): Promise<void> {
    const before = this.#registered.get(agent) ?? null;
    const provider = { ...before?.provider, ...options.provider };
    const registration = this.#registrationOf(agent, target, name, options.contract, provider, before?.registration ?? null);
    const { served, front } = this.#started;
    if (served !== null) {
      const problem = served.put(registration);
      if (problem !== null) throw new StartRefused([problem]);
    } else {
      const client = front.registry?.client;
      if (client === undefined) throw new Error('there is neither a table nor a registry');
      const own = await client.register(registration, 'api');
      if (own.state === 'refused') throw new StartRefused(own.problems);
      this.#beat ??= this.#beatLater();
    }
    this.#registered.set(agent, { registration, provider });
  }

  #registrationOf(
    agent: string,
    target: string,
    name: string,
    said: ServeOptions['contract'],
    provider: Readonly<Record<string, unknown>>,
    before: AgentRegistration | null,
  ): AgentRegistration {
    const version = target.slice(target.indexOf('@') + 1);
    const known =
      this.#started.front.table
        .current()
        .capabilities.get(name)
        ?.versions.some((line) => line.text === version) === true;
    if (!known && said === undefined)
      throw new StartRefused([`there is no contract for ${target} in the table: give one with \`contract\`, at least {acl: …}`]);
    const contract = said === undefined ? null : { ...said, name, version };
    const offers = [...(before?.record.offers ?? []).map((offer) => `${offer.name}@${offer.version}`), target];
    const text = JSON.stringify({
      contracts: contract === null ? [] : [contract],
      provider: { ...provider, agent_id: agent, offers, endpoint: { type: 'local' } },
    });
    const reading = readRegistration(text, `serve ${target}`, this.#started.config.name);
    if ('problems' in reading) throw new StartRefused(reading.problems.map(wordsOfProblem));
    const { registration } = reading;
    // A function that was stopped and is served again may say another contract than before.
    const others = (before?.contracts ?? []).filter((old) => contract === null || old.name !== name || old.version !== version);
    return { ...registration, contracts: [...others, ...registration.contracts] };
  }

  async #unserve(serving: ServingAgent, target: string): Promise<void> {
    if (!serving.has(target)) return;
    serving.delete(target);
    const { agentId } = serving;
    if (serving.isEmpty) {
      this.#local.delete(agentId);
      this.#agents.delete(agentId);
    }
    await this.#inTurn(() => this.#takeBack(agentId, target));
  }

  async #takeBack(agentId: string, target: string): Promise<void> {
    const registered = this.#registered.get(agentId);
    if (registered === undefined) return;
    const { registration, provider } = registered;
    const offers = registration.record.offers.filter((offer) => `${offer.name}@${offer.version}` !== target);
    const { served, front } = this.#started;
    if (offers.length === 0) {
      this.#registered.delete(agentId);
      served?.remove(agentId);
      await front.registry?.client.announcer.deregister(agentId);
      return;
    }
    const rest: AgentRegistration = { ...registration, record: { ...registration.record, offers } };
    this.#registered.set(agentId, { registration: rest, provider });
    served?.put(rest);
    await front.registry?.client.register(rest, 'api');
  }

  /** One registration after the other: each says all that its agent offers, and so has to know of the one before. */
  #inTurn(work: () => Promise<void>): Promise<void> {
    const turn = this.#lastTurn.then(work);
    this.#lastTurn = turn.catch(ignore);
    return turn;
  }

  /** As long as the process lives, so do its agents: the registry hears it before the lease is over. */
  #beatLater(): Timer {
    const leaseMs = this.#started.front.registry?.client.announcer.leaseMs ?? LEASE_MS;
    return this.#clock.after(leaseMs / 3, () => {
      for (const agent of this.#registered.keys()) this.#started.front.registry?.client.announcer.beat(agent);
      this.#beat = this.#beatLater();
    });
  }
}

const LEASE_MS = 135_000;

function ignore(): void {}

/** Settings as they are meant inside a process: without a table it begins empty, and nothing is kept on disk unless a place is named. */
function completed(settings: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const own = settings['sidecar'];
  if (typeof own !== 'object' || own === null) return settings;
  const hasTable = 'table' in own || 'registry' in own || TABLE_SECTIONS.some((section) => section in settings);
  return {
    ...settings,
    ...(hasTable ? {} : { contracts: [], providers: [] }),
    sidecar: { ...('state_dir' in own ? {} : { state_dir: 'none' }), ...own },
  };
}

const TABLE_SECTIONS: readonly string[] = ['contracts', 'providers', 'policies', 'overrides', 'sidecars'];

/** Whether the settings ask for the port of agents outside; what cannot be read is refused later, with its place. */
function namesPort(text: string, file: string): boolean {
  const { value } = openSource(text, file);
  const own = typeof value === 'object' && value !== null ? (value as { sidecar?: unknown }).sidecar : null;
  return typeof own === 'object' && own !== null && 'listen' in own;
}

function textOf(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
