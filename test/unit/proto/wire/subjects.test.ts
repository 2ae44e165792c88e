import t from 'tap';
import { permissionsOf } from '../../../../proto/wire/permissions.ts';
import { CONTROL, Subjects } from '../../../../proto/wire/subjects.ts';

t.test('who speaks says its name in the subject, in the way that the fleet understands', (t) => {
  const subjects = new Subjects('dev', 'order-a');
  t.equal(subjects.ctl('hello'), 'ar.dev.ctl.hello.order-a', 'before anybody was heard, as in a fleet of this version');
  t.equal(subjects.inbox('front', 'a.b.c'), 'ar.dev.inbox.front.a.b.c.order-a');
  t.equal(subjects.cancel, 'ar.dev.cancel.order-a');
  subjects.speech = 'asks';
  t.equal(subjects.ctl('hello'), 'ar.dev.ctl.hello.order-a');
  t.equal(subjects.inbox('front', 'a.b.c'), 'ar.dev.inbox.front.a.b.c', 'a sidecar of the version before reads it');
  t.equal(subjects.cancel, 'ar.dev.cancel');
  subjects.speech = 'plain';
  t.equal(subjects.ctl('hello'), 'ar.dev.ctl.hello', 'a control plane of the version before hears it');
  t.equal(new Subjects('dev').ctl('hello'), 'ar.dev.ctl.hello', 'who only reads has no name');
  t.equal(
    new Subjects('dev', CONTROL).inbox('front', 'a.b.c', 'order-b'),
    'ar.dev.inbox.front.a.b.c.order-b',
    'what is moved stays another one’s',
  );
  t.throws(() => new Subjects('dev', 'a.b'), /cannot stand in a subject/);
  t.end();
});

t.test('names are read out of subjects, where there are any', (t) => {
  const subjects = new Subjects('dev', 'x');
  t.same(
    ['ar.dev.ctl.hello.order-a', 'ar.dev.ctl.hello', 'ar.dev.cancel.order-a', 'ar.dev.cancel', 'ar.dev.hb.order-a'].map((subject) =>
      subjects.speakerOf(subject),
    ),
    ['order-a', null, 'order-a', null, null],
  );
  t.same(subjects.inboxPlace('ar.dev.inbox.front.a.b.c'), { home: 'front', agent: 'a.b.c', writer: null });
  t.same(subjects.inboxPlace('ar.dev.inbox.front.a.b.c.order-a'), { home: 'front', agent: 'a.b.c', writer: 'order-a' });
  t.same(
    ['ar.dev.inbox.front.a.b', 'ar.dev.inbox.front.a.b.c.d.e', 'ar.dev.task.p.normal.0.x'].map((subject) => subjects.inboxPlace(subject)),
    [null, null, null],
  );
  t.equal(subjects.senderOf('ar.dev.task.p.normal.0.order-a'), 'order-a');
  t.end();
});

t.test('no list of permissions opens the server’s API as a whole, and a sidecar’s only what bears its name or is nobody’s', (t) => {
  for (const kind of ['sidecar', 'control', 'operator', 'monitor'] as const) {
    const { publish, hear } = permissionsOf('dev', kind, 'one');
    for (const subject of [...publish, ...hear]) {
      t.notMatch(subject, /^(?:>|\*|\$JS\.>|\$JS\.API\.>|\$SYS|ar\.>|ar\.dev\.>)/, `${kind}: ${subject}`);
      t.notMatch(subject, /[{}]/, 'nothing is left to be filled in');
    }
  }
  const { publish, hear } = permissionsOf('dev', 'sidecar', 'one', { reads: ['crm.order.query', 'pay.*'], works: false });
  t.same(
    publish.filter((subject) => /^ar\.dev\.(?:ctl|hb|report|inforce|cancel|audit)\./.test(subject) && !subject.split('.').includes('one')),
    [],
  );
  t.notOk(
    publish.some((subject) => subject.includes('AR_TASKS')),
    'who does not work pulls nothing',
  );
  t.notOk(publish.some((subject) => /STREAM|CONSUMER\.(?!MSG|INFO)/.test(subject)));
  t.same(
    hear.filter((subject) => subject.startsWith('ar.dev.push.cap.')),
    ['agent.message.handle', 'agent.message.handle.*', 'crm.order.query', 'crm.order.query.*', 'pay.>'].map(
      (name) => `ar.dev.push.cap.${name}`,
    ),
  );
  t.same(
    publish.filter((subject) => subject.startsWith('_INBOX')),
    ['_INBOX.*.told.one.*', '_INBOX.*.told._any.*'],
    'it answers where it was asked by name, or all were, and not at subjects of its choice',
  );
  t.ok(permissionsOf('dev', 'control', 'control-plane').hear.includes('_INBOX._control.>'));
  t.notOk(
    permissionsOf('dev', 'monitor', 'monitor').publish.some((subject) => /CREATE|UPDATE|DELETE|PURGE|MSG|DIRECT|^ar\./.test(subject)),
    'a monitor changes and reads nothing',
  );
  t.end();
});
