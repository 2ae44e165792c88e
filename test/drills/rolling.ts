/**
 * `make drill-rolling`: everything is replaced, one thing after another, as in a rolling update, under 500 calls and 200 messages a
 * second: workers with their sidecars, callers' sidecars, both replicas of the control plane, nats-server. First all of them are asked
 * to stop (SIGTERM), then all are killed (SIGKILL). No call may fail, no message may be lost, and nothing may be done twice that is to
 * be done once. What counts as what stands in `rolling/judge.ts` and `messages/judge.ts`; the evidence is left under
 * `build/drill-rolling`.
 *
 * `DRILL_ROLL=w1,cp-1` replaces only these, under a fifth of the load, which is quicker and proves less: it ends with 1.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { onLeaving } from '../../deploy/local/signals.ts';
import { REPO } from '../support/paths.ts';
import { Generator } from './generator.ts';
import { broken } from './messages/conditions.ts';
import { leave, settle, wordsOf } from './messages/drill.ts';
import { readInboxes } from './messages/inboxes.ts';
import { judge, untoldOf } from './messages/judge.ts';
import { Outcomes } from './messages/outcomes.ts';
import type { Told } from './messages/plan.ts';
import { evidenceOf, keep, tableOf as messageTable } from './messages/report.ts';
import { Stage } from './messages/stage.ts';
import { Submitter } from './messages/submitter.ts';
import { figuresOf, type Phase, tableOf } from './phases.ts';
import { CALLERS, IN_HAND, RollingTeam, TARGETS, WORKERS } from './rolling/fleet.ts';
import { brokenRolling, type CallFigures, judgeCalls, type RollingEvidence } from './rolling/judge.ts';
import { type Agents, PASSES, type Roll, roll, victims } from './rolling/roll.ts';

const CONVERGE_MS = 30_000;
const SETTLE_MS = 60_000;
const MOST_RECOVERY_MS = 45_000;
const LEAST_CALLS = 10_000;
const LEAST_MESSAGES = 4_000;
/** Far above the usual; a drill that hangs is a drill that failed. */
const MOST_MS = 420_000;

/** Names of those that are replaced; null = all. */
const ONLY = process.env['DRILL_ROLL']?.split(',') ?? null;
const IS_SHORT = ONLY !== null;
const CALLS_PER_SEC = IS_SHORT ? 100 : 500;
const MESSAGES_PER_SEC = IS_SHORT ? 40 : 200;
const WARM_UP_PER_SEC = IS_SHORT ? 100 : 200;
const WARM_UP_MS = IS_SHORT ? 500 : 3_000;
const CALM_MS = IS_SHORT ? 500 : 2_000;

const team = new RollingTeam();
const stage = new Stage('rolling', team, WORKERS, CALLERS);

interface Played {
  readonly told: Told;
  readonly generator: Generator;
  readonly rolls: readonly Roll[];
  readonly phases: readonly Phase[];
  readonly figures: CallFigures;
  readonly words: readonly string[];
  readonly problems: readonly string[];
}

