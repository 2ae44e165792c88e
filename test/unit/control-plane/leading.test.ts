/** One reign over a real nats-server: what a sidecar is answered, and when; and what is answered before there is a reign. */
import t from 'tap';
import { FakeSidecar, Plane } from '../../support/control-plane.ts';
import { NatsServer } from '../../support/nats.ts';

const ORDER = 'crm.order.query';

t.test('an answer says in which state of each capability it is in force, and comes when that is stored', async (t) => {
  const nats = await NatsServer.start(t);
  const plane = await Plane.start(t, nats);
  await plane.leads();
  const sidecar = await FakeSidecar.join(nats, 'order-a', { 'crm.order.a': [`${ORDER}@2.0.0`, 'crm.order.list@1.0.0'] });

  const early = await sidecar.leave('crm.order.a');
  t.match(early, { ok: false, again: 'hello', seq: 0 }, 'who has not said hello is told to');
  t.match(early.refused, [{ agent: '', problems: [/say hello first/] }], 'also in words, for those who do not know the sign');

  const answers = await Promise.all([sidecar.hello(), sidecar.hello(), sidecar.hello()]);
  const order = (await sidecar.capability(ORDER))?.seq ?? 0;
  const list = (await sidecar.capability('crm.order.list'))?.seq ?? 0;
  t.ok(order > 0 && list > 0 && order !== list);
  for (const answer of answers)
    t.match(answer, { ok: true, states: { [ORDER]: order, 'crm.order.list': list } }, 'also where it had been said a moment before');
  t.match(await sidecar.hello(), { ok: true, seq: 0, states: { [ORDER]: order, 'crm.order.list': list } }, 'and long after');
});

t.test('before the stream has been read nobody is told that the registry is empty', async (t) => {
  const nats = await NatsServer.start(t);
  await nats.kill();
  const plane = await Plane.start(t, nats);
  for (const path of ['/v1/sidecars', '/v1/providers', '/v1/capabilities', '/v1/policies', '/v1/export'])
    t.match(await plane.ask(path), { status: 503, body: { detail: /not read the registry yet/ } }, path);
  for (const path of ['/v1/health', '/v1/leader', '/metrics']) t.equal((await plane.ask(path)).status, 200, path);
  await nats.restart();
  await plane.leads();
  t.match(await plane.ask('/v1/sidecars'), { status: 200, body: { sidecars: [], summary: { total: 0 } } });
});
