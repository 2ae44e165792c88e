/**
 * The judges of the drills are tried here: a small run of the real worker, killed in the midst of its work, gives evidence in which
 * nothing is wrong; then it is falsified in one place at a time, and each falsification must be seen.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { pythonPath } from '../../../deploy/local/python.ts';
import { treeFile } from '../../../deploy/local/tree.ts';
import { broken, type Demands, type Left } from '../../drills/messages/conditions.ts';
import { tellingOf } from '../../drills/messages/inboxes.ts';
import { type Evidence, judge, untoldOf } from '../../drills/messages/judge.ts';
import type { Outcome } from '../../drills/messages/outcomes.ts';
import type { Accepted } from '../../drills/messages/submitter.ts';
import { type Counted, type Kind, KINDS } from '../../drills/messages/team.ts';
import { waitUntil } from '../../support/settle.ts';
import { freePort } from '../../support/sockets.ts';

const WORKER = treeFile('test', 'drills', 'messages', 'worker.py');
const AGENT = 'drill.worker.w1';
const WORK_MS = 400;
/** So many are done; three more are in hand when the worker is killed. */
const DONE = 9;
const [KEYED, IDEMPOTENT, ONCE] = [DONE, DONE + 1, DONE + 2];

const message = (n: number, more: Partial<Accepted> = {}): Accepted => {
  const kind = KINDS[n % KINDS.length] as Kind;
  return {
    n,
    kind,
    taskId: `t${n}`,
    key: kind === 'keyed' ? `k${n}` : '',
    durable: 'stream',
    gate: 's1',
    atMs: 1_000 + n,
    tookMs: 1,
    ...more,
  };
};

const end = (n: number, answer: string, more: Partial<Outcome> = {}): Outcome => ({
  taskId: `t${n}`,
  powerId: `k${n}`,
  capability: `drill.${KINDS[n % KINDS.length]}.do`,
  state: 'done',
  code: 0,
  cause: '',
  by: AGENT,
  attempts: 1,
  replay: false,
  answer,
  atMs: 1_500,
  ...more,
});

async function start(folder: string, port: number): Promise<ChildProcess> {
  const env = { ...process.env, DRILL_FOLDER: folder, DRILL_WORK_MS: String(WORK_MS), AGENT_ID: AGENT, AGENT_PORT: String(port) };
  const child = spawn(pythonPath(), [WORKER], { env, stdio: 'ignore' });
  await waitUntil('the worker', async () => (await fetch(`http://127.0.0.1:${port}/_count`).catch(() => null))?.ok === true);
  return child;
}

async function killed(child: ChildProcess): Promise<void> {
  child.kill('SIGKILL');
  await once(child, 'exit');
}

async function work(port: number, n: number): Promise<string> {
  const answer = await fetch(`http://127.0.0.1:${port}/drill.${KINDS[n % KINDS.length]}.do`, {
    method: 'POST',
    headers: { 'idempotency-key': `k${n}` },
    body: JSON.stringify({ n }),
  });
  return await answer.text();
}

async function counted(folder: string): Promise<Counted> {
  const { stdout } = await promisify(execFile)(pythonPath(), [WORKER, '--count', folder]);
  return JSON.parse(stdout) as Counted;
}

async function sql(folder: string, statement: string): Promise<void> {
  const program = 'import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()';
  await promisify(execFile)(pythonPath(), ['-c', program, join(folder, 'effects.sqlite'), statement]);
}

