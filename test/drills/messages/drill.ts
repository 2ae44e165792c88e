/**
 * The frame of a drill with messages: a team of real processes is started, messages are submitted at a fixed rate, faults come while
 * they are, everything is left to settle, and what senders were told and workers wrote is judged. Prints a table and one line of
 * JSON; the evidence stays under `build/drill-<name>`. A drill says its faults and what it expects beyond that; nothing else.
 */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Member } from '../../../deploy/local/roster.ts';
import { onLeaving } from '../../../deploy/local/signals.ts';
import { REPO } from '../../support/paths.ts';
import { judge, type KindFigures, type Verdict } from './judge.ts';
import { type Outcome, Outcomes } from './outcomes.ts';
import { type Accepted, type Gate, type SubmitOptions, Submitter } from './submitter.ts';
import { type Counted, KINDS, MessageTeam, PER_PROVIDER, QUOTA, sender, type TeamOptions, worker } from './team.ts';

export interface Plan {
  readonly name: string;
  /** What is done to the fleet, in one sentence. */
  readonly words: string;
  readonly team: TeamOptions;
  readonly workers: number;
  readonly senders: number;
  readonly submit: Pick<SubmitOptions, 'ratePerSec' | 'count' | 'kinds' | 'copies' | 'givesUp' | 'headers' | 'connections'>;
  /** Quotas in words, when they are others. */
  readonly quota?: string;
  /** Gates other than one for each sender's sidecar. */
  readonly gates?: (stage: Stage) => readonly Gate[];
  /** Called when messages flow; returns when no more faults come. */
  readonly faults: (stage: Stage) => Promise<void>;
  /** How long everything may take to settle after the last submission. */
  readonly settleMs?: number;
  /** Further words when something is not as it must be. */
  readonly expects?: (outcome: Told) => readonly string[];
  readonly more?: (outcome: Told) => Readonly<Record<string, unknown>>;
}

export interface Told {
  readonly verdict: Verdict;
  readonly accepted: readonly Accepted[];
  readonly counted: Counted;
  readonly submitter: Submitter;
  readonly stage: Stage;
  readonly settleMs: number;
  /** The first end of each task. */
  readonly ended: ReadonlyMap<string, Outcome>;
}

const SETTLE_MS = 150_000;
const QUIET_LOOK_MS = 250;
/** What is told after the queue is empty: events under way. */
const LAST_WORDS_MS = 15_000;

export class Stage {
  readonly team: MessageTeam;
  readonly workers: readonly Member[];
  readonly senders: readonly Member[];
  readonly faultsSeen: { readonly what: string; readonly atMs: number }[] = [];
  submitter: Submitter | null = null;
  readonly #startedAt = performance.now();

  constructor(team: MessageTeam, workers: readonly Member[], senders: readonly Member[]) {
    this.team = team;
    this.workers = workers;
    this.senders = senders;
  }

  /** Notes it with its time and says it. */
  fault(what: string): void {
    this.faultsSeen.push({ what, atMs: Date.now() });
    this.say(what);
  }

