/**
 * `make drill-slow`: one worker takes 100 times as long as its peers. Messages wait in the queue, where its peers take them; the slow
 * one gets no more than it has slots for, and half of all messages do not notice that it is there.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { quantile } from '../../bench/figures.ts';
import { runDrill } from './drill.ts';
import type { Told } from './plan.ts';

const WORK_MS = 10;
const SLOWER = 100;
/** Of the messages that the slow one may have done: its 16 slots give it 16 a second of 200. */
const MOST_SHARE = 0.15;
/** From acceptance to the end, of half of them; on a machine that has much else to do, so many times what it is without a slow one. */
const MOST_P50_MS = 500;
const MOST_TIMES = 4;
const CALM_MS = 5_000;

/** When the slow one became slow. */
let slowSinceMs = Number.POSITIVE_INFINITY;

/** Of those that were accepted before or since, ascending; by the wall clock of one machine. */
function tookMs({ accepted, ended }: Told, when: 'before' | 'since'): readonly number[] {
  const took: number[] = [];
  for (const { taskId, atMs } of accepted) {
    const end = ended.get(taskId);
    if (end !== undefined && atMs >= slowSinceMs === (when === 'since')) took.push(end.atMs - atMs);
  }
  return took.sort((a, b) => a - b);
}

function slowShare({ accepted, ended, stage }: Told): number {
  const slow = stage.workers[0]?.agentId;
  const since = accepted.filter(({ atMs }) => atMs >= slowSinceMs);
  return since.filter(({ taskId }) => ended.get(taskId)?.by === slow).length / since.length;
}

await runDrill({
  name: 'slow',
  words: `one of three workers is ${SLOWER} times slower than its peers`,
  team: { workMs: WORK_MS },
  workers: 3,
  senders: 2,
  readsInboxes: true,
  submit: { ratePerSec: 200, count: 5_000 },
  faults: async (stage) => {
    const [victim] = stage.workers;
    if (victim === undefined) return;
    await sleep(CALM_MS);
    await stage.team.slowDown(victim, WORK_MS * (SLOWER - 1));
    slowSinceMs = Date.now();
    stage.say(`agent ${victim.agentId} is slow from now on`);
  },
  demands: () => ({ least: 2_000 }),
  expects: (told) => {
    const share = slowShare(told);
    const p50Ms = quantile(tookMs(told, 'since'), 0.5);
    const mostMs = Math.max(MOST_P50_MS, MOST_TIMES * quantile(tookMs(told, 'before'), 0.5));
    return [
      ...(share > 0 && share <= MOST_SHARE ? [] : [`the slow one did ${(share * 100).toFixed(1)} % of the messages`]),
      ...(p50Ms <= mostMs ? [] : [`half of the messages took more than ${p50Ms} ms`]),
    ];
  },
  more: (told) => ({
    slow_share: Math.round(slowShare(told) * 1_000) / 1_000,
    p50_before_ms: Math.round(quantile(tookMs(told, 'before'), 0.5)),
    p50_ms: Math.round(quantile(tookMs(told, 'since'), 0.5)),
    p99_ms: Math.round(quantile(tookMs(told, 'since'), 0.99)),
  }),
});
