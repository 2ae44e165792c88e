/**
 * Attempts on NATS, each by a user of the server who has the key of a sidecar: what a server can refuse it refuses, and says so;
 * what it cannot is of no effect. Permissions are those that `reachctl nats` makes, for the server that is found.
 */
import { connect, headers, nkeyAuthenticator } from 'nats';
import t, { type Test } from 'tap';
import { newUserKey } from '../../base/nkey.ts';
import { encodeEnvelope } from '../../proto/wire/envelope.ts';
import { Consumer } from '../../proto/wire/messages.ts';
import { poolId } from '../../proto/wire/pool.ts';
import { envelopeOf } from '../support/envelope.ts';
import { CALLER, FRONT, HOST, NatsWorld, PROVIDER, QUERY, ROOT } from './nats-world.ts';

t.setTimeout(110_000);

const world = await NatsWorld.start(t);
const { thief, clerk } = world;
const direct = (stream: string, subject: string): string => `$JS.API.DIRECT.GET.${stream}.${subject}`;
/** The queue of the honest caller's tasks. */
const pool = poolId({ capability: QUERY, version: '1.0.0', role: null, agent: null, tags: {}, sticky: false });
const ofHost = { sidecar: HOST, instance: 'another', wire: 1 };

t.test('rightful: a task is sent, worked on and answered with these permissions, and none was too few', async (t) => {
  const before = world.watch.count;
  await world.work(t);
  t.equal(world.watch.count, before + 1);
  t.notMatch(world.users.nats.process.said, /violation/i);
});

t.test('a sidecar cannot read the inbox of another one, by whatever way there is', async (t) => {
  await world.unmoved(t, async () => {
    await thief.mayNotPublish(t, [
      `$JS.API.CONSUMER.MSG.NEXT.AR_INBOX.inbox_${FRONT}`,
      `$JS.API.CONSUMER.INFO.AR_INBOX.inbox_${FRONT}`,
      direct('AR_INBOX', `${ROOT}.inbox.${FRONT}.${CALLER}`),
      '$JS.API.DIRECT.GET.AR_INBOX',
      '$JS.API.STREAM.MSG.GET.AR_INBOX',
    ]);
    await thief.mayNotHear(t, [`${ROOT}.inbox.>`, `${ROOT}.note.${FRONT}`, `${ROOT}.note.>`]);
  });
});

t.test('a sidecar cannot read what another one is told, nor what is for operators alone', async (t) => {
  await world.unmoved(t, async () => {
    const tails = [
      `scope.${HOST}`,
      `work.${HOST}`,
      `reg.${HOST}`,
      'op.policies',
      'op.quotas',
      'op.providers',
      'ident.agent.a.b.c',
      'pool.p',
    ];
    await thief.mayNotPublish(
      t,
      tails.map((tail) => direct('AR_CFG', `${ROOT}.cfg.${tail}`)),
    );
    await thief.mayNotPublish(t, ['$JS.API.DIRECT.GET.AR_CFG', '$JS.API.STREAM.MSG.GET.AR_CFG', '$JS.API.STREAM.INFO.AR_CFG']);
    await thief.mayNotPublish(t, [direct('AR_OPS', `${ROOT}.ops.audit`), direct('AR_AUDIT', `${ROOT}.audit.cp-1.act`)]);
    await thief.mayNotHear(t, [`${ROOT}.push.>`, `${ROOT}.push.op.>`, `${ROOT}.push.scope.*`, `${ROOT}.push.work.${HOST}`]);
  });
});

t.test('a sidecar that is for some capabilities cannot read of the others', async (t) => {
  await world.unmoved(t, async () => {
    await clerk.mayNotPublish(t, [direct('AR_CFG', `${ROOT}.cfg.cap.${QUERY}`), direct('AR_CFG', `${ROOT}.cfg.cap.${QUERY}.1`)]);
    await clerk.mayNotHear(t, [`${ROOT}.push.cap.${QUERY}`, `${ROOT}.push.cap.>`]);
    t.not(await clerk.ask(direct('AR_CFG', `${ROOT}.cfg.cap.pay.refund.issue`), ''), null, 'its own it may ask for');
  });
});

