/** `make drill-partition`: the nats-server stands still for 20 s (SIGSTOP): connections stay open, and nothing is answered. */
import { setTimeout as sleep } from 'node:timers/promises';
import { runDrill } from './drill.ts';
import type { Stage } from './stage.ts';

const CALM_MS = 6_000;
const STILL_MS = 20_000;

const accepted = ({ submitter }: Stage): number => submitter?.accepted.length ?? 0;
/** Accepted while it stood still. */
let meanwhile = 0;

await runDrill({
  name: 'partition',
  words: `nats-server stands still for ${STILL_MS / 1_000} s`,
  team: { workMs: 60 },
  workers: 3,
  senders: 2,
  readsInboxes: true,
  submit: { ratePerSec: 150, count: 6_000 },
  faults: async (stage) => {
    await sleep(CALM_MS);
    stage.strike('nats-server stands still');
    stage.nats.pause();
    const before = accepted(stage);
    await sleep(STILL_MS);
    meanwhile = accepted(stage) - before;
    stage.nats.resume();
    stage.back('it goes on');
  },
  demands: () => ({ least: 2_000, hits: ['under_way'] }),
  expects: () => (meanwhile > 0 ? [] : ['no message was accepted while it stood still']),
  more: () => ({ accepted_meanwhile: meanwhile }),
});
