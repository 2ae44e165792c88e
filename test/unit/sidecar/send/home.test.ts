import t from 'tap';
import type { TaskEvent, TaskState } from '../../../../proto/wire/messages.ts';
import { taskText } from '../../../../sidecar/accept/submitted.ts';
import type { TaskView } from '../../../../sidecar/send/door.ts';
import { Home } from '../../../../sidecar/send/home.ts';

const AGENT = 'support.planner.1';
const accepted = (taskId: string) => ({
  taskId,
  powerId: `${AGENT}:${taskId}:1`,
  agent: AGENT,
  capability: 'crm.order.query',
  lane: 'normal' as const,
  state: 'accepted' as const,
  acceptedAtMs: 1,
});
function event(taskId: string, state: TaskState, more: Partial<TaskEvent> = {}): TaskEvent {
  return {
    wire: 1,
    kind: 'state',
    task_id: taskId,
    power_id: `${AGENT}:${taskId}:1`,
    message_type: 'task_request',
    capability: 'crm.order.query',
    state,
    code: 0,
    cause: '',
    detail: '',
    by: 'crm.order.a',
    version: '2.1.0',
    attempts: 1,
    at_ms: 2,
    received_at_ms: 0,
    status: 0,
    content_type: '',
    replay: false,
    trace_id: '',
    ...more,
  };
}

t.test('a state never goes back, and each new one is told once', (t) => {
  const home = new Home(100, 1_000);
  home.accepted(accepted('task0001'));
  const heard: TaskState[] = [];
  const hearing = home.hear(AGENT, 'task0001', (view: TaskView) => heard.push(view.state));
  home.noted(event('task0001', 'received', { received_at_ms: 5 }), null);
  home.noted(event('task0001', 'received', { received_at_ms: 5 }), null);
  home.noted(event('task0001', 'waiting', { attempts: 2, code: 1003 }), null);
  home.noted(event('task0001', 'received', { attempts: 1 }), null);
  home.noted(event('task0001', 'done', { attempts: 2, status: 200, content_type: 'application/json' }), Buffer.from('{"n": 1.0}'));
  home.noted(event('task0001', 'received', { attempts: 3 }), null);
  home.noted(event('task0001', 'done', { attempts: 2 }), null);
  t.strictSame(heard, ['received', 'waiting', 'done']);
  hearing?.close();
  const view = home.of(AGENT, 'task0001') as TaskView;
  const shown = taskText(view);
  t.ok(shown.endsWith('"result":{"n": 1.0}}'), 'the result as it was written');
  t.match(JSON.parse(shown), { state: 'done', is_final: true, received_at_ms: 5, by: 'crm.order.a', attempts: 2 });
  home.noted(event('task0001', 'failed'), null);
  t.equal(home.of(AGENT, 'task0001')?.state, 'done', 'the end stands');
  t.end();
});

t.test('what comes as a note and through the inbox is told once, in whatever order', (t) => {
  const home = new Home(100, 1_000);
  home.accepted(accepted('task0001'));
  const heard: TaskState[] = [];
  home.hear(AGENT, 'task0001', (view: TaskView) => heard.push(view.state));
  const received = event('task0001', 'received', { at_ms: 10 });
  const waiting = event('task0001', 'waiting', { at_ms: 11, code: 1003 });
  for (const each of [received, waiting]) home.noted(each, null);
  for (const each of [received, waiting, received]) home.noted(each, null, AGENT);
  t.strictSame(heard, ['received', 'waiting']);
  t.equal(home.of(AGENT, 'task0001')?.state, 'waiting', 'a late copy takes it back to nothing');
  // After a restart of the home only the inbox knows whose a task with a key of its own is.
  home.noted(event('task0002', 'received', { power_id: 'my-own-key' }), null, AGENT);
  t.equal(home.of(AGENT, 'task0002')?.state, 'received');
  t.end();
});

t.test('a dead task that is driven again can still end', (t) => {
  const home = new Home(100, 1_000);
  home.accepted(accepted('task0001'));
  home.noted(event('task0001', 'dead_lettered', { code: 7002, attempts: 7 }), null);
  home.noted(event('task0001', 'received', { attempts: 7, at_ms: 9 }), null);
  t.equal(home.of(AGENT, 'task0001')?.state, 'dead_lettered', 'late news change nothing');
  home.noted(event('task0001', 'waiting', { attempts: 0, at_ms: 10, by: '', cause: 'released' }), null);
  t.equal(home.of(AGENT, 'task0001')?.state, 'waiting', 'a person has sent it out again');
  home.noted(event('task0001', 'done', { attempts: 8 }), null);
  t.equal(home.of(AGENT, 'task0001')?.state, 'done');
  t.end();
});

t.test('the end may come before the stream has answered, and after a restart', (t) => {
  const home = new Home(100, 1_000);
  home.noted(event('task0001', 'done'), null);
  home.accepted(accepted('task0001'));
  t.match(home.of(AGENT, 'task0001'), { state: 'done', acceptedAtMs: 1 });
  home.noted(event('task0002', 'done', { power_id: 'my-own-key' }), null, AGENT);
  t.match(home.of(AGENT, 'task0002'), { state: 'done', powerId: 'my-own-key' });
  home.noted(event('task0003', 'received', { power_id: 'my-own-key' }), null);
  t.equal(home.of(AGENT, 'task0003'), null, 'whose it is cannot be known');
  t.equal(home.of('sales.helper.2', 'task0001'), null);
  t.equal(
    home.hear('sales.helper.2', 'task0001', () => undefined),
    null,
  );
  t.end();
});

t.test('tasks and results are bounded; the oldest go, one that is waited for last', (t) => {
  const home = new Home(100, 1_000);
  for (let i = 0; i < 100; i++) home.accepted(accepted(`task${i}`.padEnd(8, 'x')));
  home.hear(AGENT, 'task0xxx', () => undefined);
  for (let i = 100; i < 150; i++) home.accepted(accepted(`task${i}`.padEnd(8, 'x')));
  t.equal(home.size, 100);
  t.ok(home.of(AGENT, 'task0xxx') !== null, 'somebody waits for it');
  t.equal(home.of(AGENT, 'task1xxx'), null);
  for (let i = 110; i < 150; i++)
    home.noted(event(`task${i}`.padEnd(8, 'x'), 'done', { content_type: 'text/plain' }), Buffer.alloc(100, 'r'));
  t.ok(home.resultBytes <= 1_000, `${home.resultBytes} bytes`);
  t.ok(home.of(AGENT, 'task149x')?.result !== null, 'the last one is there');
  t.equal(home.of(AGENT, 'task110x')?.result, null);
  home.noted(event('task105x', 'done'), Buffer.alloc(5_000));
  t.equal(home.of(AGENT, 'task105x')?.result, null, 'more than all of them together is not held');
  t.end();
});