async function play(outcomes: Outcomes): Promise<Played> {
  const lanes = stage.gates();
  // A process that has just started runs slow code.
  const warmUp = new Generator(lanes, TARGETS, WARM_UP_PER_SEC);
  await sleep(WARM_UP_MS);
  await warmUp.end();
  const before = await team.picture();
  const generator = new Generator(lanes, TARGETS, CALLS_PER_SEC, { repeatsCut: true, from: WARM_UP_PER_SEC * WARM_UP_MS });
  const submitter = new Submitter({ gates: lanes, ratePerSec: MESSAGES_PER_SEC, count: Number.POSITIVE_INFINITY });
  stage.submitter = submitter;
  const phases: Phase[] = [{ name: 'all is well', fromMs: 0 }];
  await sleep(CALM_MS);
  const rolls = await rolled(generator, submitter, phases);
  phases.push({ name: 'all is well again', fromMs: generator.nowMs });
  await sleep(CALM_MS);
  phases.push({ name: 'the end', fromMs: generator.nowMs });
  submitter.stop();
  await Promise.all([generator.end(), submitter.end()]);
  const settlingAt = performance.now();
  await settle(submitter, outcomes, SETTLE_MS, stage);
  const settleMs = performance.now() - settlingAt;
  const after = await asBefore(before);
  const told = await toldOf(submitter, outcomes, settleMs);
  const { verdict } = told;
  const { calls, failures, turnedAway, cuts } = generator;
  const { figures, problems } = judgeCalls({ calls, failures, turnedAway, cuts, rolls, counted: told.counted.call });
  const words = [
    ...warmUp.failures.map((failure) => `before anything was replaced: ${failure.words}`),
    ...brokenRolling({
      calls,
      rolls,
      figures,
      messages: verdict,
      silences: submitter.silences,
      doubts: doubtsOf(told),
      before,
      after,
      demands: { leastCalls: LEAST_CALLS, leastMessages: LEAST_MESSAGES, inHand: IN_HAND },
    }),
    ...broken(verdict, told.left, told.untold, {
      least: 0,
      mostInDoubt: Number.POSITIVE_INFINITY,
      mostRecoveryMs: MOST_RECOVERY_MS,
      emptiesQueue: !team.natsVersion.startsWith('2.9.'),
      hits: ['under_way'],
    }),
    ...submitter.failures,
  ];
  return { told, generator, rolls, phases, figures, words, problems };
}

async function rolled(generator: Generator, submitter: Submitter, phases: Phase[]): Promise<Roll[]> {
  const rolls: Roll[] = [];
  const agents: Agents = {
    pause: (sidecar) => {
      generator.pause(sidecar);
      submitter.pause(sidecar);
    },
    resume: (sidecar) => {
      generator.resume(sidecar);
      submitter.resume(sidecar);
    },
  };
  for (const pass of PASSES)
    for (const victim of victims(stage, team, agents)) {
      if (ONLY !== null && !ONLY.includes(victim.what)) continue;
      phases.push({ name: `${pass} ${victim.what}`, fromMs: generator.nowMs });
      rolls.push(await roll(stage, victim, pass, () => generator.nowMs));
    }
  return rolls;
}

/** The fleet as it is in the end, as soon as it is as before. */
async function asBefore(before: string | null): Promise<string | null> {
  let last: string | null = null;
  try {
    await team.until('the fleet to be as before', CONVERGE_MS, async () => {
      last = await team.picture();
      return last !== null && last === before;
    });
  } catch {
    // told by the judge
  }
  return last;
}

async function toldOf(submitter: Submitter, outcomes: Outcomes, settleMs: number): Promise<Told> {
  const { accepted, inDoubt } = submitter;
  const left = await outcomes.left();
  const ended = new Map([...outcomes.all].reverse().map((outcome) => [outcome.taskId, outcome]));
  const untold = untoldOf(accepted, ended, await readInboxes(stage.gates()));
  const counted = await team.counted();
  const verdict = judge({ accepted, inDoubt, outcomes: outcomes.all, counted, faults: stage.faultsSeen });
  submitter.failures.push(...outcomes.strange);
  return { verdict, accepted, counted, submitter, stage, settleMs, left, untold, outcomes: outcomes.all, ended };
}

/** When the work was begun that is in doubt; what was never begun, as far as its worker knows, when that was said. */
function doubtsOf({ accepted, outcomes, counted }: Told): RollingEvidence['doubts'] {
  const numbers = new Map(accepted.map(({ taskId, n }) => [taskId, n]));
  return outcomes
    .filter(({ state }) => state === 'in_doubt')
    .map(({ taskId, atMs, by }) => ({
      atMs: counted.once.began?.[numbers.get(taskId) ?? -1] ?? atMs,
      sidecar: WORKERS.find(({ agentId }) => agentId === by)?.sidecar ?? '',
    }));
}

