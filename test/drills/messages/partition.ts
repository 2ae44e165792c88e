/** `make drill-partition`: the nats-server stands still for 20 s (SIGSTOP): connections stay open, and nothing is answered. */
import { setTimeout as sleep } from 'node:timers/promises';
import { runDrill } from './drill.ts';

const CALM_MS = 6_000;
const STILL_MS = 20_000;

await runDrill({
  name: 'partition',
  words: `nats-server stands still for ${STILL_MS / 1_000} s`,
  team: { workMs: 10 },
  workers: 3,
  senders: 2,
  submit: { ratePerSec: 100, count: 4_000 },
  faults: async (stage) => {
    await sleep(CALM_MS);
    stage.nats.pause();
    stage.say('nats-server stands still');
    await sleep(STILL_MS);
    stage.nats.resume();
    stage.fault('nats-server goes on');
  },
});
