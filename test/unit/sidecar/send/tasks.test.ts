import t from 'tap';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import type { TaskEvent, TaskFound } from '../../../../proto/wire/messages.ts';
import { Subjects } from '../../../../proto/wire/subjects.ts';
import { Principal } from '../../../../sidecar/call/principal.ts';
import { Cancels } from '../../../../sidecar/send/cancels.ts';
import type { TaskView } from '../../../../sidecar/send/door.ts';
import { Home } from '../../../../sidecar/send/home.ts';
import { Tasks } from '../../../../sidecar/send/tasks.ts';
import { ASKER, ScriptedBus } from './world.ts';

const STRANGER = new Principal('sales.helper.2');
const ID = 'abcdefgh01';

class World {
  readonly clock = new VirtualClock();
  readonly bus = new ScriptedBus();
  readonly home = new Home(100, 1_000);
  readonly cancels: Cancels;
  readonly tasks: Tasks;

  constructor() {
    const { bus, clock, home } = this;
    const subjects = new Subjects('t');
    this.cancels = new Cancels({ bus, subjects, clock });
    this.tasks = new Tasks({ clock, bus, subjects, sidecar: 'one', home, cancels: this.cancels });
    bus.answer = () => null;
  }

  accept(): void {
    this.home.accepted({
      taskId: ID,
      powerId: `support.planner.1:${ID}:1`,
      agent: 'support.planner.1',
      capability: 'a.b.c',
      lane: 'normal',
      state: 'accepted',
      acceptedAtMs: 1,
    });
  }
}

const done: TaskEvent = {
  wire: 1,
  kind: 'state',
  task_id: ID,
  power_id: `support.planner.1:${ID}:1`,
  message_type: 'task_request',
  capability: 'a.b.c',
  state: 'done',
  code: 0,
  cause: '',
  detail: '',
  by: 'crm.order.1',
  version: '1.0.0',
  attempts: 1,
  at_ms: 5,
  received_at_ms: 4,
  status: 200,
  content_type: 'text/plain',
  replay: false,
  trace_id: '',
};
const found = (more: Partial<TaskFound> = {}): object => ({
  wire: 1,
  ok: true,
  what: 'status',
  found: {
    state: 'done',
    capability: 'a.b.c',
    power_id: done.power_id,
    event: done,
    result: Buffer.from('yes').toString('base64'),
    kept: null,
    ...more,
  },
});

t.test('a task that is not remembered here is asked of the control plane, in the name of its sender', async (t) => {
  const { tasks, bus, home } = new World();
  bus.answer = () => found();
  const view = await tasks.task(ASKER, ID);
  t.match(view, { state: 'done', events: [{ by: 'crm.order.1' }] });
  t.match(view, { result: Buffer.from('yes') });
  t.match(bus.asked[0], { subject: 'ar.t.ctl.task', body: { what: 'status', sidecar: 'one', agent: 'support.planner.1', task_id: ID } });
  await tasks.task(ASKER, ID);
  t.equal(bus.asked.length, 1, 'and remembered from then on');
  t.equal(home.of('sales.helper.2', ID), null);
  bus.answer = () => ({ wire: 1, ok: true, what: 'status', found: null });
  t.equal(await tasks.task(STRANGER, ID), null, 'the control plane knows nothing of it for anybody else');
  t.equal(await tasks.task(ASKER, 'no/such'), null);
  t.equal(bus.asked.length, 2, 'what cannot be an id is not asked about');
});

t.test('a result that was too much to be remembered is looked up', async (t) => {
  const world = new World();
  world.accept();
  world.home.noted(done, Buffer.alloc(5_000, 'x'));
  t.equal(world.home.of('support.planner.1', ID)?.result, null);
  world.bus.answer = () => found();
  t.match(await world.tasks.task(ASKER, ID), { result: Buffer.from('yes') });
  world.bus.answer = () => null;
  t.match(await world.tasks.task(ASKER, ID), { state: 'done', result: null }, 'the state is known without it');
});

