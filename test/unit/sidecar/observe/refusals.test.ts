/** What policy refuses goes to the audit log: counted, bounded, with names and rules and nothing else. */
import t from 'tap';
import { createLog } from '../../../../base/log.ts';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { auditStreams } from '../../../../control-plane/audit/streams.ts';
import { DEFAULT_AUDIT } from '../../../../control-plane/audit/config.ts';
import { type AuditSaid, readEntry } from '../../../../proto/wire/audit.ts';
import { Code } from '../../../../proto/wire/codes.ts';
import { REFUSED_STREAM, Subjects } from '../../../../proto/wire/subjects.ts';
import { Call, type WayIn } from '../../../../sidecar/call/call.ts';
import { Principal } from '../../../../sidecar/call/principal.ts';
import { passing, refusing, Verdict } from '../../../../sidecar/call/verdict.ts';
import { RefusalLog } from '../../../../sidecar/observe/refusal-log.ts';
import { Refusals } from '../../../../sidecar/observe/refusals.ts';
import { Capability } from '../../../../sidecar/table/snapshot.ts';
import { MemoryNats } from '../../../support/memory-bus.ts';
import { settle } from '../../../support/settle.ts';

const denied = refusing('acl', 'denied', Code.forbidden, '{a} may not call {b}');
const letIn = passing('acl', 'audited', '{a} would not be let in to {b}');
const strange = refusing('identify', 'unknown_credential', Code.unauthenticated, 'the credential does not count at this sidecar: {a}');
const busy = refusing('slots', 'busy', Code.provider_busy, 'no slot');
const quota = refusing('quotas', 'agent', Code.rate_limited, '{a} is above its quota');

function world() {
  const clock = new VirtualClock();
  const lines: string[] = [];
  const to = { write: (line: string) => void lines.push(line) };
  const log = createLog({ level: 'info', to, service: 'test' }).logger;
  const refusals = new Refusals(clock, log);
  const told: AuditSaid[] = [];
  refusals.to = (said) => void told.push(said);
  const judge = (agent: string | null, name: string | null, verdict: Verdict | null, way: WayIn = 'http'): void => {
    const call = new Call(
      way,
      'whatever the caller wrote',
      { authorization: 'Bearer a-secret-of-the-caller' },
      Buffer.from('{"payload":"a secret"}'),
      '',
      false,
      clock,
    );
    call.principal = agent === null ? null : new Principal(agent, way === 'mesh' ? 'front' : null);
    call.capability = name === null ? null : new Capability(name, null, null);
    if (verdict?.reason.passes === true) call.letIn = verdict;
    else if (verdict !== null) {
      call.refusal = verdict;
      call.code = verdict.reason.code;
    }
    refusals.judged(call);
  };
  return { clock, log, lines, refusals, told, judge };
}

t.test('the first refusal is told at once, the rest as sums; what is no policy is not told', async (t) => {
  const { clock, told, judge, refusals, lines } = world();
  const may = (): Verdict => new Verdict(denied, 'web.desk.1', 'crm.order.query');
  for (let i = 0; i < 500; i++) judge('web.desk.1', 'crm.order.query', may());
  judge('web.desk.1', 'crm.order.query', new Verdict(busy));
  judge('web.desk.1', 'crm.order.query', null);
  t.match(told, [
    {
      actor: 'web.desk.1',
      role: 'agent',
      action: 'call.refused',
      subject: 'crm.order.query',
      reason: 'web.desk.1 may not call crm.order.query',
      outcome: 'refused',
      code: 4002,
      count: 1,
      detail: { rule: 'acl.denied', via: '' },
    },
  ]);
  await clock.advance(10_000);
  t.match(told.slice(1), [{ count: 499 }]);
  t.match(refusals.counts, { refused: 500, audited: 0 });
  t.equal(lines.length, 2);
});

t.test('each end and each kind has its entry: callers, peers, messages, quotas, and what a list in audit let in', async (t) => {
  const { told, judge, lines } = world();
  judge(null, null, new Verdict(strange, 'it is not known here'));
  judge('web.desk.1', 'crm.order.query', new Verdict(denied, 'web.desk.1', 'crm.order.query'), 'mesh');
  judge('web.desk.1', 'crm.order.query', new Verdict(denied, 'web.desk.1', 'crm.order.query'), 'message');
  judge('web.desk.1', 'crm.order.query', new Verdict(quota, 'web.desk.1'));
  judge('web.desk.1', 'crm.order.query', new Verdict(letIn, 'web.desk.1', 'crm.order.query'));
  t.match(told, [
    { actor: '', action: 'call.refused', subject: '', code: 4001 },
    { action: 'mesh.refused', code: 4002, detail: { via: 'front' } },
    { action: 'message.refused', code: 4002 },
    { action: 'call.refused', code: 3004, detail: { rule: 'quotas.agent' } },
    { action: 'call.audited', outcome: 'audited', code: 4002, reason: 'web.desk.1 would not be let in to crm.order.query' },
  ]);
  t.notMatch(JSON.stringify(told) + lines.join(''), /secret|whatever the caller wrote/);
});

t.test('a flood of callers is bounded, and stays a chain in the log', async (t) => {
  const { clock, log, refusals, judge } = world();
  const nats = new MemoryNats(() => clock.wallMs());
  const subjects = new Subjects('test');
  for (const spec of auditStreams(subjects, DEFAULT_AUDIT, 1)) nats.ensure(spec);
  const { bus } = nats.open('edge');
  await settle(1);
  const chain = new RefusalLog(bus, subjects, 'edge', clock, log);
  refusals.to = (said) => chain.add(said);
  for (let i = 0; i < 10_000; i++) judge(`web.desk.${i}`, 'crm.order.query', new Verdict(denied, `web.desk.${i}`, 'crm.order.query'));
  refusals.flush();
  await settle(200);
  const stored = (nats.streams.get(REFUSED_STREAM)?.messages ?? []).map(({ data }) => readEntry(data.toString('utf8')));
  t.equal(stored.length, 66, '64 callers, the others together, and their sum');
  t.match(stored.at(-1), { writer: 'sidecar:edge', n: 66, actor: '', reason: 'several callers, capabilities and rules', count: 9_935 });
  t.equal(
    stored.reduce((sum, entry) => sum + (entry?.count ?? 0), 0),
    10_000,
  );
  await chain.stop(0);
});
