/**
 * `make drill-control`, with messages: control plane and nats-server are killed at once, then a worker's sidecar too, which is started
 * again while there is nobody to ask; then both are brought back. Submissions go on all the time, onto the senders' disks.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Member } from '../../../deploy/local/roster.ts';
import { runDrill } from './drill.ts';
import { PER_PROVIDER } from './team.ts';

const CALM_MS = 5_000;
const AWAY_MS = 4_000;
const PLANE_AWAY_MS = 8_000;

await runDrill({
  name: 'control-messages',
  words: 'the control plane is killed alone; then with nats-server, then a sidecar of a worker and one of a sender too',
  team: { workMs: 10 },
  workers: 3,
  senders: 2,
  readsInboxes: true,
  submit: { ratePerSec: 350, count: 21_000 },
  faults: async (stage) => {
    const { team } = stage;
    const { registry } = team;
    await sleep(CALM_MS);
    stage.strike('the control plane is killed');
    registry.plane.signal('SIGKILL');
    await registry.plane.end;
    await sleep(PLANE_AWAY_MS);
    await registry.startPlane();
    stage.back('it is back and leads');
    await sleep(CALM_MS);
    stage.strike('control plane and nats-server are killed');
    await registry.kill();
    await sleep(AWAY_MS);
    for (const victim of [stage.workers[0], stage.senders[0]] as Member[]) {
      stage.say(`sidecar ${victim.sidecar} is killed too, and started again`);
      await team.killSidecar(victim);
      await sleep(AWAY_MS / 4);
      await team.restartSidecar(victim);
    }
    await sleep(AWAY_MS);
    await registry.restartNats();
    await registry.startPlane();
    stage.back('both are back');
  },
  // A worker's sidecar is killed while it can tell nobody.
  demands: () => ({ mostInDoubt: PER_PROVIDER, hits: ['under_way'] }),
  expects: ({ accepted }) =>
    accepted.some(({ durable }) => durable === 'local-disk') ? [] : ['no message was accepted while the server was away'],
});
