/**
 * The fleet of the rolling drill: three workers that carry out calls and messages, each behind a sidecar of its own, two sidecars
 * through which the drill itself calls and submits, two replicas of the control plane, one nats-server. Each of the two capabilities
 * for calls has exactly two providers, the least with which one of them can be replaced.
 */
import { parse } from 'yaml';
import type { LocalRegistry } from '../../../deploy/local/registry.ts';
import type { Member } from '../../../deploy/local/roster.ts';
import type { Process } from '../../../deploy/local/processes.ts';
import { MessageTeam, QUOTA, sender, worker } from '../messages/team.ts';

const ASK = 'drill.call.ask';
const LOOK = 'drill.call.look';
const VERSION = '1.0.0';
const WORK_MS = 5;
/** Calls of one worker at a time, above all that callers have under way: one of two is away at times. */
const MOST_AT_ONCE = 128;
/** Of these, messages are taken up to here, calls counted with them. */
export const IN_HAND = 48;

function offering(name: string, ...capabilities: readonly string[]): Member {
  const plain = worker(name);
  return { ...plain, offers: [...plain.offers, ...capabilities.map((capability) => `${capability}@${VERSION}`)] };
}

export const WORKERS: readonly Member[] = [offering('w1', ASK), offering('w2', ASK, LOOK), offering('w3', LOOK)];
export const CALLERS: readonly Member[] = [sender('s1'), sender('s2')];
export const TARGETS: readonly string[] = [`${ASK}@^1.0`, LOOK];

interface Standing {
  readonly sidecars: readonly { readonly sidecar: string; readonly standing: string }[];
}

interface Providers {
  readonly providers: readonly { readonly agent: string; readonly sidecar: string; readonly status: string; readonly drain: boolean }[];
}

export class RollingTeam extends MessageTeam {
  #second: LocalRegistry | null = null;

  constructor() {
    super({
      workMs: WORK_MS,
      perProvider: MOST_AT_ONCE,
      messages: { rate: parse(QUOTA) as unknown, work: { concurrency: IN_HAND } },
      more: {
        // Calls that are cut together with a killed sidecar can be carried out elsewhere only if that does no harm. What has piled up
        // for one that was away comes at once.
        contracts: [ASK, LOOK].map((name) => ({
          name,
          version: VERSION,
          execution: 'idempotent',
          timeout: '5s',
          acl: 'public',
          limits: { per_provider: MOST_AT_ONCE },
        })),
        // The drill is about what is lost, not about how slow a busy machine is.
        policies: [ASK, LOOK].map((capability) => ({ capability, load: 'round_robin', breaker: { slow_call: '5s' } })),
      },
    });
  }

  override async start(members: readonly Member[], say: (line: string) => void): Promise<void> {
    await super.start(members, say);
    this.#second = await this.registry.second();
  }

  get replicas(): readonly LocalRegistry[] {
    return this.#second === null ? [this.registry] : [this.registry, this.#second];
  }

  /** Null while none does, or none says so. */
  async leader(): Promise<LocalRegistry | null> {
    for (const replica of this.replicas) {
      const answer = await replica.get<{ status: string }>('/v1/leader').catch(() => null);
      if (answer?.status === 'leading') return replica;
    }
    return null;
  }

  /** What must be as it was when everything has been replaced; null = nobody can say. */
  async picture(): Promise<string | null> {
    const leader = await this.leader();
    if (leader === null) return null;
    try {
      const { sidecars } = await leader.get<Standing>('/v1/sidecars');
      const { providers } = await leader.get<Providers>('/v1/providers');
      return JSON.stringify({
        sidecars: sidecars.map(({ sidecar, standing }) => `${sidecar} ${standing}`).sort(),
        providers: providers.map(({ agent, sidecar, status, drain }) => `${agent} ${sidecar} ${status} ${drain}`).sort(),
      });
    } catch {
      return null; // it has just ceased to lead
    }
  }

  /** The processes of one member: they live and die together, as in one pod. */
  processesOf(member: Member): readonly Process[] {
    const { sidecar, agent } = this.seat(member);
    return agent === null ? [sidecar] : [sidecar, agent];
  }

  async startAgain(member: Member): Promise<void> {
    await Promise.all([this.restartSidecar(member), member.program === null ? null : this.restartAgent(member)]);
  }
}
