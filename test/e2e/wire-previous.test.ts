/**
 * This release beside the one before: what that one says (recorded, `test/fixtures/wire-previous`) is read here, and what is said
 * here has everything in it that it reads. The fixtures were made by `test/support/wire-words.ts` in the tree of that release.
 */
import { readFileSync } from 'node:fs';
import t from 'tap';
import { decodeEnvelope } from '../../proto/wire/envelope.ts';
import { readsWire, wireProblem } from '../../proto/wire/version.ts';
import { readRecord } from '../../sidecar/ledger/record.ts';
import { readAnswer } from '../../sidecar/table/answer.ts';
import { open, readBeacon, readCapability, readScope } from '../../sidecar/table/readable.ts';
import { askLeader } from '../support/control-plane.ts';
import { Fleet, knows } from '../support/fleet.ts';
import { repoFile } from '../support/paths.ts';
import { askMesh, recordWords, type Words } from '../support/wire-words.ts';
import { waitUntil } from '../support/settle.ts';
import { agentOf, NONE } from '../support/workers.ts';

const before = JSON.parse(readFileSync(repoFile('test/fixtures/wire-previous/words.json'), 'utf8')) as Words;

type Json = Record<string, unknown>;

function word(kind: string): Json {
  const text = before.bus[kind];
  if (text === undefined) throw new Error(`no fixture of ${kind}`);
  return JSON.parse(text.split('\n', 1)[0] as string) as Json;
}

function bytes(value: unknown): Buffer {
  return Buffer.from(JSON.stringify(value), 'utf8');
}

t.test('a version is read when it is this one or the one before, and refused with both numbers otherwise', (t) => {
  t.strictSame(
    [1, 2, 3, 4, 0, '3', undefined, null].map((said) => readsWire(said, 3)),
    [false, true, true, false, false, false, false, false],
  );
  t.notOk(readsWire(0, 1), 'there is none before the first');
  t.equal(wireProblem(7, 3, 'the mesh'), 'it speaks version 7 of the mesh, and this program version 3 and 2: update the older one');
  t.equal(wireProblem(undefined, 1, 'the mesh'), 'it speaks version unknown of the mesh, and this program version 1: update the older one');
  t.end();
});

t.test('states, beacons, answers, envelopes and claims of the release before are read, also with a field that nobody knows', (t) => {
  for (const more of [{}, { of_tomorrow: { a: [1] } }]) {
    const opened = open(bytes({ ...word('capability state'), ...more }));
    if ('problem' in opened) throw new Error(opened.problem);
    t.match(readCapability(opened, 'crm.near.query', 0), { name: 'crm.near.query', providers: [{ record: {} }] });
    const scope = open(bytes({ ...word('scope state'), ...more }));
    if ('problem' in scope) throw new Error(scope.problem);
    t.match(readScope(scope), { capabilities: ['crm.far.query', 'crm.near.query'] });
    t.match(readBeacon(bytes({ ...word('beacon'), ...more })), { lastSeq: Number, epoch: String });
    t.match(readAnswer(bytes({ ...word('answer'), ...more })), { ok: true, refused: [] });
    const [, ...rest] = (before.bus['envelope'] as string).split('\n');
    const envelope = decodeEnvelope(Buffer.concat([bytes({ ...word('envelope'), ...more }), Buffer.from(`\n${rest.join('\n')}`)]));
    t.match(envelope?.envelope, { capability: 'crm.near.query', source: 'support.planner.1', message_type: 'task_request' });
    t.equal(envelope?.payload.toString('utf8'), '{"job":1}');
    const claim = Buffer.concat([bytes({ ...word('claim'), ...more }), Buffer.from('\n{"answer":42}')]);
    t.match(readRecord('x', claim), { state: 'executing', ask: { caller: 'support.planner.1' } });
  }
  for (const kind of ['capability state', 'scope state', 'beacon', 'answer']) {
    const stranger = bytes({ ...word(kind), wire: 9 });
    if (kind === 'answer') t.match(readAnswer(stranger), /version 9 .* version 1/);
    else if (kind === 'beacon') t.equal(readBeacon(stranger), null);
    else t.match(open(stranger), { problem: /version 9 .* version 1/ });
  }
  t.end();
});

