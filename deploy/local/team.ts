/**
 * The running team: every member an agent process and a sidecar process of its own, all sidecars reading one table file.
 * It starts them, lets members join, edits the table and waits until every sidecar has it in force, kills when the story
 * asks for it, and takes everything down again.
 */
import { randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from './client.ts';
import { type Place, type PolicyText, put, sidecarText, TABLE_FILE, tableText } from './files.ts';
import { Port } from './ports.ts';
import { type Process, Processes } from './processes.ts';
import type { Member } from './roster.ts';

const LOOK_EVERY_MS = 40;
/** For eighteen processes on a busy machine. */
const START_MS = 45_000;
const TABLE_MS = 10_000;

/** One member at work. */
export interface Seat {
  readonly place: Place;
  /** Null for the front agent, which is whoever runs the demo. */
  readonly agent: Process | null;
  readonly sidecar: Process;
  /** Its sidecar, used with the agent's own token. */
  readonly client: Client;
}

interface Standing {
  readonly table: {
    readonly version: number;
    readonly stale_because: string | null;
    readonly problems: readonly { readonly message: string }[];
  };
}

export class Team {
  readonly folder: string;
  readonly #processes = new Processes();
  readonly #seats = new Map<string, Seat>();
  readonly #meshToken = secret();
  /** In the table; a member that is started may not be in it yet. */
  readonly #listed: Place[] = [];
  readonly #policies = new Map<string, PolicyText>();
  #stopped: Promise<string[]> | null = null;

  constructor() {
    this.folder = mkdtempSync(join(tmpdir(), 'agent-reach-'));
  }

  get tableFile(): string {
    return join(this.folder, TABLE_FILE);
  }

  get processes(): number {
    return this.#processes.count;
  }

  seats(): Iterable<Seat> {
    return this.#seats.values();
  }

  seat(member: Member): Seat {
    const seat = this.#seats.get(member.agentId);
    if (seat === undefined) throw new Error(`${member.agentId} is not at work`);
    return seat;
  }

  /** Starts all of them at once, listed in the table from the beginning. */
  async start(members: readonly Member[]): Promise<void> {
    const ports = await Promise.all(members.map(reservePorts));
    const places = members.map((member, i) => placeOf(member, ports[i] as Ports));
    this.#listed.push(...places);
    this.#writeTable();
    await Promise.all(places.map((place, i) => this.#launch(place, ports[i] as Ports)));
  }

  /** Starts one more: its processes run, but nobody is sent to it before `list`. */
  async hire(member: Member): Promise<void> {
    const ports = await reservePorts();
    await this.#launch(placeOf(member, ports), ports);
  }

  /** Puts members and policies (one each capability) into the table, in one edit of the file; resolves when every sidecar has it in force. */
  async list(members: readonly Member[], policies: readonly PolicyText[] = []): Promise<void> {
    this.#listed.push(...members.map((member) => this.seat(member).place));
    for (const policy of policies) this.#policies.set(policy.capability, policy);
    const seats = [...this.#seats.values()].filter((seat) => !seat.sidecar.ended);
    const before = await Promise.all(seats.map(versionOf));
    this.#writeTable();
    await Promise.all(seats.map((seat, i) => this.#hasNewTable(seat, before[i] as number)));
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

  /** Words about processes that have ended and should not have; null when all is well. */
  casualties(): string | null {
    const dead = this.#processes.casualties();
    return dead.length === 0 ? null : dead.map((each) => `${each.name} (pid ${each.pid}) ended by itself${lastWords(each)}`).join('; ');
  }

  /** Stops every process by its pid and removes the files; gives the names of those that had to be killed. Once, however often it is asked. */
  stop(): Promise<string[]> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  #writeTable(): void {
    put(this.tableFile, tableText(this.#listed, [...this.#policies.values()]));
  }

  async #stop(): Promise<string[]> {
    await Promise.allSettled([...this.#seats.values()].map((seat) => seat.client.close()));
    const killed = await this.#processes.stop();
    rmSync(this.folder, { recursive: true, force: true });
    return killed;
  }

  async #launch(place: Place, ports: Ports): Promise<void> {
    const { member } = place;
    const config = join(this.folder, `${member.sidecar}.yaml`);
    put(config, sidecarText(place, this.#meshToken));
    await Promise.all([ports.agent.release(), ports.listen.release(), ports.mesh.release()]);
    if (this.#stopped !== null) return;
    const sidecar = this.#processes.start(`sidecar ${member.sidecar}`, '../../sidecar/main.ts', ['run', config], {});
    const agent =
      member.program === null ? null : this.#processes.start(`agent ${member.agentId}`, member.program, [], this.#agentEnv(place, ports));
    const client = new Client(`http://${place.listen}`, place.token);
    this.#seats.set(member.agentId, { place, agent, sidecar, client });
    await Promise.all([
      this.#answers(sidecar, `http://${place.listen}/v1/ready`),
      agent === null ? null : this.#answers(agent, `${place.agent}/_count`),
    ]);
  }

  #agentEnv(place: Place, ports: Ports): Record<string, string> {
    return {
      AGENT_ID: place.member.agentId,
      AGENT_PORT: String(ports.agent.number),
      AGENT_JOURNAL: this.#journalFile(place.member),
      SIDECAR_URL: `http://${place.listen}`,
      SIDECAR_TOKEN: place.token,
    };
  }

  #journalFile(member: Member): string {
    return join(this.folder, `${member.agentId}.journal`);
  }

  async #answers(child: Process, url: string): Promise<void> {
    const end = performance.now() + START_MS;
    while (performance.now() < end) {
      if (this.#stopped !== null) throw new Error('stopped while starting');
      if (child.ended) throw new Error(`${child.name} ended at once${lastWords(child)}`);
      try {
        const answer = await fetch(url);
        await answer.arrayBuffer();
        if (answer.status === 200) return;
      } catch {
        // not listening yet
      }
      await sleep(LOOK_EVERY_MS);
    }
    throw new Error(`${child.name} does not answer at ${url} after ${START_MS / 1_000} s${lastWords(child)}`);
  }

  async #hasNewTable(seat: Seat, before: number): Promise<void> {
    const end = performance.now() + TABLE_MS;
    while (performance.now() < end) {
      const { table } = await seat.client.get<Standing>('/v1/health');
      if (table.stale_because !== null)
        throw new Error(`${seat.sidecar.name} refused the table: ${table.problems.map((problem) => problem.message).join('; ')}`);
      if (table.version > before) return;
      await sleep(LOOK_EVERY_MS);
    }
    throw new Error(`${seat.sidecar.name} has not taken the new table within ${TABLE_MS / 1_000} s`);
  }
}

async function versionOf(seat: Seat): Promise<number> {
  return (await seat.client.get<Standing>('/v1/health')).table.version;
}

interface Ports {
  readonly agent: Port;
  readonly listen: Port;
  readonly mesh: Port;
}

async function reservePorts(): Promise<Ports> {
  const [agent, listen, mesh] = await Promise.all([Port.reserve(), Port.reserve(), Port.reserve()]);
  return { agent, listen, mesh };
}

function placeOf(member: Member, ports: Ports): Place {
  return {
    member,
    agent: member.program === null ? '' : ports.agent.url,
    listen: `127.0.0.1:${ports.listen.number}`,
    mesh: `127.0.0.1:${ports.mesh.number}`,
    token: secret(),
  };
}

function secret(): string {
  return randomBytes(18).toString('base64url');
}

function lastWords(child: Process): string {
  const lines = child.said.trim().split('\n').slice(-5).join('\n');
  return lines === '' ? '' : `: ${lines}`;
}
