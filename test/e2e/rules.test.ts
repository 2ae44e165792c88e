/**
 * Rules for messages on a whole fleet: a control plane on a real nats-server, sidecars with real agents. The example of the
 * specification is applied as it is written, and each of its rules decides what it is there for.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { realClock } from '../../base/clock.ts';
import { runReachctl } from '../../control-plane/cli/program.ts';
import type { RulesAnswer } from '../../control-plane/api/rule-shapes.ts';
import { MESSAGE_CAPABILITY } from '../../proto/wire/envelope.ts';
import { OPERATOR } from '../support/control-plane.ts';
import { Fleet, knows } from '../support/fleet.ts';
import { Rig } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { agentOf, FAST, NONE } from '../support/workers.ts';

t.setTimeout(110_000);

const EXAMPLE = `rules:
  - name: route_to_retriever
    when: { message_type: task_request, target_role: retriever }
    action: { dispatch: random, priority: high }
  - name: route_to_aggregator             # parts of one sequence meet at one aggregator
    when: { message_type: task_result, source_role: retriever }
    action: { dispatch: sticky, sticky_by: sequence_id }
  - name: fallback_to_human_review        # same condition as the first: taken when the first finds nobody
    when: { message_type: task_request, target_role: retriever }
    action: { dispatch: random, priority: normal }
    fallback: { if_no_available_agent: notify_admin }
`;
const RETRIEVER = 'token-of-the-retriever';
const CALLERS = { 'search.retriever.r1': RETRIEVER };

function handlers(sidecar: string, agents: readonly (readonly [string, string])[]): string {
  const providers = agents.map(
    ([id, url]) =>
      `  - {agent_id: ${id}, offers: [${MESSAGE_CAPABILITY}@1.0.0], via: ${sidecar}, endpoint: {type: http, address: "${url}"}}\n`,
  );
  return `contracts: [{name: ${MESSAGE_CAPABILITY}, version: 1.0.0, acl: public, execution: idempotent}]\nproviders:\n${providers.join('')}`;
}

const usesRules = (rig: Rig, version: number): Promise<void> =>
  waitUntil(`rules of version ${version}`, () => rig.started.front.registry?.client.ruling.current().version === version, 10_000);

const send = (rig: Rig, payload: object, token?: string) =>
  rig.ask('/v1/messages', { method: 'POST', payload: { payload: {}, ...payload }, ...(token === undefined ? {} : { token }) });

t.test('the example of the specification', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'reach-rules-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const file = (name: string, text: string): string => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  const fleet = await Fleet.start(t);
  const ctl = async (...args: string[]) => {
    const out: string[] = [];
    const err: string[] = [];
    const io = {
      out: (text: string) => void out.push(text),
      err: (text: string) => void err.push(text),
      env: { REACH_SERVER: fleet.plane.url, REACH_TOKEN: OPERATOR },
      clock: realClock,
      stdin: async () => '',
    };
    const exit = await runReachctl(args, io, '1.0.0');
    return { exit, out: out.join('\n'), err: err.join('\n') };
  };
  const sender = await fleet.sidecar('sender', NONE, FAST, { callers: CALLERS });
  const example = file('rules.yaml', EXAMPLE);
  const request = { message_type: 'task_request', target_role: 'retriever' };

  await t.test('is applied as it is written, and counts at the sender at once', async (t) => {
    const applied = await ctl('apply', example);
    t.equal(applied.exit, 0, applied.err);
    t.match(applied.out, /\+ rule fallback_to_human_review/);
    t.match(applied.out, /rule route_to_retriever is unreachable: no message meets it so far: no agent with the role or tag retriever/);
    await usesRules(sender, 1);
  });

  await t.test('nobody is there: the rule with the same condition wants a person to look', async (t) => {
    const { status, json } = await send(sender, request);
    t.match(
      { status, json },
      { status: 202, json: { durable: 'stream', state: 'parked', rule: 'fallback_to_human_review', lane: 'normal' } },
    );
    const [kept] = await fleet.kept();
    t.match(kept, { kind: 'review', task_id: json.task_id, rule: 'fallback_to_human_review', source: 'support.planner.1' });
    t.equal(await fleet.queued(), 0);
  });

  await t.test('nobody is there and no fallback is named: it waits, in the order of its sequence', async (t) => {
    for (let part = 0; part < 4; part++) {
      const early = { message_type: 'task_result', target_role: 'aggregator', sequence_id: 's0', payload: { sequence: 's0', part } };
      t.match((await send(sender, early, RETRIEVER)).json, { state: 'parked', rule: 'route_to_aggregator' });
    }
  });

  const retriever = await agentOf(t, 'retriever');
  const first = await agentOf(t, 'first');
  const second = await agentOf(t, 'second');
  await fleet.sidecar(
    'workers',
    handlers('workers', [
      ['search.retriever.r9', retriever.url],
      ['search.aggregator.a1', first.url],
      ['search.aggregator.a2', second.url],
    ]),
  );
  await knows(sender, MESSAGE_CAPABILITY, 3);

  await t.test('somebody is there: the first rule sends it, in its lane', async (t) => {
    const { json } = await send(sender, { ...request, priority: 'low' });
    t.match(json, { state: 'accepted', rule: 'route_to_retriever', lane: 'high' });
    await waitUntil('the retriever has it', () => retriever.executions === 1, 10_000);
  });

  await t.test('parts of one sequence meet at one aggregator, in order', async (t) => {
    const sequences = ['s1', 's2', 's3', 's4', 's5', 's6'];
    for (let part = 0; part < 4; part++)
      for (const sequence of sequences) {
        const result = { message_type: 'task_result', target_role: 'aggregator', sequence_id: sequence, payload: { sequence, part } };
        const { status, json } = await send(sender, result, RETRIEVER);
        t.match({ status, rule: json.rule }, { status: 202, rule: 'route_to_aggregator' });
      }
    await waitUntil('all are there', () => first.executions + second.executions >= 28, 20_000);
    for (const sequence of ['s0', ...sequences]) {
      const partsAt = (agent: typeof first): number[] =>
        agent.requests
          .map(({ json }) => json as { sequence: string; part: number })
          .flatMap((each) => (each.sequence === sequence ? [each.part] : []));
      const [one, two] = [partsAt(first), partsAt(second)];
      t.ok(one.length === 0 || two.length === 0, `${sequence} is at one of them`);
      t.same([...one, ...two], [0, 1, 2, 3]);
    }
  });

  await t.test('what each rule decided is counted, at the sidecar and over the fleet', async (t) => {
    const hits = async (): Promise<Record<string, number>> => {
      const { body } = await fleet.plane.ask('/v1/rules');
      return Object.fromEntries((body as unknown as RulesAnswer).rules.map((rule) => [rule.name, rule.hits]));
    };
    await send(sender, { message_type: 'other', target_role: 'aggregator' });
    await waitUntil('it is reported', async () => (await fleet.plane.ask('/v1/rules')).body['messages'] === 31, 15_000);
    t.same(await hits(), { route_to_retriever: 1, route_to_aggregator: 28, fallback_to_human_review: 1 });
    const metrics = (await sender.ask('/metrics')).bytes.toString('utf8');
    t.match(metrics, 'reach_rule_messages_total{rule="route_to_aggregator"} 28');
    t.match(metrics, 'reach_rule_messages_total{rule=""} 1');
    const list = await ctl('rules', 'list');
    t.match(list.out, /^version 1, 31 messages.*, \d sidecars?$/m);
    t.match(list.out, /^route_to_aggregator +message_type task_result, source_role retriever +sticky by sequence_id +the next rule +28$/m);
    t.match((await ctl('rules', 'lint')).out, /^3 rules, nothing found$/);
  });

  await t.test('a file is tried on what was sent, and looked through, before it is applied', async (t) => {
    const other = file(
      'other.yaml',
      `${EXAMPLE}  - { name: late, when: { target_role: retriever, message_type: task_request } }\n  - { name: quiet, when: { message_type: other }, action: { priority: low } }\n`,
    );
    const tried = await ctl('rules', 'test', other);
    t.match(tried.out, /of 31 messages, 1 would be decided otherwise/, tried.err);
    t.match(tried.out, /~ 1 with message_type other, source_role planner, target_role aggregator/);
    t.match(tried.out, /after: +quiet: random, low; when nobody is there: queue_task/);
    const lint = await ctl('rules', 'lint', other, '--strict');
    t.equal(lint.exit, 1);
    t.match(lint.out, /^late: shadowed: it never decides: fallback_to_human_review has the same condition/m);
    const recording = file('recorded.jsonl', (await ctl('rules', 'record')).out);
    const offline = await runOffline(['rules', 'test', other, '--messages', recording, '--against', example]);
    t.match(offline, /of 31 messages, 1 would be decided otherwise/);
    t.match(
      await runOffline(['rules', 'test', example, '--messages', recording]),
      /^message_type task_result, .* +28 +route_to_aggregator +sticky by sequence_id/m,
    );
    t.match((await ctl('rules', 'test', other, '--messages', recording, '--in-force')).out, /1 would be decided otherwise/);
  });

  await t.test('a bad push changes nothing; a staged one reaches its share; a rollback brings back what was', async (t) => {
    const bad = await ctl('apply', file('bad.yaml', EXAMPLE.replace('target_role', 'target_rol')));
    t.equal(bad.exit, 1);
    t.match(bad.err, /bad\.yaml:3:41: unknown key "target_rol": did you mean target_role\?/);
    t.equal(sender.started.front.registry?.client.ruling.current().version, 1);
    const staged = await ctl('apply', file('staged.yaml', EXAMPLE.replace('priority: high', 'priority: low')), '--share', '99.9%');
    t.equal(staged.exit, 0, staged.err);
    await usesRules(sender, 2);
    t.match((await send(sender, request)).json, { rule: 'route_to_retriever', lane: 'low' });
    t.match((await ctl('rules', 'list')).out, /version 2, rolled out to 99\.9%/);
    await waitUntil('they say so', async () => (await ctl('policies', 'promote')).exit === 0, 15_000);
    t.equal((await ctl('policies', 'rollback', '1')).exit, 0);
    await usesRules(sender, 3);
    t.match((await send(sender, request)).json, { rule: 'route_to_retriever', lane: 'high' });
    const standing = async () => JSON.stringify((await fleet.plane.ask('/v1/sidecars')).body['summary']);
    await waitUntil('everybody is current', async () => (await standing()).includes('"current":2'), 10_000);
  });
});

/** Without any control plane. */
async function runOffline(args: readonly string[]): Promise<string> {
  const out: string[] = [];
  const io = {
    out: (text: string) => void out.push(text),
    err: (text: string) => void out.push(text),
    env: { REACH_SERVER: 'http://127.0.0.1:1' },
    clock: realClock,
    stdin: async () => '',
  };
  await runReachctl(args, io, '1.0.0');
  return out.join('\n');
}

t.test('a sidecar without a registry looks through rules and says that it uses them for nothing', async (t) => {
  const rig = await Rig.start(t, {
    table: `${NONE}${EXAMPLE}  - { name: late, when: { message_type: task_request, target_role: retriever } }\n`,
  });
  const said = rig.logged.map(({ msg }) => String(msg));
  t.ok(said.some((words) => /rules are for messages, which need NATS/.test(words)));
  t.ok(said.some((words) => words.startsWith('shadowed: it never decides')));
  const bad = await Rig.start(t, { table: `${NONE}${EXAMPLE}  - { nam: x }\n` });
  t.equal(bad.started.front.ready, false);
  t.match(JSON.stringify(bad.logged), /table\.yaml:14:7 .*unknown key .*did you mean name\?/);
});
