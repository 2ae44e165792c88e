/**
 * The team with a control plane: each sidecar registers the agent that its own file names, and is pushed what its agent may
 * use. Operators' policies are applied and canaries shifted with reachctl. Nobody edits a table.
 */
import { join } from 'node:path';
import { ENVIRONMENT, LocalRegistry, ownNats } from './registry.ts';
import { type Place, policiesText, type PolicyText, put, registeringText, type TeamText, teamText } from './files.ts';
import { Mail } from './mail.ts';
import type { LocalNats } from './nats-server.ts';
import type { Process } from './processes.ts';
import { FRONT, type Member } from './roster.ts';
import { Shop, SHOP_AGENTS } from './shop.ts';
import { placeOf, type Ports, reservePorts, type Split, Team } from './team.ts';

/** Until all that was said has come everywhere. */
const CONVERGE_MS = 20_000;

/** What `/v1/sidecars` says, as far as it is of interest here. */
export interface Fleet {
  readonly epoch: string;
  readonly last_seq: number;
  readonly sidecars: readonly {
    readonly sidecar: string;
    readonly standing: string;
    readonly behind: number;
    readonly refused: readonly unknown[];
  }[];
  readonly summary: { readonly total: number; readonly current: number; readonly refusing: number };
}

export interface ProviderLine {
  readonly agent: string;
  readonly sidecar: string;
  readonly status: string;
  readonly drain: boolean;
}

type NatsOf = (folder: string, say: (line: string) => void) => Promise<LocalNats>;

/** How soon the work of a machine that has died is somebody else's. */
export interface TakeOver {
  /** `messages.ack_wait` of the control plane */
  readonly ackWait: string;
  /** `claims.lease` of the sidecars */
  readonly lease: string;
}

/** A story does not wait for the usual twenty seconds. */
export const QUICK: TakeOver = Object.freeze({ ackWait: '3s', lease: '2s' });

export class RegisteredTeam extends Team {
  #nats: LocalNats | null = null;
  #registry: LocalRegistry | null = null;
  #shop: Shop | null = null;
  #mail: Mail | null = null;
  /** Policies that are in force beside the team's own. */
  #more: readonly PolicyText[] = [];
  readonly #text: TeamText;
  readonly #natsOf: NatsOf;
  readonly #takeOver: TakeOver | null;

  /**
   * @param natsOf where its NATS comes from: one of its own that can be killed, unless told otherwise.
   * @param takeOver null = as it comes
   */
  constructor(text: TeamText = teamText(), natsOf: NatsOf = ownNats, takeOver: TakeOver | null = null) {
    super();
    this.#takeOver = takeOver;
    this.#text = text;
    this.#natsOf = natsOf;
  }

