/**
 * (c) The knowledge agent still answers, but slowly. No call fails, so a failure count would see nothing; the sidecar that
 * hosts it opens its breaker on slowness, callers get the fallback's own text at once, and the agent is left in peace
 * until a probe finds it well again.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { inParallel, type Result } from '../client.ts';
import { KNOWLEDGE } from '../roster.ts';
import type { Storyteller } from '../story.ts';
import type { Team } from '../team.ts';
import { callFrom, type Counts, outcome } from './scene.ts';

const CAPABILITY = 'kb.article.search';
const DELAY_MS = 350;
const WIDTH = 3;
const MOST_SLOW_CALLS = 30;
const WHILE_OPEN = 10;
const RECOVERY_MS = 12_000;

export async function slowBreaker(team: Team, tell: Storyteller): Promise<Counts> {
  const search = (): Promise<Result> => callFrom(team, CAPABILITY, { question: 'Why has it not shipped?' }, 'slow-1');
  const before = await search();
  tell.check('before', outcome(before), 'an answer of the agent itself', before.code === 0 && !before.degraded);
  await team.slowDown(KNOWLEDGE, DELAY_MS);
  tell.say(`${KNOWLEDGE.agentId} now takes ${DELAY_MS} ms more; its breaker calls 200 ms slow`);

  const results: Result[] = [];
  const at = performance.now();
  await inParallel(Array.from({ length: MOST_SLOW_CALLS }), WIDTH, async () => {
    if (results.some((result) => result.degraded)) return;
    results.push(await search());
  });
  const openedAfterMs = performance.now() - at;
  const slow = results.filter((result) => !result.degraded);
  const failed = results.filter((result) => result.code !== 0);
  tell.say(
    `${slow.length} slow answers, ${failed.length} failures, then the breaker opened, after ${(openedAfterMs / 1_000).toFixed(1)} s; its host says:`,
  );
  const hostSays = await explainedByHost(team);
  tell.say(`  ${hostSays}`);
  tell.check(
    'what the host says',
    hostSays,
    'breaker open, for slowness',
    /breaker open/.test(hostSays) && /took longer than 200 ms/.test(hostSays),
  );
  tell.equal('failed calls', failed.map(outcome), []);

  const executed = (await team.counts(KNOWLEDGE))[CAPABILITY] ?? 0;
  const first = await search();
  const degraded = [first, ...(await Promise.all(Array.from({ length: WHILE_OPEN - 1 }, search)))];
  const executedWhileOpen = ((await team.counts(KNOWLEDGE))[CAPABILITY] ?? 0) - executed;
  const slowestMs = Math.max(...degraded.map((result) => result.elapsed_ms));
  tell.say(
    `${WHILE_OPEN} calls while open: "${textOf(first)}" (degraded: ${first.degraded}, slowest ${slowestMs.toFixed(1)} ms); the agent was asked ${executedWhileOpen} times`,
  );
  const last = degraded.at(-1) as Result;
  tell.say("the caller's own sidecar has been told, and sends no more:");
  tell.reasons(last, ['choose', 'attempt', 'fallback']);
  tell.check(
    'answers while open',
    degraded.map(outcome),
    'all degraded, with the text of the fallback',
    degraded.every((result) => result.code === 0 && result.degraded && textOf(result).startsWith('Our help pages are slow')),
  );
  tell.equal('executions while open', executedWhileOpen, 0);
  tell.equal('attempts of the last call while open', last.attempts.length, 0);
  tell.check('slowest answer while open', slowestMs, `under the ${DELAY_MS} ms of the slow agent`, slowestMs < DELAY_MS);

  await team.slowDown(KNOWLEDGE, 0);
  const recoveredMs = await recovered(search);
  tell.check('recovery', recoveredMs, `an answer of the agent itself within ${RECOVERY_MS} ms`, recoveredMs !== null);
  if (recoveredMs !== null) tell.say(`quick again: a probe found out, ${(recoveredMs / 1_000).toFixed(1)} s later it serves`);
  return {
    slow_calls: slow.length,
    degraded_answers: degraded.filter((result) => result.degraded).length,
    calls_while_open: executedWhileOpen,
  };
}

interface Explanation {
  readonly candidates?: readonly { readonly agent_id: string; readonly because: string }[];
}

/** The breaker stands where the traffic of all callers meets: at the sidecar that hosts the agent. */
async function explainedByHost(team: Team): Promise<string> {
  const explanation = await team.seat(KNOWLEDGE).client.get<Explanation>(`/v1/explain/${CAPABILITY}`);
  const candidate = explanation.candidates?.find((one) => one.agent_id === KNOWLEDGE.agentId);
  return candidate === undefined ? JSON.stringify(explanation) : `${candidate.agent_id}: ${candidate.because}`;
}

async function recovered(search: () => Promise<Result>): Promise<number | null> {
  const at = performance.now();
  while (performance.now() - at < RECOVERY_MS) {
    const result = await search();
    if (result.code === 0 && !result.degraded) return performance.now() - at;
    await sleep(100);
  }
  return null;
}

function textOf(result: Result): string {
  return (result.data as { text?: string } | null)?.text ?? '';
}