function lineFor(played: Played | null): Readonly<Record<string, unknown>> {
  if (played === null) return { drill: 'rolling', nats: team.natsVersion };
  const { told, figures, rolls } = played;
  const { figures: messages } = told.verdict;
  const { silences, inDoubt } = told.submitter;
  return {
    drill: 'rolling',
    ...figures,
    messages: messages.accepted,
    lost: messages.lost,
    once_started_twice: messages.once_started_twice,
    keyed_effects_wrong: messages.keyed_effects_wrong,
    results_per_key_over_one: messages.results_per_key_over_one,
    messages_failed: messages.failed + messages.dead,
    ambiguous: messages.in_doubt + inDoubt.size,
    in_doubt: messages.in_doubt,
    unanswered: silences.length,
    untold: told.untold,
    left: told.left?.messages ?? null,
    recovery_ms: messages.recovery_ms,
    replaced: rolls.length,
    nats: team.natsVersion,
  };
}

function tell({ told, generator, phases }: Played): string {
  const { calls, failures } = generator;
  const table = tableOf(figuresOf(phases.slice(0, -1), (phases.at(-1) as Phase).fromMs, calls, failures));
  return `${table}\n\n${messageTable(told)}`;
}

function keepAll(played: Played | null, words: readonly string[], text: string, line: Readonly<Record<string, unknown>>): void {
  keep(stage, played?.told ?? null, words, text, line);
  if (played === null) return;
  const folder = join(REPO, evidenceOf(stage));
  const { generator, rolls, problems } = played;
  const { calls, failures, turnedAway, cuts } = generator;
  writeFileSync(join(folder, 'calls.jsonl'), calls.map((call) => JSON.stringify(call)).join('\n'));
  writeFileSync(join(folder, 'calls.json'), JSON.stringify({ rolls, problems, failures, turnedAway, cuts }, null, 1));
}

async function late(): Promise<null> {
  await sleep(MOST_MS, undefined, { ref: false });
  return null;
}

async function main(): Promise<void> {
  onLeaving((status) => void team.stop().then(() => process.exit(status)));
  for (const event of ['uncaughtException', 'unhandledRejection'] as const)
    process.on(event, (error: unknown) => void leave(stage, [`a fault of the drill itself: ${wordsOf(error)}`], lineFor(null)));
  const words: string[] = [];
  let played: Played | null = null;
  let outcomes: Outcomes | null = null;
  try {
    await team.start([...WORKERS, ...CALLERS], (line) => stage.say(line));
    stage.say(
      `${CALLS_PER_SEC} calls and ${MESSAGES_PER_SEC} messages a second; each is replaced in turn, first with SIGTERM, then with SIGKILL`,
    );
    outcomes = await Outcomes.open(team.registry.nats.url);
    played = await Promise.race([play(outcomes), late()]);
    if (played === null) words.push(`it was not through after ${MOST_MS / 1_000} s`);
    else words.push(...played.words);
  } catch (error) {
    words.push(`it broke off: ${wordsOf(error)}`);
  }
  await outcomes?.close();
  const casualties = team.casualties();
  if (casualties !== null) words.push(casualties);
  const line = lineFor(played);
  const text = played === null ? '' : tell(played);
  if (text !== '') process.stdout.write(`\n${text}\n\n`);
  for (const each of words) process.stdout.write(`  !! ${each}\n`);
  for (const each of [...(played?.problems ?? []), ...(played?.told.verdict.problems ?? [])]) process.stdout.write(`     ${each}\n`);
  try {
    keepAll(played, words, text, line);
  } catch (error) {
    words.push(`the evidence could not be kept: ${wordsOf(error)}`);
    process.stdout.write(`  !! ${words.at(-1)}\n`);
  }
  await leave(stage, words, line);
}

await main();
