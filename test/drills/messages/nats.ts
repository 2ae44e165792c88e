/**
 * `make drill-nats`: the nats-server is killed and started again, three times in quick succession, and then is away for a minute, while
 * messages are submitted all the time: those go to the senders' disks, and leave in order when it is back.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { runDrill } from './drill.ts';

const KILLS = 3;
const CALM_MS = 4_000;
const AWAY_MS = 60_000;

await runDrill({
  name: 'nats',
  words: `nats-server is killed ${KILLS} times and started again at once, then is away for ${AWAY_MS / 1_000} s`,
  team: { workMs: 10 },
  workers: 3,
  senders: 2,
  readsInboxes: true,
  submit: { ratePerSec: 250, count: 21_000 },
  settleMs: 240_000,
  faults: async (stage) => {
    const { nats } = stage;
    for (let i = 0; i < KILLS; i++) {
      await sleep(CALM_MS);
      stage.strike('nats-server is killed');
      await nats.kill();
      await nats.restart();
      stage.back('it is back');
    }
    await sleep(CALM_MS);
    stage.strike('nats-server is killed and stays away');
    await nats.kill();
    await sleep(AWAY_MS);
    await nats.restart();
    stage.back(`it is back after ${AWAY_MS / 1_000} s`);
  },
  demands: () => ({ hits: ['under_way'] }),
  expects: ({ accepted }) =>
    accepted.some(({ durable }) => durable === 'local-disk') ? [] : ['no message was accepted while the server was away'],
  more: ({ accepted }) => ({ on_disk: accepted.filter(({ durable }) => durable === 'local-disk').length }),
});
