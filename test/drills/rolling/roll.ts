/**
 * What an orchestrator does in a rolling update: one thing after another is ended and started anew on the same place, and the next one
 * comes when that one is ready and has been so for a moment. An agent and its sidecar are told to end at the same instant. Two passes:
 * SIGTERM, which a process obeys in its own time, and SIGKILL.
 *
 * The drill itself is the agent beside the callers' sidecars, and behaves as one that is told to stop with its sidecar: it begins
 * nothing new and hears the end of what is under way; its successor, which does what has become due, comes as soon as the old
 * sidecar is gone, and finds nobody there at first. Beside a sidecar that is killed it just goes on.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { LocalRegistry } from '../../../deploy/local/registry.ts';
import type { Member } from '../../../deploy/local/roster.ts';
import type { Stage } from '../messages/stage.ts';
import { CALLERS, type RollingTeam, WORKERS } from './fleet.ts';

export type Pass = 'SIGTERM' | 'SIGKILL';
export const PASSES: readonly Pass[] = ['SIGTERM', 'SIGKILL'];

/** How long something may take to end that was asked to, as orchestrators have it. */
const GRACE_MS = 30_000;
/** What is ready has to be so for this long; orchestrators call it `minReadySeconds`. */
const CALM_MS = 1_000;

export interface Roll {
  readonly pass: Pass;
  readonly what: string;
  readonly kind: 'worker' | 'caller' | 'control' | 'nats';
  /** Since the start of the calls, each: the signal, the end of the process, its successor's readiness. */
  readonly fromMs: number;
  readonly goneMs: number;
  readonly readyMs: number;
  /** Wall clock of the signal and of the readiness. */
  readonly fromWallMs: number;
  readonly readyWallMs: number;
  /** Exit codes of those that were asked to end; what a signal ended has none. */
  readonly codes: readonly (number | null)[];
  readonly didLead: boolean;
}

/** Those who call and submit, by the name of their sidecar. */
export interface Agents {
  pause(sidecar: string): void;
  resume(sidecar: string): void;
}

interface Victim {
  readonly what: string;
  readonly kind: Roll['kind'];
  /** Resolves when it is gone, with the exit codes. */
  end(pass: Pass): Promise<readonly (number | null)[]>;
  begin(): Promise<unknown>;
  leads(): Promise<boolean>;
}

export const NAMES: readonly string[] = [
  ...WORKERS.map(({ sidecar }) => sidecar),
  ...CALLERS.map(({ sidecar }) => sidecar),
  'cp-1',
  'cp-2',
  'nats',
];

export function victims(stage: Stage, team: RollingTeam, agents: Agents): readonly Victim[] {
  return [
    ...WORKERS.map((member) => pod(team, member, 'worker')),
    ...CALLERS.map((member) => caller(pod(team, member, 'caller'), agents)),
    ...team.replicas.map((replica) => control(team, replica)),
    nats(stage),
  ];
}

const no = async (): Promise<boolean> => false;

function pod(team: RollingTeam, member: Member, kind: 'worker' | 'caller'): Victim {
  return {
    what: member.sidecar,
    kind,
    end: async (pass) => {
      const processes = team.processesOf(member);
      for (const each of processes) each.signal(pass);
      await within(member.sidecar, Promise.all(processes.map((each) => each.end)));
      return processes.map(({ code }) => code);
    },
    begin: () => team.startAgain(member),
    leads: no,
  };
}

function caller(sidecar: Victim, agents: Agents): Victim {
  return {
    ...sidecar,
    end: async (pass) => {
      if (pass === 'SIGTERM') agents.pause(sidecar.what);
      try {
        return await sidecar.end(pass);
      } finally {
        agents.resume(sidecar.what);
      }
    },
  };
}

function control(team: RollingTeam, replica: LocalRegistry): Victim {
  return {
    what: replica.name,
    kind: 'control',
    end: async (pass) => {
      const { plane } = replica;
      plane.signal(pass);
      await within(replica.name, plane.end);
      return [plane.code];
    },
    begin: () => replica.startReplica(),
    leads: async () => (await team.leader())?.name === replica.name,
  };
}

function nats(stage: Stage): Victim {
  return {
    what: 'nats',
    kind: 'nats',
    end: async (pass) => {
      await (pass === 'SIGKILL' ? stage.nats.kill() : stage.nats.stop());
      return [];
    },
    begin: () => stage.nats.restart(),
    leads: no,
  };
}

async function within(what: string, end: Promise<unknown>): Promise<void> {
  const late = sleep(GRACE_MS, 'late' as const, { ref: false });
  if ((await Promise.race([end, late])) === 'late') throw new Error(`${what} did not end within ${GRACE_MS / 1_000} s`);
}

/** Ends it, starts it anew, and waits until that is ready and has been so for a moment. */
export async function roll(stage: Stage, victim: Victim, pass: Pass, nowMs: () => number): Promise<Roll> {
  const { what, kind } = victim;
  const didLead = await victim.leads();
  const fromMs = nowMs();
  const fromWallMs = Date.now();
  stage.strike(`${pass} to ${what}${didLead ? ', which leads' : ''}`);
  const codes = await victim.end(pass);
  const goneMs = nowMs();
  await victim.begin();
  const readyMs = nowMs();
  const readyWallMs = Date.now();
  stage.back(`${what} was gone after ${Math.round(goneMs - fromMs)} ms and is ready ${Math.round(readyMs - goneMs)} ms later`);
  await sleep(CALM_MS);
  return { pass, what, kind, fromMs, goneMs, readyMs, fromWallMs, readyWallMs, codes, didLead };
}
