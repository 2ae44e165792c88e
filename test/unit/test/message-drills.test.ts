import t from 'tap';
import { type Evidence, judge } from '../../drills/messages/judge.ts';
import type { Outcome } from '../../drills/messages/outcomes.ts';
import type { Accepted } from '../../drills/messages/submitter.ts';
import type { Kind } from '../../drills/messages/team.ts';

const message = (n: number, kind: Kind, more: Partial<Accepted> = {}): Accepted => ({
  n,
  kind,
  taskId: `t${n}`,
  key: '',
  durable: 'stream',
  atMs: 1_000,
  tookMs: 1,
  ...more,
});

const end = (taskId: string, more: Partial<Outcome> = {}): Outcome => ({
  taskId,
  powerId: '',
  capability: 'drill.x.do',
  state: 'done',
  code: 0,
  cause: '',
  by: 'w',
  attempts: 1,
  replay: false,
  atMs: 1_500,
  ...more,
});

const evidence = (more: Partial<Evidence>): Evidence => ({
  accepted: [],
  inDoubt: new Set(),
  outcomes: [],
  counted: { keyed: { effects: {}, starts: {} }, idempotent: { starts: {}, ends: {} }, once: { starts: {}, ends: {} } },
  faults: [],
  ...more,
});

const counted = (more: Partial<Evidence['counted']>): Evidence['counted'] => ({ ...evidence({}).counted, ...more });

t.test('What was accepted and has no end is lost, whatever its kind', async (t) => {
  const { figures, problems } = judge(evidence({ accepted: [message(0, 'once'), message(1, 'keyed')], outcomes: [end('t0')] }));
  t.match(figures, { accepted: 2, done: 1, lost: 1 });
  t.match(problems.join('\n'), /keyed 1 .* has no end/);
});

t.test('A keyed message that is done must have had its effect exactly once; one that is not, at most once', async (t) => {
  const accepted = [0, 1, 2, 3, 4].map((n) => message(n, 'keyed'));
  const outcomes = [end('t0'), end('t1'), end('t2'), end('t3', { state: 'failed' }), end('t4', { state: 'failed' })];
  const { figures } = judge(
    evidence({ accepted, outcomes, counted: counted({ keyed: { effects: { 0: 1, 1: 2, 3: 2, 4: 1 }, starts: {} } }) }),
  );
  t.equal(figures.keyed_effects_wrong, 3, 'twice, never, and twice although it failed');
});

t.test('Once work may be started once, also when nobody answered its submission', async (t) => {
  const { figures } = judge(evidence({ counted: counted({ once: { starts: { 1: 1, 2: 2 }, ends: {} } }), inDoubt: new Set([2]) }));
  t.equal(figures.once_started_twice, 1);
});

t.test('Idempotent work that was started again is counted, and is no mistake', async (t) => {
  const { figures, problems } = judge(evidence({ counted: counted({ idempotent: { starts: { 1: 3, 2: 1 }, ends: {} } }) }));
  t.equal(figures.idempotent_restarted, 1);
  t.same(problems, []);
});

t.test('A task with two ends, and a key with two results of its own, are results over one; a replay is not', async (t) => {
  const twice = evidence({ accepted: [message(0, 'once')], outcomes: [end('t0'), end('t0', { state: 'in_doubt' })] });
  t.equal(judge(twice).figures.results_per_key_over_one, 1);
  const accepted = [message(0, 'once', { key: 'k' }), message(0, 'once', { key: 'k', taskId: 't1' })];
  t.equal(judge(evidence({ accepted, outcomes: [end('t0'), end('t1')] })).figures.results_per_key_over_one, 1);
  t.equal(judge(evidence({ accepted, outcomes: [end('t0'), end('t1', { replay: true })] })).figures.results_per_key_over_one, 0);
});

t.test('The ratio is over what needed another try, without what is in doubt on purpose', async (t) => {
  const accepted = [0, 1, 2, 3].map((n) => message(n, 'idempotent'));
  const outcomes = [
    end('t0'),
    end('t1', { attempts: 2 }),
    end('t2', { attempts: 7, state: 'dead_lettered' }),
    end('t3', { attempts: 2, state: 'in_doubt' }),
  ];
  t.match(judge(evidence({ accepted, outcomes })).figures, { retried_ok_ratio: 0.5, dead: 1, in_doubt: 1, done: 2 });
  t.equal(judge(evidence({})).figures.retried_ok_ratio, 1, 'nothing needed one');
});

t.test('Recovery is from the last fault before the end, for what was accepted before that fault', async (t) => {
  const accepted = [message(0, 'once'), message(1, 'once', { atMs: 2_500 })];
  const outcomes = [end('t0', { atMs: 2_300 }), end('t1', { atMs: 9_000 })];
  const faults = [1_200, 2_000].map((atMs) => ({ what: 'killed', atMs }));
  t.equal(judge(evidence({ accepted, outcomes, faults })).figures.recovery_ms, 300);
});
