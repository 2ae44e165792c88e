/**
 * Plays a demo: starts the team, plays scene by scene, stops everything, and says in the last line what held. Every flag of
 * that line is computed from what was measured; a scene that does not come out as it must says so, and the demo exits 1.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { TEAM } from './roster.ts';
import { affinity } from './scenes/affinity.ts';
import { canary } from './scenes/canary.ts';
import { customer } from './scenes/customer.ts';
import { failover } from './scenes/failover.ts';
import { loop } from './scenes/loop.ts';
import { noDowngrade } from './scenes/no-downgrade.ts';
import type { Counts, Scene } from './scenes/scene.ts';
import { slowBreaker } from './scenes/slow-breaker.ts';
import { onLeaving } from './signals.ts';
import { Storyteller } from './story.ts';
import type { Team } from './team.ts';

/** The flag in the last line, what the scene is called, the scene. */
export type Entry<T extends Team> = readonly [flag: string, title: string, scene: Scene<T>];

/** What every demo shows, however its sidecars learn who is there. */
export const CALLS: readonly Entry<Team>[] = [
  ['affinity', '(a) A conversation meets one agent, also after a third one joins', affinity],
  ['failover', '(b) An order desk is killed while calls run', failover],
  ['slow_breaker', '(c) The knowledge agent becomes slow', slowBreaker],
  ['no_downgrade', '(d) A version that nobody serves', noDowngrade],
  ['canary', '(e) A canary of 5 %, held per conversation', canary],
  ['loop', '(f) Two agents that would ask each other for ever', loop],
];
const STORY = 'within_deadline';

/** Far above the usual; a demo that hangs is a demo that failed. */
const MOST_MS = 180_000;

/** Plays it and ends the process: 0 when everything held. */
export async function play<T extends Team>(team: T, kind: string, more: readonly Entry<T>[]): Promise<void> {
  const scenes: readonly Entry<T>[] = [...CALLS, ...more];
  const tell = new Storyteller((line) => process.stdout.write(`${line}\n`));
  const flags: Record<string, boolean> = Object.fromEntries(
    [...CALLS.map(([flag]) => flag), STORY, ...more.map(([flag]) => flag)].map((flag) => [flag, false]),
  );
  const counts: Record<string, Counts[string]> = {};
  const fail = (what: string): void => void tell.check(what, 'this', 'otherwise', false);

  onLeaving((status) => {
    tell.say('stopping');
    tell.fallSilent();
    void team.stop().then(() => process.exit(status));
  });

  /** True when nothing in the scene came out otherwise than expected. */
  const played = async (title: string, scene: Scene<T>): Promise<boolean> => {
    tell.heading(title);
    const failuresBefore = tell.failures.length;
    try {
      const figures: Counts = await scene(team, tell);
      Object.assign(counts, figures);
    } catch (error) {
      fail(`the scene broke off: ${words(error)}`);
    }
    return tell.failures.length === failuresBefore;
  };

  const playAll = async (): Promise<void> => {
    tell.heading(`The team: ${TEAM.length - 1} agents and a front agent, each with a sidecar of its own${kind}`);
    try {
      await team.start(TEAM, (line) => tell.say(line));
      tell.say(`${team.processes} processes are up`);
    } catch (error) {
      fail(`the team did not start: ${words(error)}`);
      return;
    }
    const isAnswered = await played('The story: five budgeted steps share ten seconds', customer);
    for (const [flag, title, scene] of scenes) flags[flag] = await played(title, scene);
    flags[STORY] = isAnswered;
  };

  const late = sleep(MOST_MS, undefined, { ref: false }).then(() => fail(`the demo was not through after ${MOST_MS / 1_000} s`));
  await Promise.race([playAll(), late]);

  tell.heading('The end');
  const casualties = team.casualties();
  if (casualties !== null) fail(casualties);
  const killed = await team.stop();
  if (killed.length > 0) fail(`did not stop when asked and had to be killed: ${killed.join(', ')}`);
  else tell.say(`${team.processes} processes stopped, none had to be forced`);
  const ok = tell.failures.length === 0 && Object.values(flags).every(Boolean);
  const seconds = Number((tell.elapsedMs / 1_000).toFixed(1));
  const last = JSON.stringify({ demo: ok ? 'ok' : 'failed', ...flags, ...counts, processes: team.processes, seconds });
  process.stdout.write(`\n${last}\n`, () => process.exit(ok ? 0 : 1));
}

function words(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
