/**
 * The SSRF guard at the door (SPEC R11.4): which agents of a request may be registered, and which mesh address others may
 * be sent to. Names are looked up here, within a time; what an address means is judged by `registry/address-guard.ts`.
 * What a sidecar hosts itself is reached by that sidecar alone, so its own machine and network are fine; the address at
 * which clouds hand out credentials never is.
 */
import { lookup } from 'node:dns/promises';
import { type AddressPolicy, judgeHost, parseHost } from '../../base/address-guard.ts';
import type { Clock } from '../../base/clock.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { AgentRegistration, Refusal } from '../../proto/wire/registry.ts';
import { type EndpointGuard, judgeEndpoint, ownPort, type Resolve } from '../registry/address-guard.ts';

/** A resolver that hangs must not hold up the registration. */
const RESOLVE_MS = 2_000;

export interface Admitted {
  readonly admitted: readonly AgentRegistration[];
  readonly refused: readonly Refusal[];
}

export class Admission {
  readonly #policy: AddressPolicy;
  readonly #hosted: AddressPolicy;
  readonly #resolve: Resolve;
  readonly #clock: Clock;
  /** By the sidecar whose mesh port it is; '' = the control plane's own. */
  readonly #ownPorts = new Map<string, string>();
  #busPorts: ReadonlySet<string> = new Set();

  constructor(policy: AddressPolicy, clock: Clock, resolve: Resolve = resolveBySystem) {
    this.#policy = policy;
    this.#hosted = { allow: policy.allow, loopback: true, private: true };
    this.#resolve = resolve;
    this.#clock = clock;
  }

  /** A port of ours, from now on: a provider that stood there would be called in a circle. Null = it has none any more. */
  own(owner: string, address: string | null): void {
    const place = address === null ? null : ownPort(address);
    if (place === null) this.#ownPorts.delete(owner);
    else this.#ownPorts.set(owner, place);
  }

  /** The servers of the bus, as the settings name them. */
  bus(servers: readonly string[]): void {
    const places = servers.map((each) => ownPort(each.includes('://') ? each : `nats://${each}`));
    this.#busPorts = new Set(places.filter((place): place is string => place !== null));
  }

  /** Those that may be registered, and a refusal for each of the others. */
  async judge(agents: readonly AgentRegistration[]): Promise<Admitted> {
    const guard: EndpointGuard = {
      direct: this.#policy,
      hosted: this.#hosted,
      ownPorts: new Set(this.#ownPorts.values()),
      busPorts: this.#busPorts,
    };
    const problems = await Promise.all(agents.map(({ record }) => judgeEndpoint(record, guard, (name) => this.#lookUp(name))));
    const refused: Refusal[] = [];
    const admitted: AgentRegistration[] = [];
    for (const [i, agent] of agents.entries()) {
      const problem = problems[i] ?? null;
      if (problem === null) admitted.push(agent);
      else refused.push({ agent: agent.record.agentId, code: Code.forbidden, problems: [problem] });
    }
    return { admitted, refused };
  }

  /** Why other sidecars may not be sent to this mesh address; null when they may. */
  mesh(address: string | null): string | null {
    if (address === null) return null;
    try {
      const host = parseHost(new URL(address).hostname);
      return host === null ? 'the host in the mesh address cannot be read' : judgeHost(host, this.#hosted);
    } catch {
      return 'the mesh address cannot be read';
    }
  }

  /** A name that cannot be resolved here may be one that the sidecars can: they judge it when they connect. */
  #lookUp(name: string): Promise<readonly string[]> {
    return new Promise((done) => {
      const timer = this.#clock.after(RESOLVE_MS, () => done([]));
      const end = (addresses: readonly string[]): void => {
        timer.cancel();
        done(addresses);
      };
      this.#resolve(name).then(end, () => end([]));
    });
  }
}

const resolveBySystem: Resolve = async (name) => (await lookup(name, { all: true })).map(({ address }) => address);