t.test('a sidecar that only calls takes nothing out of the queue, and acknowledges nothing there', async (t) => {
  await world.unmoved(t, async () => {
    for (const lane of ['high', 'normal', 'low']) {
      const consumer = Consumer.lane(pool, lane);
      await clerk.mayNotPublish(t, [
        `$JS.API.CONSUMER.MSG.NEXT.AR_TASKS.${consumer}`,
        `$JS.ACK.AR_TASKS.${consumer}.1.1.1.1.0`,
        `$JS.ACK._.hash.AR_TASKS.${consumer}.1.1.1.1.0`,
      ]);
    }
  });
});

t.test('a sidecar that works finds no queue but those of which it was told', async (t) => {
  const listed = await world.eye.consumers('AR_TASKS');
  t.ok(
    Array.isArray(listed) && listed.some(({ name }) => name.startsWith(`${pool}_normal_`)),
    'the pool is there, and its name is not to be guessed',
  );
  await world.unmoved(t, async () => {
    await thief.mayNotPublish(t, ['$JS.API.CONSUMER.NAMES.AR_TASKS', '$JS.API.CONSUMER.LIST.AR_TASKS', '$JS.API.STREAM.INFO.AR_TASKS']);
    await thief.mayNotHear(t, [`${ROOT}.task.>`, '$JS.EVENT.ADVISORY.>', '$JS.API.>', '$JS.ACK.>']);
    for (const lane of ['high', 'normal', 'low']) {
      const next = await thief.ask(`$JS.API.CONSUMER.MSG.NEXT.AR_TASKS.${Consumer.lane(pool, lane)}`, '{"batch":1,"no_wait":true}', 300);
      t.ok(next === null || next.subject.startsWith('_INBOX.thief.'), 'no task came');
      t.equal(next === null ? 0 : next.data.length, 0);
      await thief.publish(`$JS.ACK.AR_TASKS.${Consumer.lane(pool, lane)}.1.1.1.1.0`, '+ACK');
    }
  });
});

t.test('nobody but the leader says what the fleet is configured to do', async (t) => {
  await world.unmoved(t, async () => {
    const tails = ['epoch', 'rules', 'trust', 'quotas', 'shifts', `cap.${QUERY}`, 'scope.thief', 'work.thief', 'op.policies'];
    await thief.mayNotPublish(t, [...tails.map((tail) => `${ROOT}.cfg.${tail}`), ...tails.map((tail) => `${ROOT}.push.${tail}`)]);
    await thief.mayNotPublish(t, [`${ROOT}.beacon`, `${ROOT}.shares`, `${ROOT}.cp.leader`, `${ROOT}.ops.policies`]);
  });
});

t.test('nobody but operators sets an override, lifts one, or says which is the newest', async (t) => {
  await world.unmoved(t, async () => {
    await thief.mayNotPublish(t, [`${ROOT}.ovr.state`, `${ROOT}.ovrpush.state`, `${ROOT}.ovrbeacon`]);
  });
  t.equal((await world.front.invoke(`${QUERY}@1`, { payload: {} })).status, 200, 'calls go on');
});

t.test('a sidecar makes, changes, empties and deletes no stream, and takes no message out of one', async (t) => {
  await world.unmoved(t, async () => {
    for (const stream of ['AR_TASKS', 'AR_IDEM', 'AR_AUDIT', 'AR_CFG'])
      await thief.mayNotPublish(
        t,
        ['CREATE', 'UPDATE', 'DELETE', 'PURGE', 'MSG.DELETE', 'SNAPSHOT', 'RESTORE'].map((verb) => `$JS.API.STREAM.${verb}.${stream}`),
        '{"seq":1}',
      );
    await thief.mayNotPublish(t, ['$JS.API.STREAM.CREATE.MINE', '$JS.API.STREAM.NAMES', '$JS.API.STREAM.LIST', '$JS.API.INFO']);
  });
});

t.test('a sidecar makes, changes and deletes no consumer', async (t) => {
  await world.unmoved(t, async () => {
    for (const stream of ['AR_TASKS', 'AR_INBOX'])
      await thief.mayNotPublish(t, [
        `$JS.API.CONSUMER.CREATE.${stream}`,
        `$JS.API.CONSUMER.CREATE.${stream}.mine`,
        `$JS.API.CONSUMER.CREATE.${stream}.mine.${ROOT}.inbox.>`,
        `$JS.API.CONSUMER.DURABLE.CREATE.${stream}.mine`,
        `$JS.API.CONSUMER.DELETE.${stream}.inbox_${HOST}`,
        `$JS.API.CONSUMER.PAUSE.${stream}.inbox_${HOST}`,
      ]);
  });
});

