/**
 * The running team: every member an agent process and a sidecar process of its own. It starts them, kills when the story
 * asks for it, and takes everything down again. How a sidecar learns who is there differs, and stands in the two kinds of
 * team: `FileTeam` (one table file for all) and `RegisteredTeam` (a control plane).
 */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from './client.ts';
import { type Place, put } from './files.ts';
import { Port } from './ports.ts';
import { type Process, Processes } from './processes.ts';
import type { Member } from './roster.ts';
import { secret } from './secret.ts';

const LOOK_EVERY_MS = 40;
/** For two dozen processes on a busy machine. */
const START_MS = 45_000;

/** One member at work. */
export interface Seat {
  readonly place: Place;
  /** Null for the front agent, which is whoever runs the demo. */
  readonly agent: Process | null;
  readonly sidecar: Process;
  /** Its sidecar, used with the agent's own token. */
  readonly client: Client;
}

/** A version of a capability and the share of its conversations that it gets. */
export interface Split {
  readonly capability: string;
  readonly version: string;
  /** 0–1 */
  readonly share: number;
}

/** What a sidecar says at `/v1/health`, as far as it is of interest here. */
export interface Standing {
  readonly status: string;
  readonly table: {
    readonly version: number;
    readonly source: string;
    readonly stale_because: string | null;
    readonly problems: readonly { readonly message: string }[];
  };
}

export abstract class Team {
  readonly folder: string;
  protected readonly children = new Processes();
  readonly #seats = new Map<string, Seat>();
  protected readonly meshToken = secret();
  #stopped: Promise<string[]> | null = null;

  constructor() {
    this.folder = mkdtempSync(join(tmpdir(), 'agent-reach-'));
    mkdirSync(this.store);
  }

  /** Starts all of them at once; resolves when every sidecar knows all of them. `say` is told what a person would want to know meanwhile. */
  abstract start(members: readonly Member[], say: (line: string) => void): Promise<void>;

  /**
   * Starts one more. Resolves, with what was done in words, when every sidecar has it in force; with `split`, nobody is
   * sent to its version before the share is in force.
   */
  abstract join(member: Member, split?: Split): Promise<string>;

  /** Gives a version its share; resolves as `join` does. */
  abstract divide(split: Split): Promise<string>;

  /** The text of a sidecar's own settings. */
  protected abstract settingsOf(place: Place): string;

  /** The last to be stopped, after all sidecars and agents. */
  protected async stopRest(): Promise<string[]> {
    return [];
  }

  /** What the agents share, as they would a database. */
  get store(): string {
    return join(this.folder, 'store');
  }

  get processes(): number {
    return this.children.count;
  }

  seats(): Seat[] {
    return [...this.#seats.values()];
  }

  seat(member: Member): Seat {
    const seat = this.#seats.get(member.agentId);
    if (seat === undefined) throw new Error(`${member.agentId} is not at work`);
    return seat;
  }

  /** Sends a signal to an agent's process alone. */
  signal(member: Member, signal: NodeJS.Signals): void {
    this.seat(member).agent?.signal(signal);
  }

  /** Ends an agent as a crash would; its sidecar lives on. */
  async kill(member: Member): Promise<void> {
    this.signal(member, 'SIGKILL');
    await this.seat(member).agent?.end;
  }

  /** Ends a sidecar as a crash would; its agent lives on. */
  async killSidecar(member: Member): Promise<void> {
    const { sidecar } = this.seat(member);
    sidecar.signal('SIGKILL');
    await sidecar.end;
  }

  /** Starts it again with the same settings, folder and ports; resolves when it can serve. */
  async restartSidecar(member: Member): Promise<void> {
    const seat = this.seat(member);
    const sidecar = this.#startSidecar(member);
    this.#seats.set(member.agentId, { ...seat, sidecar });
    await this.answers(sidecar, `http://${seat.place.listen}/v1/ready`);
  }

  /** Starts an agent again that was ended, on its port; resolves when it answers. */
  async restartAgent(member: Member): Promise<void> {
    const seat = this.seat(member);
    const agent = this.#startAgent(seat.place);
    this.#seats.set(member.agentId, { ...seat, agent });
    await this.answers(agent, `${seat.place.agent}/_count`);
  }

  /** What a sidecar's process is told by its environment. */
  protected sidecarEnv(_member: Member): Record<string, string> {
    return {};
  }

  standing(member: Member): Promise<Standing> {
    return this.seat(member).client.get<Standing>('/v1/health');
  }

  /** What an agent has counted: executions by capability. */
  async counts(member: Member): Promise<Readonly<Record<string, number>>> {
    const answer = await fetch(`${this.seat(member).place.agent}/_count`);
    return ((await answer.json()) as { executions: Record<string, number> }).executions;
  }

  /** Makes an agent take this much longer for everything. */
  async slowDown(member: Member, delayMs: number): Promise<void> {
    const answer = await fetch(`${this.seat(member).place.agent}/_control`, {
      method: 'POST',
      body: JSON.stringify({ delay_ms: delayMs }),
    });
    if (answer.status !== 200) throw new Error(`${member.agentId} did not take its orders: ${answer.status}`);
  }

  /** What an agent wrote down about its own doings, one line each; also readable when it is dead. */
  journal(member: Member): string[] {
    const file = this.#journalFile(member);
    return existsSync(file)
      ? readFileSync(file, 'utf8')
          .split('\n')
          .filter((line) => line !== '')
      : [];
  }

  /** What every process has said, the end of it. */
  logs(): { readonly name: string; readonly pid: number; readonly said: string }[] {
    return this.children.all().map(({ name, pid, said }) => ({ name, pid, said }));
  }

  /** Words about processes that have ended and should not have; null when all is well. */
  casualties(): string | null {
    const dead = this.children.casualties();
    return dead.length === 0 ? null : dead.map((each) => `${each.name} (pid ${each.pid}) ended by itself${each.lastWords}`).join('; ');
  }

  /** Stops every process by its pid and removes the files; gives the names of those that had to be killed. Once, however often it is asked. */
  stop(): Promise<string[]> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  protected get isStopped(): boolean {
    return this.#stopped !== null;
  }

  async #stop(): Promise<string[]> {
    await Promise.allSettled(this.seats().map((seat) => seat.client.close()));
    const killed = await this.children.stop();
    killed.push(...(await this.stopRest()));
    rmSync(this.folder, { recursive: true, force: true });
    return killed;
  }