/** A run in which nothing goes wrong but that the worker is killed with three messages in hand, of which two are tried again. */
async function run(t: Test, folder: string): Promise<Evidence> {
  const port = await freePort();
  const first = await start(folder, port);
  t.teardown(() => first.kill('SIGKILL'));
  const numbers = Array.from({ length: DONE }, (_, n) => n);
  const outcomes = await Promise.all(numbers.map(async (n) => end(n, await work(port, n))));
  for (const n of [KEYED, IDEMPOTENT, ONCE]) work(port, n).catch(() => null);
  // Half-way through is where keyed work has its effect.
  await sleep(WORK_MS * 0.75);
  await killed(first);
  const second = await start(folder, port);
  t.teardown(() => second.kill('SIGKILL'));
  const again = { attempts: 2, atMs: 3_000 };
  outcomes.push(end(KEYED, await work(port, KEYED), again), end(IDEMPOTENT, await work(port, IDEMPOTENT), again));
  outcomes.push(end(ONCE, '', { state: 'in_doubt', atMs: 3_000 }));
  await killed(second);
  const accepted = [...numbers, KEYED, IDEMPOTENT, ONCE].map((n) => message(n));
  const faults = [{ what: 'the worker is killed', atMs: 2_000, kind: 'both' as const }];
  return { accepted, inDoubt: new Set(), outcomes, counted: await counted(folder), faults };
}

const NOTHING: Counted = {
  keyed: { starts: {}, ends: {}, effects: {} },
  idempotent: { starts: {}, ends: {} },
  once: { starts: {}, ends: {} },
};
const EMPTY: Left = { messages: 0, counted: 0 };
const DEMANDS: Demands = {
  least: DONE + 3,
  mostInDoubt: 1,
  mostRecoveryMs: 1_000,
  emptiesQueue: true,
  hits: ['idempotent_restarted', 'keyed_restarted', 'in_doubt', 'interrupted', 'retried', 'under_way'],
};

type Changed = (outcome: Outcome) => readonly Outcome[];
const change =
  (n: number, changed: Changed) =>
  (evidence: Evidence): Evidence => ({
    ...evidence,
    outcomes: evidence.outcomes.flatMap((outcome) => (outcome.taskId === `t${n}` ? changed(outcome) : [outcome])),
  });

/** One falsification of what senders were told or what was accepted, and the words that must come of it. */
const TOLD: readonly (readonly [string, (evidence: Evidence) => Evidence, RegExp])[] = [
  ['an end is missing', change(4, () => []), /lost: 1/],
  ['a result is missing', change(3, (one) => [{ ...one, answer: '' }]), /lost: 1/],
  ['a result is that of another message', change(4, (one) => [{ ...one, answer: '{"n":1}' }]), /lost: 1/],
  [
    'two messages got one task',
    (e) => ({ ...e, accepted: e.accepted.map((one) => ({ ...one, taskId: one.n === 5 ? 't8' : one.taskId })) }),
    /lost: 2/,
  ],
  ['an end is told twice', change(5, (one) => [one, one]), /results_per_key_over_one: 1/],
  ['a task has two ends', change(ONCE, (one) => [one, { ...one, state: 'done' }]), /results_per_key_over_one: 1/],
  ['a key has a second result of its own', change(0, (one) => [one, { ...one, taskId: 'twin' }]), /results_per_key_over_one: 1/],
  [
    'a replay is another result',
    change(0, (one) => [one, { ...one, taskId: 'twin', replay: true, answer: '{"n":0,"run":"another"}' }]),
    /results_per_key_over_one: 1/,
  ],
  ['work failed that nothing was wrong with', change(1, (one) => [{ ...one, state: 'failed', code: 6001 }]), /failed: 1/],
  ['a message died of its tries', change(IDEMPOTENT, (one) => [{ ...one, state: 'dead_lettered' }]), /retried_ok_ratio: 0\.5/],
  ['idempotent work is in doubt', change(1, (one) => [{ ...one, state: 'in_doubt' }]), /1 of idempotent work are in doubt/],
  ['keyed work is in doubt', change(0, (one) => [{ ...one, state: 'in_doubt' }]), /1 of keyed work are in doubt/],
  ['more is in doubt than was in hand', change(2, (one) => [{ ...one, state: 'in_doubt' }]), /2 of once work are in doubt/],
  ['a message ended late', change(KEYED, (one) => [{ ...one, atMs: 3_001 }]), /recovery_ms: 1001/],
  ['few were accepted', (e) => ({ ...e, accepted: e.accepted.slice(1) }), /only 11 messages were accepted/],
  ['nothing was tried again', (e) => ({ ...e, outcomes: e.outcomes.map((one) => ({ ...one, attempts: 1 })) }), /retried is 0/],
  [
    'the fault came when nothing was under way',
    (e) => ({ ...e, faults: [{ what: 'late', atMs: 4_000, kind: 'strike' }] }),
    /at 1 of 1 faults/,
  ],
];

