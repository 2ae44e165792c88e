/**
 * The standalone sidecar as its first user meets it: the very files of README.md, on real processes. Whoever changes the
 * tour changes this test's input, so that the tour cannot rot.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { repoFile } from '../support/paths.ts';
import { waitUntil } from '../support/settle.ts';
import { freePort, type Program, startNode, startProgram } from '../support/sockets.ts';

/** A block of the README that begins by naming the file it is: `# sidecar.yaml` or `// agent.mjs`. */
function readmeFile(name: string): string {
  const text = readFileSync(repoFile('README.md'), 'utf8');
  const block = [...text.matchAll(/```[a-z]+\n([^]*?)```/g)].map((match) => match[1] as string).find((body) => body.startsWith(`# ${name}\n`) || body.startsWith(`// ${name}\n`));
  if (block === undefined) throw new Error(`README.md has no block that begins with ${name}`);
  return block;
}

const TOKEN = 'not-for-production';

interface Tour {
  readonly folder: string;
  readonly url: string;
  readonly sidecar: Program;
  /** Starts the README's agent under this name at the port that stands for `9001` or `9002` in its files. */
  agent(name: string, port: 9001 | 9002): Promise<Program>;
  edit(change: (text: string) => string): void;
  ask(path: string, init?: RequestInit): Promise<{ status: number; body: Record<string, any> }>;
}

t.test('the tour of the README', async (t) => {
  const tour = await startTour(t);
  const first = await tour.agent('a', 9001);
  const invoke = (headers: Record<string, string> = {}, target = 'demo.text.greet'): ReturnType<Tour['ask']> =>
    tour.ask(`/v1/invoke/${target}`, { method: 'POST', body: '{"name":"you"}', headers: { 'content-type': 'application/json', ...headers } });

  await t.test('a call gets a Result that names provider, version and attempts', async (t) => {
    const { status, body } = await invoke({ 'reach-explain': '1' });
    t.equal(status, 200);
    t.match(body, { code: 0, status: 200, error: null, provider: 'demo.greeter.a', version: '1.0.0', degraded: false, data: { text: 'hello from a' } });
    t.equal(body['attempts'].length, 1);
    t.match(body['trace_id'], /^[0-9a-f]{32}$/);
    const stages = body['decision'].map((line: { stage: string }) => line.stage);
    for (const stage of ['identify', 'name', 'acl', 'limits', 'resolve', 'contract', 'deadline', 'choose', 'attempt']) t.ok(stages.includes(stage), `${stage} gives its reason`);
  });

  await t.test('explain says who would serve and calls nobody', async (t) => {
    const { status, body } = await tour.ask('/v1/explain/demo.text.greet');
    t.equal(status, 200);
    t.match(body['would_serve'], { provider: 'demo.greeter.a', version: '1.0.0' });
    t.match(body['candidates'], [{ agent_id: 'demo.greeter.a', verdict: 'serves' }]);
    const { body: refused } = await tour.ask('/v1/explain/demo.text.greet@^2.0');
    t.equal(refused['would_serve'], null);
    t.match(refused['refusal'], { code: 2002, detail: /1\.0\.0/ });
  });

  await t.test('no token, a wrong one and an unknown capability are refused with their codes', async (t) => {
    const bare = await fetch(`${tour.url}/v1/invoke/demo.text.greet`, { method: 'POST', body: '{}' });
    t.equal(bare.status, 401);
    t.equal(bare.headers.get('content-type'), 'application/problem+json');
    t.match(await bare.json(), { code: 4001 });
    t.match(await invoke({ authorization: 'Bearer wrong' }), { status: 401, body: { code: 4001 } });
    t.match(await invoke({}, 'demo.text.greets'), { status: 404, body: { code: 2001 } });
    t.match(await invoke({}, 'Demo.greet'), { status: 400, body: { code: 4006 } });
  });

  await t.test('a bad edit changes nothing, and health says what is wrong where', async (t) => {
    tour.edit((text) => text.replace('acl: public', 'alc: public'));
    await waitUntil('the refusal', async () => (await tour.ask('/v1/health')).body['status'] === 'stale');
    const { body } = await tour.ask('/v1/health');
    const problem = body['table'].problems.find((each: { message: string }) => each.message.includes('alc'));
    t.match(problem, { message: /acl/, column: Number });
    t.equal(problem.line, lineOf(tour.folder, 'alc: public'));
    t.match(await invoke(), { status: 200, body: { provider: 'demo.greeter.a' } });
    t.match(await tour.ask('/v1/ready'), { status: 200 });
  });

  await t.test('a good edit is in force without a restart: a canary, held for each conversation', async (t) => {
    await tour.agent('b', 9002);
    tour.edit((text) => `${text.replace('alc: public', 'acl: public')}${readmeFile('added to sidecar.yaml').replaceAll('9002', String(portsOf(tour).b))}`.replace(/\nproviders:/, '\nproviders:'));
    await waitUntil('the new table', async () => (await tour.ask('/v1/health')).body['status'] === 'ok' && (await tour.ask('/v1/capabilities')).body['capabilities'][0].versions.length === 2);
    const met = new Map<string, Set<string>>();
    for (let round = 0; round < 2; round++) {
      for (let i = 0; i < 60; i++) {
        const { body } = await invoke({ 'reach-affinity': `talk-${i}` });
        met.set(`talk-${i}`, (met.get(`talk-${i}`) ?? new Set()).add(body['version']));
      }
    }
    t.equal([...met.values()].filter((versions) => versions.size > 1).length, 0, 'no conversation met two versions');
    const onNew = [...met.values()].filter((versions) => versions.has('1.1.0')).length;
    t.ok(onNew > 0 && onNew < 60, `some met the new one (${onNew} of 60)`);
  });

  await t.test('nobody left to serve gives the fallback, marked as degraded', async (t) => {
    first.signal('SIGKILL');
    await first.ended();
    const results = [];
    for (let i = 0; i < 20; i++) results.push((await invoke({ 'reach-affinity': `talk-${i}` })).body);
    t.strictSame(results.filter((body) => body['code'] !== 0), [], 'no call fails');
    t.match(results.find((body) => body['degraded']) ?? { provider: 'demo.greeter.b' }, {});
  });

  await t.test('metrics, health and OpenAPI are served', async (t) => {
    const metrics = await (await fetch(`${tour.url}/metrics`)).text();
    t.match(metrics, /^# TYPE reach_/m);
    t.match(await tour.ask('/v1/openapi.json'), { status: 200, body: { openapi: /^3\./ } });
    t.equal((await tour.ask('/v1/health')).body['calls'].in_flight, 0);
  });

  await t.test('SIGTERM ends it cleanly, and it has said nothing secret', async (t) => {
    tour.sidecar.signal('SIGTERM');
    t.strictSame(await tour.sidecar.ended(), { code: 0, signal: null });
    t.notMatch(tour.sidecar.stdout + tour.sidecar.stderr, TOKEN);
  });
});
