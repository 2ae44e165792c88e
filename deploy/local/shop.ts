/**
 * The shop at work: its systems as processes of their own, in Python and Node, and one sidecar that stands beside them. Most
 * listen on a port and are written down in the sidecar's file; the till dials in; the desk has an engine of its own inside.
 */
import { join } from 'node:path';
import { besideText, insideText, type Place, put, writtenHere } from './files.ts';
import type { Process, Processes } from './processes.ts';
import { DESK, DESK_SIDECAR, ORDERS, PARCELS, SHOP, STOCK, type System, SYSTEMS, TEXT, TILL } from './systems.ts';
import { placeOf, release, reservePorts } from './team.ts';

const START_MS = 45_000;

/** What it needs of the team that it joins. */
export interface ShopNeeds {
  readonly children: Processes;
  readonly folder: string;
  readonly meshToken: string;
  readonly nats: string;
  readonly registry: Readonly<Record<string, unknown>>;
  readonly until: <T>(what: string, withinMs: number, look: () => Promise<T | null | false>) => Promise<T>;
  /** Waits until a process answers there. */
  readonly answers: (child: Process, url: string) => Promise<void>;
}

export class Shop {
  readonly place: Place;
  readonly #needs: ShopNeeds;
  readonly #processes = new Map<System, Process>();
  #sidecar: Process | null = null;

  /** Starts everything; resolves when all are up. Registered they are a moment later. */
  static async open(needs: ShopNeeds): Promise<Shop> {
    const ports = await reservePorts();
    const shop = new Shop(needs, placeOf(SHOP, ports));
    await Promise.all([
      ...[TEXT, STOCK, ORDERS].map((system) => shop.#start(system, [])),
      shop.#start(PARCELS, [needs.nats]),
      shop.#openDesk(),
    ]);
    put(shop.settingsFile, shop.#settings());
    await release(ports);
    const url = `http://${shop.place.listen}`;
    shop.#sidecar = needs.children.start(`sidecar ${SHOP.sidecar}`, '../../sidecar/main.ts', ['run', shop.settingsFile], {});
    await needs.answers(shop.#sidecar, `${url}/v1/ready`);
    const env = { REACH_URL: url, REACH_TOKEN: shop.place.token };
    shop.#processes.set(TILL, needs.children.startPython(`system ${TILL.agentId}`, TILL.program, [], env));
    return shop;
  }

  private constructor(needs: ShopNeeds, place: Place) {
    this.#needs = needs;
    this.place = place;
  }

  get settingsFile(): string {
    return join(this.#needs.folder, `${SHOP.sidecar}.yaml`);
  }

  /** Names of the sidecars that came with it and still run. */
  get sidecars(): readonly string[] {
    const running = (child: Process | null | undefined): boolean => child != null && !child.ended;
    return [...(running(this.#sidecar) ? [SHOP.sidecar] : []), ...(running(this.#processes.get(DESK)) ? [DESK_SIDECAR] : [])];
  }

  /** Ends a system as a crash would. */
  async kill(system: System): Promise<void> {
    const child = this.#process(system);
    child.signal('SIGKILL');
    await child.end;
  }

  /** Starts it again where it was; resolves when it listens. */
  async restart(system: System): Promise<void> {
    const { ready } = this.#process(system);
    await this.#start(system, [String(ready?.['port'])]);
  }

  /** What a system listens on, as a base URL. */
  url(system: System): string {
    return `http://127.0.0.1:${this.#process(system).ready?.['port']}`;
  }

  async #openDesk(): Promise<void> {
    const { children, folder, meshToken, registry } = this.#needs;
    const file = join(folder, `${DESK_SIDECAR}.yaml`);
    put(file, insideText(DESK_SIDECAR, meshToken, registry));
    await this.#isReady(DESK, children.start(`system ${DESK.agentId}`, DESK.program, [file], {}));
  }

  async #start(system: System, args: readonly string[]): Promise<void> {
    await this.#isReady(system, this.#needs.children.startPython(`system ${system.agentId}`, system.program, args, {}));
  }

  async #isReady(system: System, child: Process): Promise<void> {
    this.#processes.set(system, child);
    await this.#needs.until(`${child.name} to say that it is ready`, START_MS, async () => {
      if (child.ended) throw new Error(`${child.name} ended at once${child.lastWords}`);
      return child.ready;
    });
  }

  #process(system: System): Process {
    const child = this.#processes.get(system);
    if (child === undefined) throw new Error(`${system.agentId} is not at work`);
    return child;
  }

  #settings(): string {
    const { meshToken, registry, nats } = this.#needs;
    const port = (system: System): string => String(this.#process(system).ready?.['port']);
    const words = { TEXT_PORT: port(TEXT), STOCK_PORT: port(STOCK), ORDERS_PORT: port(ORDERS), NATS_URL: nats };
    return besideText(this.place, meshToken, registry, writtenHere('shop.yaml'), words);
  }
}

/** Agents that must be registered before the shop is open. */
export const SHOP_AGENTS: readonly string[] = SYSTEMS.map(({ agentId }) => agentId);