t.test('a task cannot be sent as another sidecar', async (t) => {
  await world.unmoved(t, async () => {
    await thief.mayNotPublish(t, [`${ROOT}.task.${pool}.normal.0.${FRONT}`, `${ROOT}.task.${pool}.high.0.${HOST}`]);
  });
});

t.test('a task that says it comes from another sidecar than its subject is carried out by nobody', async (t) => {
  const task = await world.work(t);
  const stored = await world.eye.history('AR_TASKS', `${ROOT}.task.>`, 1);
  t.same(stored, [], `${task} is done, and the queue is empty`);
  const before = world.watch.count;
  const envelope = envelopeOf(QUERY, pool, { task_id: 'forged0002', version: '1.0.0', source: CALLER, home: FRONT });
  const reply = await thief.ask(`${ROOT}.task.${pool}.normal.0.thief`, encodeEnvelope(envelope, Buffer.from('{}')));
  t.match(reply === null ? '' : reply.string(), /"seq"/, 'it is stored, under the thief’s own name');
  await until(t, async () => {
    const kept = await world.plane.ask('/v1/tasks/kept');
    return JSON.stringify(kept.body).includes(`sent by thief in the name of ${FRONT}`);
  });
  await world.watch.untouched(t, before);
});

t.test('a sign of life, a report or a word on overrides cannot be said for another', async (t) => {
  await world.unmoved(t, async () => {
    await thief.mayNotPublish(t, [`${ROOT}.hb.${HOST}`, `${ROOT}.report.${HOST}`, `${ROOT}.inforce.${HOST}`], JSON.stringify(ofHost));
    await thief.publish(`${ROOT}.hb.thief`, JSON.stringify({ ...ofHost, agents: {} }));
    await thief.publish(`${ROOT}.report.thief`, JSON.stringify({ ...ofHost, version: 'evil' }));
    const fleet = await world.plane.ask('/v1/sidecars');
    t.notMatch(JSON.stringify(fleet.body), /evil/);
  });
});

t.test('a hello, a goodbye or a registration cannot be said for another, in the subject or in the message', async (t) => {
  await world.unmoved(t, async () => {
    const verbs = ['hello', 'register', 'leave', 'pool', 'task', 'home'];
    await thief.mayNotPublish(t, [...verbs.map((verb) => `${ROOT}.ctl.${verb}.${HOST}`), ...verbs.map((verb) => `${ROOT}.ctl.${verb}`)]);
    const hello = { ...ofHost, mesh: 'http://127.0.0.1:9', region: null, zone: null, callers: [], agents: [] };
    const said = await thief.ask(`${ROOT}.ctl.hello.thief`, JSON.stringify(hello));
    t.match(said?.json(), { ok: false, refused: [{ code: 4002, problems: [/thief cannot speak for order-side/] }] });
    const left = await thief.ask(`${ROOT}.ctl.leave.thief`, JSON.stringify({ ...ofHost, agent: PROVIDER, why: 'left' }));
    t.match(left?.json(), { ok: false, refused: [{ code: 4002 }] });
    const asked = { wire: 1, what: 'inbox', sidecar: FRONT, agent: CALLER, from: 1, limit: 10 };
    t.match((await thief.ask(`${ROOT}.ctl.task.thief`, JSON.stringify(asked)))?.json(), { ok: false, code: 4002 });
    const home = await thief.ask(`${ROOT}.ctl.home.thief`, JSON.stringify({ ...ofHost, token: '', agents: [PROVIDER] }), 400);
    t.notMatch(home?.string() ?? '', /eyJ/, 'no statement is given');
  });
  t.equal((await world.front.invoke(`${QUERY}@1`, { payload: {} })).status, 200, 'the provider is where it was');
});

t.test('what sidecars ask the control plane cannot be heard, nor taken from it in a queue group', async (t) => {
  await world.unmoved(t, async () => {
    await thief.mayNotHear(t, [`${ROOT}.ctl.>`, `${ROOT}.ctl.home.*`, `${ROOT}.hb.*`, `${ROOT}.audit.>`]);
    await thief.mayNotHear(t, [`${ROOT}.ctl.hello.*`], 'control-plane');
  });
});

t.test('nothing is written into the audit log for another, nor for an operator', async (t) => {
  await world.unmoved(t, async () => {
    const subjects = [`${ROOT}.audit.${HOST}.refused`, `${ROOT}.audit.cp-1.act`, `${ROOT}.audit.thief.act`, `${ROOT}.audit.cp-1.asked`];
    await thief.mayNotPublish(t, subjects, '{"actor":"ada","action":"override.set"}');
  });
});