t.test('a watcher hears the state first, then each change, also of a task found elsewhere', async (t) => {
  const { tasks, bus, home } = new World();
  bus.answer = () => found({ state: 'waiting', event: null, result: null });
  const heard: string[] = [];
  const watching = await tasks.watch(ASKER, ID, (view: TaskView) => heard.push(view.state));
  home.noted(done, Buffer.from('yes'), 'support.planner.1');
  t.strictSame(heard, ['waiting', 'done']);
  if (watching === null || watching === 'unsure') throw new Error('nobody hears');
  watching.close();
  bus.answer = () => ({ wire: 1, ok: false, code: 4002, why: 'not at home here' });
  t.equal(await tasks.watch(STRANGER, ID, () => undefined), null);
});

t.test('calling off: a worker confirms it, or it is said again until the task has ended', async (t) => {
  const world = new World();
  const { tasks, bus, clock, cancels, home } = world;
  t.equal(await tasks.cancel(ASKER, ID), 'unsure', 'nobody answers');
  bus.answer = () => ({ wire: 1, ok: true, what: 'status', found: null });
  t.equal(await tasks.cancel(ASKER, ID), 'unknown');
  world.accept();
  t.equal(await tasks.cancel(STRANGER, ID), 'unknown', "nobody calls off another's task");
  bus.answer = (subject) => (subject === 'ar.t.cancel' ? { wire: 1, task_id: ID, outcome: 'cancelled' } : null);
  t.equal(await tasks.cancel(ASKER, ID), 'cancelled');
  t.equal(cancels.size, 0);
  bus.answer = (subject) => (subject === 'ar.t.cancel' ? { wire: 1, task_id: ID, outcome: 'too_late' } : null);
  t.equal(await tasks.cancel(ASKER, ID), 'too_late');
  bus.answer = () => null;
  t.equal(await tasks.cancel(ASKER, ID), 'requested');
  const before = bus.published.length;
  await clock.advance(11_000);
  t.equal(bus.published.length, before + 2, 'each five seconds');
  bus.go(false);
  bus.go(true);
  t.equal(bus.published.length, before + 3, 'and to whoever is there after a break');
  home.noted({ ...done, state: 'cancelled', code: 5003 }, null);
  cancels.ended(ID, 'cancelled');
  await clock.advance(10_000);
  t.equal(bus.published.length, before + 3, 'it has ended');
  t.equal(await tasks.cancel(ASKER, ID), 'cancelled', 'what is called off already is');
  home.noted({ ...done, task_id: 'abcdefgh02' }, null, 'support.planner.1');
  t.equal(await tasks.cancel(ASKER, 'abcdefgh02'), 'too_late', 'what is done is done');
  cancels.close();
});

t.test('what cannot be looked up is not said to be unknown, and a long look goes on where it stopped', async (t) => {
  const { tasks, bus, clock } = new World();
  bus.answer = () => null;
  t.equal(await tasks.task(ASKER, ID), 'unsure', 'nobody answers');
  bus.answer = () => ({ wire: 1, ok: false, code: 7001, why: 'there are no inboxes yet' });
  t.equal(await tasks.watch(ASKER, ID, () => undefined), 'unsure');
  let asks = 0;
  bus.answer = () => {
    asks++;
    return asks < 4 ? { wire: 1, ok: true, what: 'status', found: null, more: { inbox: 100 * asks, queue: 0 } } : found();
  };
  const before = bus.asked.length;
  t.match(await tasks.task(ASKER, ID), { state: 'done' });
  t.match(
    bus.asked.slice(before).map(({ body }) => (body as { from?: unknown }).from),
    [undefined, { inbox: 100 }, { inbox: 200 }, { inbox: 300 }],
  );
  bus.answer = () => {
    clock.halt(3_000);
    return { wire: 1, ok: true, what: 'status', found: null, more: { inbox: 1, queue: 0 } };
  };
  t.equal(await tasks.task(ASKER, 'abcdefgh02'), 'unsure', 'not without end');
});
