import t from 'tap';
import { cast, Fleet, knows } from './support/fleet.ts';
import { agentOf, FAST, NONE, WORK, workTable } from './support/workers.ts';
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
const KIND = process.env['KIND'] ?? 'once';
t.test('chaos', { timeout: 200_000 }, async (t) => {
  const fleet = await Fleet.start(t);
  const starts = new Map<string, number>();
  const behaviour = async (got: any): Promise<any> => {
    const n = JSON.parse(got.body?.toString?.() ?? '{}').n as number;
    starts.set(String(n), (starts.get(String(n)) ?? 0) + 1);
    await sleep(5 + (n % 7 === 0 ? 300 : 20));
    return n % 10 === 3 ? { status: 500, body: { n } } : { body: { n } };
  };
  const one = await agentOf(t, 'one', behaviour);
  const two = await agentOf(t, 'two', behaviour);
  const w1 = await fleet.sidecar('worker-1', workTable('worker-1', [['crm.order.1', one]], KIND));
  const w2 = await fleet.sidecar('worker-2', workTable('worker-2', [['crm.order.2', two]], KIND));
  const sender = await fleet.sidecar('sender', NONE, FAST);
  await knows(sender, WORK, 2);
  const tasks: string[] = [];
  let refused = 0;
  let stop = false;
  const sending = (async () => {
    for (let n = 0; !stop; n++) {
      try { tasks.push(await cast(sender, WORK, { n })); } catch { refused++; }
      await sleep(8);
    }
  })();
  await sleep(1_500);
  for (let i = 0; i < 3; i++) {
    await fleet.nats.kill(); await sleep(400); await fleet.nats.restart(); await sleep(1_500);
  }
  fleet.nats.pause(); await sleep(Number(process.env['PAUSE'] ?? 6_000)); fleet.nats.resume(); await sleep(1_500);
  await fleet.nats.kill(); await sleep(17_000); await fleet.nats.restart(); await sleep(1_000);
  stop = true; await sending;
  const t0 = performance.now();
  await fleet.bus.ready(10_000);
  let left = -1;
  while (performance.now() - t0 < 60_000) { try { left = await fleet.queued(); } catch { left = -2; } if (left === 0) break; await sleep(500); }
  await sleep(500);
  const finals = await fleet.finals();
  const by = new Map<string, string[]>();
  for (const { event } of finals) by.set(event.task_id, [...(by.get(event.task_id) ?? []), event.state]);
  const states: Record<string, number> = {};
  for (const id of tasks) { const k = (by.get(id) ?? ['NONE']).join('+'); states[k] = (states[k] ?? 0) + 1; }
  const twice = [...starts.values()].filter((c) => c > 1).length;
  console.log('FIGURES', JSON.stringify({ KIND, accepted: tasks.length, refused, left, states, startedTwice: twice, drainMs: Math.round(performance.now() - t0),
    held: [w1, w2].map((w: any) => w.started.front.work?.inHand) , w1: w1.started.front.work?.outcomes(), w2: w2.started.front.work?.outcomes()}));
  for (const rig of [w1, w2, sender]) await rig.stop();
  await fleet.plane.control.stop(0);
});