  say(words: string): void {
    const at = ((performance.now() - this.#startedAt) / 1_000).toFixed(1).padStart(6);
    process.stdout.write(`${at} s  ${words}\n`);
  }

  /** More than this share of the messages has been sent. */
  get isNearlyThrough(): boolean {
    const { submitter } = this;
    return submitter === null || submitter.isThrough;
  }

  get nats(): { kill(): Promise<void>; restart(): Promise<void>; pause(): void; resume(): void } {
    const { process: server } = this.team.registry.nats;
    if (server === null) throw new Error('this nats-server is not ours');
    return server;
  }

  gates(): Gate[] {
    return this.senders.map((member) => {
      const { place } = this.team.seat(member);
      return { name: member.sidecar, url: `http://${place.listen}`, token: place.token };
    });
  }

  /** A process that a drill kills, or that kills itself, has not failed. */
  expectEnd(member: Member): void {
    this.team.seat(member).sidecar.expected = true;
  }
}

export async function runDrill(plan: Plan): Promise<void> {
  const evidence = join(REPO, 'build', `drill-${plan.name}`);
  const workers = Array.from({ length: plan.workers }, (_, i) => worker(`w${i + 1}`));
  const senders = Array.from({ length: plan.senders }, (_, i) => sender(`s${i + 1}`));
  const team = new MessageTeam(plan.team);
  onLeaving((status) => void team.stop().then(() => process.exit(status)));
  const stage = new Stage(team, workers, senders);
  const problems: string[] = [];
  let told: Told | null = null;
  try {
    await team.start([...workers, ...senders], (line) => stage.say(line));
    stage.say(`${plan.words}; quota of a sender ${plan.quota ?? QUOTA}, ${PER_PROVIDER} at a time for each worker`);
    told = await play(plan, stage);
    problems.push(...wrongs(told), ...(plan.expects?.(told) ?? []), ...told.submitter.failures);
  } catch (error) {
    problems.push(`it broke off: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
  }
  const casualties = team.casualties();
  if (casualties !== null) problems.push(casualties);
  const line = told === null ? { drill: plan.name } : lineOf(plan, told);
  const text = told === null ? '' : tableOf(told);
  if (text !== '') process.stdout.write(`\n${text}\n\n`);
  for (const words of problems) process.stdout.write(`  !! ${words}\n`);
  for (const words of told?.verdict.problems ?? []) process.stdout.write(`     ${words}\n`);
  keep(evidence, stage, told, problems, text, line);
  const killed = await team.stop();
  if (killed.length > 0) {
    problems.push(`did not stop when asked and had to be killed: ${killed.join(', ')}`);
    process.stdout.write(`  !! ${problems.at(-1)}\n`);
  }
  const last = `evidence: build/drill-${plan.name}\n${JSON.stringify(line)}\n`;
  process.stdout.write(last, () => process.exit(problems.length === 0 ? 0 : 1));
}

async function play(plan: Plan, stage: Stage): Promise<Told> {
  const { team } = stage;
  const outcomes = await Outcomes.open(team.registry.nats.url);
  try {
    const submitter = new Submitter({ gates: plan.gates?.(stage) ?? stage.gates(), ...plan.submit, count: countOf(plan) });
    stage.submitter = submitter;
    await Promise.all([plan.faults(stage), submitter.end()]);
    stage.say(`all ${submitter.sent} messages are submitted, ${submitter.accepted.length} accepted, the last faults are over`);
    const settlingAt = performance.now();
    await settle(submitter, outcomes, plan.settleMs ?? SETTLE_MS, stage);
    const settleMs = performance.now() - settlingAt;
    const counted = await team.counted();
    const { accepted, inDoubt } = submitter;
    const verdict = judge({ accepted, inDoubt, outcomes: outcomes.all, counted, faults: stage.faultsSeen });
    const ended = new Map([...outcomes.all].reverse().map((outcome) => [outcome.taskId, outcome]));
    return { verdict, accepted, counted, submitter, stage, settleMs, ended };
  } finally {
    await outcomes.close();
  }
}

/** `DRILL_COUNT` makes a drill shorter while it is worked on; a verdict needs all of it. */
function countOf({ submit: { count } }: Plan): number {
  return Number(process.env['DRILL_COUNT'] ?? count);
}

/** Until every accepted message has its end, or the time is up; then whatever else is told is waited for. */
async function settle({ accepted }: Submitter, outcomes: Outcomes, withinMs: number, stage: Stage): Promise<void> {
  const end = performance.now() + withinMs;
  let saidAt = performance.now();
  for (;;) {
    const missing = accepted.filter(({ taskId }) => !outcomes.tasks.has(taskId)).length;
    if (missing === 0) break;
    if (performance.now() > end) {
      stage.say(`${missing} have no end after ${withinMs / 1_000} s; ${String(await outcomes.queued())} are in the queue`);
      break;
    }
    if (performance.now() - saidAt > 10_000) {
      saidAt = performance.now();
      stage.say(`${missing} have no end yet, ${String(await outcomes.queued())} are in the queue`);
    }
    await sleep(QUIET_LOOK_MS);
  }
  const last = performance.now() + LAST_WORDS_MS;
  while ((await outcomes.queued()) !== 0 && performance.now() < last) await sleep(QUIET_LOOK_MS);
  await sleep(QUIET_LOOK_MS * 2);
}

function wrongs({ verdict: { figures } }: Told): string[] {
  const words: string[] = [];
  for (const field of ['lost', 'keyed_effects_wrong', 'once_started_twice', 'results_per_key_over_one'] as const)
    if (figures[field] !== 0) words.push(`${field}: ${figures[field]}`);
  if (figures.retried_ok_ratio < 0.999) words.push(`retried_ok_ratio: ${figures.retried_ok_ratio}`);
  if (figures.accepted === 0) words.push('nothing was accepted');
  return words;
}

function lineOf(plan: Plan, told: Told): Readonly<Record<string, unknown>> {
  return { drill: plan.name, ...told.verdict.figures, ...plan.more?.(told) };
}

const HEAD = ['kind', 'accepted', 'done', 'dead', 'in doubt', 'failed', 'lost', 'replayed', 'restarted'] as const;

function tableOf({ verdict, submitter, settleMs }: Told): string {
  const cells = (one: KindFigures): readonly number[] => [
    one.accepted,
    one.done,
    one.dead,
    one.inDoubt,
    one.failed,
    one.lost,
    one.replayed,
    one.restarted,
  ];
  const rows = [HEAD as readonly string[], ...KINDS.map((kind) => [kind, ...cells(verdict.kinds[kind]).map(String)])];
  const widths = HEAD.map((_, i) => Math.max(...rows.map((row) => (row[i] as string).length)));
  const table = rows.map((row) =>
    row.map((cell, i) => (i === 0 ? cell.padEnd(widths[i] as number) : cell.padStart(widths[i] as number))).join('  '),
  );
  const onDisk = submitter.accepted.filter(({ durable }) => durable === 'local-disk').length;
  const refusals = Object.entries(submitter.refusals).map(([code, count]) => `${count} × ${code}`);
  return [
    ...table,
    '',
    `${onDisk} were accepted onto a sender's disk; refused: ${refusals.join(', ') || 'none'}; not answered: ${submitter.inDoubt.size}; settled after ${(settleMs / 1_000).toFixed(1)} s`,
  ].join('\n');
}

function keep(folder: string, stage: Stage, told: Told | null, problems: readonly string[], text: string, line: unknown): void {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  for (const [i, { name, pid, said }] of stage.team.logs().entries())
    writeFileSync(join(folder, `${String(i).padStart(2, '0')}-${name.replace(/[^a-z0-9.-]+/gi, '-')}-${pid}.log`), said);
  writeFileSync(join(folder, 'nats-server.log'), stage.team.registryLog());
  writeFileSync(join(folder, 'report.txt'), `${text}\n${JSON.stringify(line)}\n`);
  const facts = { faults: stage.faultsSeen, problems, verdict: told?.verdict ?? null, refusals: told?.submitter.refusals ?? null };
  writeFileSync(join(folder, 'facts.json'), JSON.stringify(facts, null, 2));
  if (told === null) return;
  writeFileSync(join(folder, 'accepted.jsonl'), told.accepted.map((one) => JSON.stringify(one)).join('\n'));
  writeFileSync(join(folder, 'written-by-workers.json'), JSON.stringify(told.counted));
}