t.test('what the control plane asks one sidecar is neither heard nor answered by another', async (t) => {
  await world.unmoved(t, async () => {
    await thief.mayNotHear(t, [`${ROOT}.ask.${HOST}`, `${ROOT}.ask.>`]);
    await thief.mayNotPublish(t, [`${ROOT}.ask.${HOST}`, '_INBOX._control.abc.1', `_INBOX.${FRONT}.abc.1`], '{"ok":true}');
  });
});

t.test('a sidecar that asks itself may not answer at a subject of its choice', async (t) => {
  const places = ['ovr.state', 'ovrpush.state', 'cfg.trust', 'push.trust', 'beacon', `ask.${HOST}`].map((tail) => `${ROOT}.${tail}`);
  await world.unmoved(t, async () => {
    for (const place of [...places, `_INBOX.${FRONT}.abc.1`, `_INBOX._control.told.${HOST}.abc`]) {
      for (const own of [`${ROOT}.note.thief`, `${ROOT}.cancel.thief`]) {
        await thief.asksItself(t, own, place);
        await thief.mayNotPublish(t, [place]);
      }
    }
  });
});

t.test('an answer of the server that is sent to a forbidden subject is believed by nobody', async (t) => {
  const before = world.watch.count;
  const connection = await connect({
    servers: world.users.nats.url,
    authenticator: nkeyAuthenticator(Buffer.from(world.users.seed('thief'))),
    inboxPrefix: '_INBOX.thief',
  });
  t.teardown(() => connection.close());
  const entry = { id: 'forged', action: 'block', target: { all: true }, reason: 'x', author: 'x', at: 1, expires_at: null };
  const list = { wire: 1, epoch: 'forged', revision: 9, overrides: [entry] };
  const marks = headers();
  for (const [name, value] of [
    ['Nats-Stream', 'AR_OVR'],
    ['Nats-Subject', `${ROOT}.ovr.state`],
    ['Nats-Sequence', '99'],
    ['Nats-Last-Sequence', '0'],
  ] as const)
    marks.append(name, value);
  await connection.request(`${ROOT}.idem.marked`, Buffer.from(JSON.stringify(list)), { headers: marks, timeout: 1_500 });
  await connection.request(`${ROOT}.idem.plain`, Buffer.from(JSON.stringify(list)));
  const beacon = { wire: 1, epoch: 'forged', seq: 99, from: 'x', at: 1 };
  await connection.request(`${ROOT}.idem.beacon`, Buffer.from(JSON.stringify(beacon)));
  const send = (id: string, to: string): void =>
    connection.publish(direct('AR_IDEM', `${ROOT}.idem.${id}`), Buffer.alloc(0), { reply: `${ROOT}.${to}` });
  for (const [id, to] of [
    ['marked', 'ovrpush.state'],
    ['plain', 'ovr.state'],
    ['marked', 'ovr.state'],
    ['beacon', 'ovrbeacon'],
    ['beacon', 'beacon'],
    ['plain', `ask.${HOST}`],
  ] as const)
    send(id, to);
  await connection.flush();
  await until(t, async () => world.front.logged.some(({ msg }) => String(msg).includes('an answer of the server')));
  const stored = await world.eye.lastAtLeader('AR_OVR', `${ROOT}.ovr.state`);
  t.notMatch(stored !== null && 'data' in stored ? stored.data.toString('utf8') : '', /forged/, 'what is stored of it says nothing');
  await world.watch.untouched(t, before);
  t.equal((await world.front.invoke(`${QUERY}@1`, { payload: {} })).status, 200, 'calls go on: no list was forged');
});

t.test('nobody listens to everything, to the server or to answers that are for others', async (t) => {
  await world.unmoved(t, async () => {
    await thief.mayNotHear(t, [
      '>',
      '*.>',
      `${ROOT}.>`,
      '_INBOX.>',
      '_INBOX.*.>',
      `_INBOX.${FRONT}.>`,
      '_INBOX._control.>',
      '$SYS.>',
      '$JS.>',
    ]);
  });
});

t.test('nobody speaks to the server itself', async (t) => {
  await world.unmoved(t, async () => {
    await thief.mayNotPublish(t, ['$SYS.REQ.SERVER.PING', '$SYS.REQ.ACCOUNT.PING.CONNZ', '$SYS.REQ.USER.INFO', '$SYS.ACCOUNT.A.CONNECT']);
    await thief.mayNotPublish(t, ['$JS.API.SERVER.REMOVE', '$JS.API.ACCOUNT.PURGE.A', '$JS.API.META.LEADER.STEPDOWN']);
  });
});