  get registry(): LocalRegistry {
    if (this.#registry === null) throw new Error('the registry is not started');
    return this.#registry;
  }

  /** With the nats-server, which is a process too. */
  override get processes(): number {
    return super.processes + (this.#nats?.process == null ? 0 : 1);
  }

  /** Of its nats-server; '' = not known. */
  get natsVersion(): string {
    return this.#nats?.version ?? '';
  }

  /** What its nats-server has said, the end of it. */
  registryLog(): string {
    return this.#nats?.process?.said ?? '';
  }

  /** The front agent's messages. */
  get mail(): Mail {
    this.#mail ??= new Mail(this.seat(FRONT).client);
    return this.#mail;
  }

  get policiesFile(): string {
    return join(this.folder, 'policies.yaml');
  }

  override async start(members: readonly Member[], say: (line: string) => void): Promise<void> {
    this.#nats = await this.#natsOf(this.folder, say);
    const messages = this.#takeOver === null ? {} : { ack_wait: this.#takeOver.ackWait };
    this.#registry = await LocalRegistry.start(this.children, this.folder, this.#nats, messages);
    say(`nats-server${this.#nats.version === '' ? '' : ` ${this.#nats.version}`} and a control plane are up, nothing is registered yet`);
    await this.joinAll(members);
    await this.applyPolicies([]);
  }

  /** Its sidecar is started and says the rest; the share of its version, if it gets one, is in force before. */
  override async join(member: Member, split?: Split): Promise<string> {
    if (split !== undefined) await this.applyPolicies([policyOf(split)]);
    const ports = await reservePorts();
    await this.launch(placeOf(member, ports), ports);
    await this.#registered([member]);
    const before = split === undefined ? '' : 'its share was applied with "reachctl apply", then ';
    return `${before}its sidecar was started, registered it from its own file, and every sidecar has it in force`;
  }

  /** Starts several at once; resolves when every sidecar has all of them in force. */
  async joinAll(members: readonly Member[]): Promise<void> {
    const ports = await Promise.all(members.map(reservePorts));
    await Promise.all(members.map((member, i) => this.launch(placeOf(member, ports[i] as Ports), ports[i] as Ports)));
    await this.#registered(members);
  }

  /** Applies these rules for messages, behind the policies that were applied last. */
  async applyRules(rules: string): Promise<Process> {
    put(this.policiesFile, `${policiesText([...this.#text.policies, ...this.#more])}\n${rules}`);
    const ran = await this.obeyed('apply', this.policiesFile);
    await this.everywhere();
    return ran;
  }

  /** Starts the shop's other systems; resolves when every sidecar has them in force. */
  async openShop(): Promise<Shop> {
    this.#shop = await Shop.open({
      children: this.children,
      folder: this.folder,
      meshToken: this.meshToken,
      nats: this.registry.nats.url,
      registry: this.#registrySettings,
      until: (what, withinMs, look) => this.until(what, withinMs, look),
      answers: (child, url) => this.answers(child, url),
    });
    await this.#online(SHOP_AGENTS);
    return this.#shop;
  }

  get shop(): Shop {
    if (this.#shop === null) throw new Error("the shop's other systems are not started");
    return this.#shop;
  }

  override async divide({ capability, version, share }: Split): Promise<string> {
    const wish = `${version}=${Number((share * 100).toFixed(2))}%`;
    await this.obeyed('canary', capability, wish);
    await this.everywhere();
    return `by "reachctl canary ${capability} ${wish}"`;
  }

  /** Applies the team's policies and these as well, as a new version of the operators' document. */
  async applyPolicies(more: readonly PolicyText[]): Promise<void> {
    this.#more = more;
    put(this.policiesFile, policiesText([...this.#text.policies, ...more]));
    await this.obeyed('apply', this.policiesFile);
    await this.everywhere();
  }

  /** Runs reachctl; throws with its words when it does not succeed. */
  async obeyed(...args: readonly string[]): Promise<Process> {
    const ran = await this.registry.reachctl(...args);
    if (ran.code !== 0) throw new Error(`reachctl ${args.join(' ')} ended with ${ran.code}: ${ran.said.trim()}`);
    return ran;
  }

  fleet(): Promise<Fleet> {
    return this.registry.get<Fleet>('/v1/sidecars');
  }

  async providers(): Promise<readonly ProviderLine[]> {
    return (await this.registry.get<{ providers: readonly ProviderLine[] }>('/v1/providers')).providers;
  }

  /** Resolves when every sidecar of the team that runs has applied all that concerns it. */
  async everywhere(withinMs: number = CONVERGE_MS): Promise<void> {
    let last = '';
    const isEverywhere = async (): Promise<boolean> => {
      const standings = new Map((await this.fleet()).sidecars.map((one) => [one.sidecar, one.standing]));
      const waiting = this.#running().filter((name) => standings.get(name) !== 'current');
      last = waiting.map((name) => `${name} ${standings.get(name) ?? 'unknown'}`).join(', ');
      return waiting.length === 0;
    };
    try {
      await this.until('every sidecar to be current', withinMs, isEverywhere);
    } catch (error) {
      throw new Error(`${(error as Error).message}: ${last}`);
    }
  }

  #running(): string[] {
    const own = this.seats()
      .filter((seat) => !seat.sidecar.ended)
      .map((seat) => seat.place.member.sidecar);
    return [...own, ...(this.#shop?.sidecars ?? [])];
  }

  /** Resolves when these are online in the registry and every sidecar has what follows from that. */
  async #registered(members: readonly Member[]): Promise<void> {
    await this.#online(members.filter(({ program }) => program !== null).map(({ agentId }) => agentId));
  }

  async #online(awaited: readonly string[]): Promise<void> {
    await this.until(`${awaited.join(', ')} to be registered`, CONVERGE_MS, async () => {
      const casualties = this.casualties();
      if (casualties !== null) throw new Error(casualties);
      const online = new Set((await this.providers()).filter(({ status }) => status === 'online').map(({ agent }) => agent));
      return awaited.every((agent) => online.has(agent));
    });
    await this.everywhere();
  }

  protected override settingsOf(place: Place): string {
    const claims = this.#takeOver === null ? {} : { claims: { lease: this.#takeOver.lease } };
    return registeringText(place, this.meshToken, { registry: this.#registrySettings, ...claims }, this.#text);
  }

  get #registrySettings(): Readonly<Record<string, unknown>> {
    return { nats: this.#nats?.url ?? '', env: ENVIRONMENT };
  }

  protected override async stopRest(): Promise<string[]> {
    await this.#nats?.stop();
    return [];
  }
}

function policyOf({ capability, version, share }: Split): PolicyText {
  return { capability, canary: { [version]: share } };
}