/** One falsification of what a worker wrote. */
const WRITTEN: readonly (readonly [string, (folder: string) => void | Promise<void>, RegExp])[] = [
  ['once work that is done was not done', (folder) => without(folder, 'once', 'e 2'), /lost: 1/],
  ['idempotent work that is done was not done', (folder) => without(folder, 'idempotent', 'e 1'), /lost: 1/],
  ['a keyed effect is missing', (folder) => sql(folder, 'DELETE FROM effects WHERE n = 3'), /keyed_effects_wrong: 1/],
  [
    'a keyed effect is there twice',
    (folder) => sql(folder, 'INSERT INTO effects (key, n, by) SELECT key, n, by FROM effects WHERE n = 3'),
    /keyed_effects_wrong: 1/,
  ],
  ['once work was started twice', (folder) => appendFileSync(join(folder, `${AGENT}.once`), 's 5\n'), /once_started_twice: 1/],
  [
    'what is in doubt was started again by another worker',
    (folder) => writeFileSync(join(folder, 'drill.worker.w2.once'), `s ${ONCE}\ne ${ONCE}\n`),
    /once_started_twice: 1/,
  ],
  ['no idempotent work was started again', (folder) => without(folder, 'idempotent', `s ${IDEMPOTENT}`), /idempotent_restarted is 0/],
  ['no keyed work was started again', (folder) => without(folder, 'keyed', `s ${KEYED}`), /keyed_restarted is 0/],
  [
    'nobody was killed in the midst of work',
    (folder) => KINDS.forEach((kind) => without(folder, kind, /^s (9|10|11)$/)),
    /interrupted is 0/,
  ],
];

/** Takes lines out of what a worker wrote; where several are alike, the first. */
function without(folder: string, kind: Kind, line: string | RegExp): void {
  const file = join(folder, `${AGENT}.${kind}`);
  const lines = readFileSync(file, 'utf8').split('\n');
  const index = lines.findIndex((each) => (typeof line === 'string' ? each === line : line.test(each)));
  if (index < 0) throw new Error(`${kind} has no such line`);
  writeFileSync(file, lines.toSpliced(index, 1).join('\n'));
}

t.test('A drill whose worker was killed, and in which nothing went wrong', { timeout: 60_000 }, async (t) => {
  const folder = t.testdir({ run: {} });
  const real = join(folder, 'run');
  const evidence = await run(t, real);
  const words = (falsified: Evidence, left: Left = EMPTY): string => broken(judge(falsified), left, 0, DEMANDS).join('\n');

  await t.test('is passed, with every message counted where it belongs', async (t) => {
    const { figures, kinds, problems } = judge(evidence);
    t.equal(words(evidence), '');
    t.strictSame(problems, []);
    t.match(figures, {
      accepted: 12,
      done: 11,
      dead: 0,
      in_doubt: 1,
      failed: 0,
      lost: 0,
      keyed_effects_wrong: 0,
      once_started_twice: 0,
      results_per_key_over_one: 0,
      idempotent_restarted: 1,
      retried_ok_ratio: 1,
      recovery_ms: 1_000,
      retried: 2,
      keyed_restarted: 1,
      interrupted: 3,
      under_way: 3,
      idle_strikes: 0,
    });
    t.match(kinds, { keyed: { accepted: 4, restarted: 1 }, idempotent: { done: 4 }, once: { done: 3, inDoubt: 1, interrupted: 1 } });
  });

  for (const [name, falsify, seen] of TOLD)
    await t.test(`is not, when ${name}`, async (t) => {
      t.match(words(falsify(evidence)), seen);
    });

  for (const [i, [name, falsify, seen]] of WRITTEN.entries())
    await t.test(`is not, when ${name}`, async (t) => {
      const copy = join(folder, `copy-${i}`);
      cpSync(real, copy, { recursive: true });
      await falsify(copy);
      t.match(words({ ...evidence, counted: await counted(copy) }), seen);
    });

  await t.test('is not, when something is left in the queue, or nobody can say', async (t) => {
    t.match(words(evidence, { messages: 2, counted: 2 }), /2 messages are left in the queue/);
    t.equal(words(evidence, { messages: 0, counted: 3 }), '', 'what the server only counts there is nothing');
    t.match(words(evidence, null), /could not be found out/);
    const old = { ...DEMANDS, emptiesQueue: false };
    t.strictSame(broken(judge(evidence), { messages: 2, counted: 2 }, 0, old), [], 'a server of 2.9 keeps what nobody is given again');
  });

  await t.test('is passed, when other submissions of a key are told the same result as a replay', async (t) => {
    const twin = { ...message(0), taskId: 'twin' };
    const told = change(0, (one) => [one, { ...one, taskId: 'twin', replay: true }])(evidence);
    t.equal(words({ ...told, accepted: [...told.accepted, twin] }), '');
  });
});