  /** Starts the processes of a member; resolves when they answer. */
  protected async launch(place: Place, ports: Ports): Promise<void> {
    const { member } = place;
    put(this.#settingsFile(member), this.settingsOf(place));
    await release(ports);
    if (this.isStopped) return;
    const sidecar = this.#startSidecar(member);
    const agent = member.program === null ? null : this.#startAgent(place);
    const client = new Client(`http://${place.listen}`, place.token);
    this.#seats.set(member.agentId, { place, agent, sidecar, client });
    await Promise.all([
      this.answers(sidecar, `http://${place.listen}/v1/ready`),
      agent === null ? null : this.answers(agent, `${place.agent}/_count`),
    ]);
  }

  #startSidecar(member: Member): Process {
    return this.children.start(
      `sidecar ${member.sidecar}`,
      '../../sidecar/main.ts',
      ['run', this.#settingsFile(member)],
      this.sidecarEnv(member),
    );
  }

  #startAgent(place: Place): Process {
    const { agentId, program } = place.member;
    if (program === null) throw new Error(`${agentId} has no program`);
    const env = this.#agentEnv(place);
    return program.endsWith('.py')
      ? this.children.startPython(`agent ${agentId}`, program, [], env)
      : this.children.start(`agent ${agentId}`, program, [], env);
  }

  #settingsFile(member: Member): string {
    return join(this.folder, `${member.sidecar}.yaml`);
  }

  #agentEnv(place: Place): Record<string, string> {
    return {
      AGENT_ID: place.member.agentId,
      AGENT_PORT: new URL(place.agent).port,
      AGENT_JOURNAL: this.#journalFile(place.member),
      AGENT_STORE: this.store,
      SIDECAR_URL: `http://${place.listen}`,
      SIDECAR_TOKEN: place.token,
    };
  }

  #journalFile(member: Member): string {
    return join(this.folder, `${member.agentId}.journal`);
  }

  /** Waits until a process answers there with 200; throws when it ends first or takes too long. */
  protected async answers(child: Process, url: string): Promise<void> {
    await this.until(`${child.name} to answer at ${url}`, START_MS, async () => {
      if (child.ended) throw new Error(`${child.name} ended at once${child.lastWords}`);
      const answer = await fetch(url).catch(() => null);
      await answer?.arrayBuffer().catch(() => null);
      return answer?.status === 200;
    });
  }

  /** Looks again and again until there is something to give; throws when there is nothing within that time. */
  async until<T>(what: string, withinMs: number, look: () => Promise<T | null | false>): Promise<T> {
    const end = performance.now() + withinMs;
    while (performance.now() < end) {
      if (this.isStopped) throw new Error('stopped meanwhile');
      const found = await look();
      if (found !== null && found !== false) return found;
      await sleep(LOOK_EVERY_MS);
    }
    throw new Error(`waited ${withinMs / 1_000} s for ${what}`);
  }
}

export interface Ports {
  readonly agent: Port;
  readonly listen: Port;
  readonly mesh: Port;
  readonly grpc: Port;
}

export async function reservePorts(): Promise<Ports> {
  const [agent, listen, mesh, grpc] = await Promise.all([Port.reserve(), Port.reserve(), Port.reserve(), Port.reserve()]);
  return { agent, listen, mesh, grpc };
}

/** Lets go of all of them, for the programs that are started next. */
export async function release(ports: Ports): Promise<void> {
  await Promise.all(Object.values(ports).map((port: Port) => port.release()));
}

export function placeOf(member: Member, ports: Ports): Place {
  return {
    member,
    agent: member.program === null ? '' : ports.agent.url,
    listen: `127.0.0.1:${ports.listen.number}`,
    mesh: `127.0.0.1:${ports.mesh.number}`,
    // Only the front agent calls in by gRPC as well; nobody else's sidecar needs to have it loaded.
    grpc: member.program === null ? `127.0.0.1:${ports.grpc.number}` : '',
    token: secret(),
  };
}
