/**
 * The SSRF guard at registration (SPEC R11.4): whoever registers an address has others connect to it. A third party's
 * address is judged by the operator's settings, on every address that its name leads to now; the sidecars judge again when
 * they connect. What a sidecar hosts itself is reached by that sidecar alone, so its own machine and network are fine;
 * the address at which clouds hand out credentials never is.
 */
import { lookup } from 'node:dns/promises';
import { type AddressPolicy, type Host, judgeAddress, judgeHost, parseHost } from '../../base/address-guard.ts';
import type { Clock } from '../../base/clock.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { AgentRegistration, Refusal } from '../../proto/wire/registry.ts';

/** Every address of a host name; empty = it leads nowhere. */
export type Resolve = (name: string) => Promise<readonly string[]>;

/** A resolver that hangs must not hold up the registration. */
const RESOLVE_MS = 2_000;

export class Admission {
  readonly #policy: AddressPolicy;
  readonly #hosted: AddressPolicy;
  readonly #resolve: Resolve;
  readonly #clock: Clock;

  constructor(policy: AddressPolicy, clock: Clock, resolve: Resolve = resolveBySystem) {
    this.#policy = policy;
    this.#hosted = { allow: policy.allow, loopback: true, private: true };
    this.#resolve = resolve;
    this.#clock = clock;
  }

  /** Those that may be registered by this sidecar, and a refusal for each of the others. */
  async judge(
    sidecar: string,
    agents: readonly AgentRegistration[],
  ): Promise<{ readonly admitted: readonly AgentRegistration[]; readonly refused: readonly Refusal[] }> {
    const reasons = await Promise.all(agents.map((agent) => this.#problem(sidecar, agent)));
    const refused: Refusal[] = [];
    for (const [i, reason] of reasons.entries())
      if (reason !== null)
        refused.push({ agent: (agents[i] as AgentRegistration).record.agentId, code: Code.forbidden, problems: [reason] });
    return { admitted: refused.length === 0 ? agents : agents.filter((_, i) => reasons[i] === null), refused };
  }

  /** Why other sidecars may not be sent to this mesh address; null when they may. */
  mesh(address: string | null): string | null {
    if (address === null) return null;
    const host = hostOf(address);
    return host === null ? 'the mesh address cannot be read' : judgeHost(host, this.#hosted);
  }

  async #problem(sidecar: string, { record }: AgentRegistration): Promise<string | null> {
    const { address } = record.endpoint;
    if (!/^https?:/i.test(address)) return null;
    const host = hostOf(address);
    if (host === null) return `the address of ${record.agentId} cannot be read`;
    const isHosted = record.via === sidecar;
    const policy = isHosted ? this.#hosted : this.#policy;
    const problem = judgeHost(host, policy);
    if (problem !== null || host.kind === 'ip' || isHosted) return problem;
    for (const each of await this.#addressesOf(host.text)) {
      const refusal = judgeAddress(each, policy, host.text);
      if (refusal !== null) return refusal;
    }
    return null;
  }

  /** A name that cannot be resolved here may be one that the sidecars can: they judge it when they connect. */
  #addressesOf(name: string): Promise<readonly string[]> {
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

function hostOf(address: string): Host | null {
  try {
    return parseHost(new URL(address).hostname);
  } catch {
    return null;
  }
}
