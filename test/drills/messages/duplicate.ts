/**
 * `make drill-duplicate`: every message is submitted three times with one key, through two sidecars, while agents, sidecars and the
 * nats-server are killed and started again: most of them with so much time between that something is killed meanwhile, every fourth
 * one at once. Each submission has its own task and gets its own end; the work is done for one, and the others are told its result.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Member } from '../../../deploy/local/roster.ts';
import { runDrill } from './drill.ts';
import { PER_PROVIDER } from './team.ts';

const COPIES = 3;
const MESSAGES = 20_000;
const PAUSE_MS = 4_000;
/** Longer than from one kill to the next. */
const APART_MS = 6_000;
const AWAY_MS = 800;
/** One agent that is known at both sidecars: the same key of two agents would be two keys. */
const BOTH = { agent: 'drill.sender.both', token: 'token-of-the-agent-at-both' };

await runDrill({
  name: 'duplicate',
  words: `every message is submitted ${COPIES} times through two sidecars; agents, sidecars and nats-server are killed in turn`,
  team: { workMs: 10, callers: [BOTH] },
  workers: 3,
  senders: 2,
  submit: { ratePerSec: 170, count: MESSAGES, copies: COPIES, apartMs: APART_MS },
  gates: (stage) => stage.gates().map((gate) => ({ ...gate, token: BOTH.token })),
  faults: async (stage) => {
    const { team } = stage;
    for (let i = 0; !stage.isThrough; i++) {
      await sleep(PAUSE_MS);
      const worker = stage.workers[i % stage.workers.length] as Member;
      const sender = stage.senders[i % stage.senders.length] as Member;
      if (i % 4 === 0) {
        stage.fault(`agent ${worker.agentId} is killed`);
        await team.kill(worker);
        await sleep(AWAY_MS);
        await team.restartAgent(worker);
      } else if (i % 4 === 1 || i % 4 === 2) {
        const victim = i % 4 === 1 ? worker : sender;
        stage.fault(`sidecar ${victim.sidecar} is killed`);
        await team.killSidecar(victim);
        await sleep(AWAY_MS);
        await team.restartSidecar(victim);
      } else {
        stage.strike('nats-server is killed');
        await stage.nats.kill();
        await stage.nats.restart();
        stage.back('it is back');
      }
    }
  },
  // What is in doubt is so for each submission.
  demands: ({ faultsSeen }) => ({
    least: MESSAGES * COPIES,
    mostInDoubt: faultsSeen.length * PER_PROVIDER * COPIES,
    hits: ['under_way', 'idempotent_restarted', 'keyed_restarted'],
  }),
  expects: ({ accepted, verdict }) =>
    verdict.kinds.keyed.replayed + verdict.kinds.idempotent.replayed < accepted.length / 3
      ? ['most submissions of a key were not told the result of the first one']
      : [],
  more: ({ verdict: { kinds } }) => ({ replayed: kinds.keyed.replayed + kinds.idempotent.replayed + kinds.once.replayed }),
});