t.test('a sidecar of the release before is at home in this fleet: it is taken in, called, and calls', async (t) => {
  const fleet = await Fleet.start(t);
  const agent = await agentOf(t, 'near');
  const says = (verb: 'hello' | 'register' | 'leave', said: Json): Promise<unknown> => askLeader(fleet.bus, fleet.subjects.ctl(verb), said);
  const hello = word('hello');
  t.match(await says('hello', { ...hello, of_tomorrow: true }), { ok: true, refused: [] }, 'hello');
  t.match(
    await says('register', { ...word('register'), sidecar: hello['sidecar'], instance: hello['instance'] }),
    { ok: true },
    'register',
  );
  fleet.bus.publish(fleet.subjects.report('near'), bytes({ ...word('report'), instance: hello['instance'] }));
  await waitUntil(
    'its report is heard',
    async () => {
      const { body } = await fleet.plane.ask('/v1/sidecars');
      return JSON.stringify(body).includes(String(word('report')['version']));
    },
    5_000,
  );
  const one = await fleet.sidecar('one', NONE);
  await knows(one, 'crm.near.query');
  t.equal(one.started.front.table.current().providers.get('crm.near.1')?.meshUrl, hello['mesh'], 'whoever calls it finds it');
  const refused = (await says('hello', { ...hello, wire: 9 })) as { refused: { problems: string[] }[] };
  t.match(refused, { ok: false, refused: [{ problems: [/version 9 .* version 1/] }] }, 'an unknown version is told both');
  t.match(await says('leave', { ...word('leave'), instance: hello['instance'] }), { ok: true }, 'leave');

  const table =
    'contracts: [{name: crm.far.query, version: 1.0.0, description: x, acl: public, execution: idempotent}]\n' +
    `providers: [{agent_id: crm.far.1, offers: [crm.far.query@1.0.0], via: two, endpoint: {type: http, address: "${agent.url}"}}]\n`;
  const two = await fleet.sidecar('two', table);
  await waitUntil('it hosts its agent', () => (two.started.front.table.current().providers.get('crm.far.1') ?? null) !== null, 10_000);
  const mesh = two.started.meshUrl as string;
  const answered = await askMesh(mesh, before.mesh.path, before.mesh.request);
  t.match(answered, before.mesh.answer, 'a call as it makes it is answered as it expects');
  const nobody = await askMesh(mesh, before.mesh.path, { ...before.mesh.request, 'reach-provider': 'crm.far.9' });
  t.match(nobody, { ...before.mesh.refusal, 'reach-detail': String }, 'so is one that is refused');
  t.match(await askMesh(mesh, before.mesh.path, { ...before.mesh.request, 'reach-wire': '9' }), {
    'reach-started': 'not_started',
    'reach-code': '2003',
  });
});

t.test('what is said here has everything in it that the release before reads, in the same form', async (t) => {
  const now = await recordWords(t);
  for (const [kind, text] of Object.entries(before.bus)) {
    const said = now.bus[kind];
    if (said === undefined) {
      t.ok(OCCASIONAL.has(kind), `${kind} was said`);
      continue;
    }
    const lost: string[] = [];
    missing(JSON.parse(text.split('\n', 1)[0] as string), JSON.parse(said.split('\n', 1)[0] as string), kind, lost);
    t.strictSame(lost, [], kind);
    t.equal((JSON.parse(said.split('\n', 1)[0] as string) as Json)['wire'], word(kind)['wire'], `${kind}: the version`);
  }
  t.strictSame(
    Object.keys(before.mesh.request).filter((name) => !(name in now.mesh.request)),
    [],
    'headers of a mesh call',
  );
  t.equal(now.mesh.path, before.mesh.path);
  t.strictSame(now.mesh.answer, before.mesh.answer);
  t.match(now.mesh.refusal, { ...before.mesh.refusal, 'reach-detail': String });
});

/** Said when there is an occasion. */
const OCCASIONAL: ReadonlySet<string> = new Set(['note', 'heartbeat', 'registration state']);

/** Where something is that the other one does not have, or has in another form. Members of lists are compared with the first of theirs. */
function missing(was: unknown, is: unknown, at: string, lost: string[]): void {
  if (was === null || was === undefined) return;
  if (formOf(was) !== formOf(is)) {
    if (is !== null) lost.push(`${at}: ${formOf(was)} before, ${formOf(is)} now`);
    return;
  }
  if (Array.isArray(was)) {
    if (was.length > 0 && (is as unknown[]).length > 0) missing(was[0], (is as unknown[])[0], `${at}[]`, lost);
  } else if (typeof was === 'object')
    for (const [key, value] of Object.entries(was as Json)) {
      if (!(key in (is as Json))) {
        if (!VARYING.has(at)) lost.push(`${at}.${key} is gone`);
      } else missing(value, (is as Json)[key], `${at}.${key}`, lost);
    }
}

/** Maps whose keys are names. */
const VARYING: ReadonlySet<string> = new Set(['answer.states', 'registration state.offline']);

function formOf(value: unknown): string {
  return value === null ? 'null' : Array.isArray(value) ? 'list' : typeof value;
}
