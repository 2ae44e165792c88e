/**
 * `make drill-sidecar`: sidecars are killed. Those of workers at five places in the life of a message, where they kill themselves, and
 * from outside at any moment; those of senders from outside. The agents beside them live on.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Member } from '../../../deploy/local/roster.ts';
import { runDrill } from './drill.ts';
import type { Stage } from './stage.ts';
import { PER_PROVIDER } from './team.ts';

const PLACES = ['before_hand_over', 'after_hand_over', 'after_effect', 'after_result', 'before_ack'] as const;
/** One in so many messages: it works for a second or so first. */
const SHARE = 0.01;
const DIES_WITHIN_MS = 15_000;
const AWAY_MS = 1_000;
const PAUSE_MS = 1_500;

const reached = new Set<string>();

await runDrill({
  name: 'sidecar',
  words: `sidecars are killed: workers' at ${PLACES.join(', ')} and at random, senders' at random`,
  team: { workMs: 10 },
  workers: 3,
  senders: 2,
  readsInboxes: true,
  submit: { ratePerSec: 320, count: 21_000 },
  faults: async (stage) => {
    for (let i = 0; !stage.isThrough; i++) {
      await sleep(PAUSE_MS);
      const victim = stage.workers[i % stage.workers.length] as Member;
      const place = PLACES[i % (PLACES.length + 1)];
      if (place === undefined) await killed(stage, stage.senders[i % stage.senders.length] as Member);
      else await diesAt(stage, victim, place);
    }
  },
  demands: (stage) => ({
    mostInDoubt: stage.faultsSeen.length * PER_PROVIDER,
    hits: ['idempotent_restarted', 'keyed_restarted', 'in_doubt', 'under_way'],
  }),
  expects: () => PLACES.filter((place) => !reached.has(place)).map((place) => `no sidecar died at ${place}`),
  more: () => ({ places: reached.size }),
});

async function killed(stage: Stage, victim: Member): Promise<void> {
  stage.fault(`sidecar ${victim.sidecar} is killed`);
  await stage.team.killSidecar(victim);
  await sleep(AWAY_MS);
  await stage.team.restartSidecar(victim);
}

/** Killed from outside, started with a place at which it kills itself, and started again without. */
async function diesAt(stage: Stage, victim: Member, place: string): Promise<void> {
  const { team } = stage;
  await rigged(stage, victim, place);
  const { sidecar } = team.seat(victim);
  sidecar.expected = true;
  const inTime = await Promise.race([sidecar.end.then(() => true), sleep(DIES_WITHIN_MS, false, { ref: false })]);
  team.failpoints.delete(victim.agentId);
  // By its own SIGKILL: one that ended with a code has crashed.
  if (inTime && sidecar.code === null) {
    reached.add(place);
    stage.fault(`sidecar ${victim.sidecar} died at ${place}`);
    await sleep(AWAY_MS);
  } else await team.killSidecar(victim);
  await team.restartSidecar(victim);
}

async function rigged(stage: Stage, victim: Member, place: string): Promise<void> {
  stage.fault(`sidecar ${victim.sidecar} is killed, and will die at ${place}`);
  await stage.team.killSidecar(victim);
  stage.team.failpoints.set(victim.agentId, `${place}:${SHARE}`);
  await stage.team.restartSidecar(victim);
}
