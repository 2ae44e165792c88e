/**
 * `make drill-worker`: agents are killed in the midst of their work, one after another, and started again. What they had in hand is
 * taken over or, for work that is done once, said to be in doubt. Idempotent work must have been started again, keyed work that had
 * had its effect too, and starts without an end must stand in the workers' files: otherwise the kills missed the time in which they hurt.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { runDrill } from './drill.ts';
import { PER_PROVIDER } from './team.ts';

const EVERY_MS = 2_500;
const AWAY_MS = 700;

await runDrill({
  name: 'worker',
  words: `worker agents are killed with SIGKILL, one every ${EVERY_MS / 1_000} s, and started again after ${AWAY_MS} ms`,
  team: { workMs: 20 },
  workers: 3,
  senders: 2,
  readsInboxes: true,
  submit: { ratePerSec: 400, count: 21_000 },
  faults: async (stage) => {
    for (let i = 0; !stage.isThrough; i++) {
      await sleep(EVERY_MS);
      const victim = stage.workers[i % stage.workers.length] as (typeof stage.workers)[number];
      stage.fault(`agent ${victim.agentId} is killed`);
      await stage.team.kill(victim);
      await sleep(AWAY_MS);
      await stage.team.restartAgent(victim);
    }
  },
  demands: (stage) => ({
    mostInDoubt: stage.faultsSeen.length * PER_PROVIDER,
    hits: ['idempotent_restarted', 'keyed_restarted', 'in_doubt', 'interrupted', 'retried'],
  }),
});