t.test('what lies in the inbox of another is acknowledged by nobody else', async (t) => {
  await world.work(t);
  await world.unmoved(t, async () => {
    const acks = [`$JS.ACK.AR_INBOX.inbox_${FRONT}.1.1.1.1.0`, `$JS.ACK._.hash.AR_INBOX.inbox_${FRONT}.1.1.1.1.0.x`];
    await thief.mayNotPublish(t, acks, '+ACK');
    await clerk.mayNotPublish(t, acks, '+TERM');
  });
});

t.test('a message is put into no inbox in another’s name', async (t) => {
  const at = `${ROOT}.inbox.${FRONT}.${CALLER}`;
  await world.unmoved(t, async () => {
    await thief.mayNotPublish(t, [at, `${at}.${HOST}`, `${at}._control`, `${at}.thief.more`]);
  });
  const before = world.watch.count;
  const message = {
    wire: 1,
    kind: 'message',
    task_id: 'forged0001',
    power_id: 'p',
    message_type: 'x',
    source: PROVIDER,
    home: HOST,
    reply_to: null,
  };
  const stored = await thief.ask(`${at}.thief`, `${JSON.stringify({ ...message, tags: {}, content_type: 'application/json' })}\n{}`);
  t.match(stored?.string() ?? '', /"seq"/, 'its own name it may use');
  await until(t, async () => world.front.logged.some(({ msg }) => String(msg).includes('by another sidecar than')));
  const page = await world.front.ask('/v1/inbox?limit=200');
  t.notMatch(JSON.stringify(page.json), /forged0001/, 'and nobody is given it');
  await world.watch.untouched(t, before);
});

t.test('a task is called off by no other sidecar than the one that sent it', async (t) => {
  await world.drained(t, async () => {
    const task = await world.cast(t);
    await world.unmoved(t, async () => {
      const note = JSON.stringify({ wire: 1, task_id: task, source: CALLER });
      await thief.mayNotPublish(t, [`${ROOT}.cancel`, `${ROOT}.cancel.${FRONT}`], note);
      await thief.publish(`${ROOT}.cancel.thief`, note);
    });
    return task;
  });
});

t.test('no header makes a stream forget what it holds', async (t) => {
  const connection = await connect({
    servers: world.users.nats.url,
    authenticator: nkeyAuthenticator(Buffer.from(world.users.seed('thief'))),
    inboxPrefix: '_INBOX.thief',
  });
  t.teardown(() => connection.close());
  await world.unmoved(t, async () => {
    for (const how of ['all', 'sub']) {
      const rollup = headers();
      rollup.set('Nats-Rollup', how);
      for (const subject of [`${ROOT}.idem.abcdef`, `${ROOT}.kept.dead.task0001`]) {
        const answer = await connection.request(subject, Buffer.from('{}'), { timeout: 1_500, headers: rollup });
        t.match(answer.json(), { error: { description: /rollup/ } }, `${subject} ${how}`);
      }
    }
  });
});

t.test('without a key, with a key that nobody knows or with a forged signature there is no connection', async (t) => {
  await world.unmoved(t, async () => {
    const { url } = world.users.nats;
    const unknown = nkeyAuthenticator(Buffer.from(newUserKey().seed));
    const key = nkeyAuthenticator(Buffer.from(world.users.seed(HOST)));
    const forged = (nonce?: string): object => ({ ...(key(nonce) as object), sig: Buffer.alloc(64).toString('base64url') });
    await t.rejects(connect({ servers: url, reconnect: false }), { code: /AUTHORIZATION/ });
    await t.rejects(connect({ servers: url, reconnect: false, user: HOST, pass: HOST }), { code: /AUTHORIZATION/ });
    await t.rejects(connect({ servers: url, reconnect: false, authenticator: unknown }), { code: /AUTHORIZATION/ });
    await t.rejects(connect({ servers: url, reconnect: false, authenticator: forged as never }), { code: /AUTHORIZATION/ });
  });
});

async function until(t: Test, what: () => Promise<boolean>): Promise<void> {
  for (const end = performance.now() + 5_000; performance.now() < end; ) {
    if (await what()) return;
    await new Promise((done) => setTimeout(done, 50));
  }
  t.fail('it did not come to that');
}