t.test('An end that its sender reads otherwise, or not at all, in its inbox is untold', async (t) => {
  const accepted = [0, 1, 2, 3].map((n) => message(n));
  const ended = new Map([end(0, '{"n":0}'), end(1, '{"n":1}'), end(2, '', { state: 'in_doubt' })].map((one) => [one.taskId, one]));
  const read = [
    ['t0', tellingOf('done', { n: 0 })],
    ['t1', tellingOf('done', { n: 1 })],
    ['t2', tellingOf('in_doubt', null)],
  ] as const;
  t.equal(untoldOf(accepted, ended, new Map(read)), 0, 'one without an end is lost, not untold');
  t.equal(untoldOf(accepted, ended, new Map(read.slice(1))), 1);
  t.equal(untoldOf(accepted, ended, new Map([...read, ['t1', tellingOf('done', null)]])), 1);
  t.equal(untoldOf(accepted, ended, new Map([...read, ['t2', tellingOf('done', null)]])), 1);
  const nothing = { ...judge({ accepted: [], inDoubt: new Set(), outcomes: [], counted: NOTHING, faults: [] }) };
  t.match(broken(nothing, EMPTY, 3, { ...DEMANDS, hits: [], least: 0 }), ['3 ends are not what their sender reads in its inbox']);
});

t.test('What nobody answered may have been carried out once, and not twice', async (t) => {
  const nothing = { starts: {}, ends: {} };
  const once = { starts: { 1: 1, 2: 2 }, ends: {} };
  const all = { keyed: { ...nothing, effects: { 3: 2 } }, idempotent: nothing, once };
  const { figures } = judge({ accepted: [], inDoubt: new Set([1, 2]), outcomes: [], counted: all, faults: [] });
  t.match(figures, { once_started_twice: 1, keyed_effects_wrong: 1 });
});

t.test('Recovery is from the last moment before the end at which it could begin, for what was accepted before', async (t) => {
  const nothing = { starts: {}, ends: {} };
  const { figures } = judge({
    accepted: [message(2), message(5, { atMs: 2_500 })],
    inDoubt: new Set(),
    outcomes: [end(2, '{"n":2}', { atMs: 2_300 }), end(5, '{"n":5}', { atMs: 9_000 })],
    counted: { keyed: { ...nothing, effects: {} }, idempotent: nothing, once: { starts: {}, ends: { 2: 1, 5: 1 } } },
    faults: [
      { what: 'killed', atMs: 1_200, kind: 'both' },
      { what: 'killed', atMs: 1_900, kind: 'strike' },
      { what: 'back', atMs: 2_000, kind: 'back' },
      { what: 'killed', atMs: 2_200, kind: 'strike' },
    ],
  });
  t.match(figures, { recovery_ms: 300, lost: 0, under_way: 3, idle_strikes: 0 });
});
