/**
 * The standalone sidecar as its first user meets it: the very files of README.md, on real processes. Whoever changes the
 * tour changes what this test runs, so that the tour cannot rot.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { TestAgent } from '../support/agent.ts';
import { repoFile } from '../support/paths.ts';
import { waitUntil } from '../support/settle.ts';
import { freePort, type Program, startNode, startProgram } from '../support/sockets.ts';

/** Twenty processes in all, on a machine that may be busy. */
t.setTimeout(120_000);

const TOKEN = 'not-for-production';
const JSON_TYPE = { 'content-type': 'application/json' };

type Body = Record<string, unknown>;

/** A block of the README, found by its first line. */
function readmeBlock(firstLine: string): string {
  const text = readFileSync(repoFile('README.md'), 'utf8');
  for (const match of text.matchAll(/^```[a-z]+\n([^]*?)^```/gm)) if (match[1]?.startsWith(`${firstLine}\n`)) return match[1];
  throw new Error(`README.md has no block that begins with ${firstLine}`);
}

/** A folder of its own and free ports in place of those that the README names. */
class Tour {
  readonly folder = mkdtempSync(join(tmpdir(), 'reach-tour-'));
  readonly #ports: Readonly<Record<string, number>>;

  private constructor(ports: Readonly<Record<string, number>>) {
    this.#ports = ports;
  }

  static async make(t: Test): Promise<Tour> {
    const tour = new Tour({ 7700: await freePort(), 7702: await freePort(), 9001: await freePort(), 9002: await freePort() });
    t.teardown(() => rmSync(tour.folder, { recursive: true, force: true }));
    return tour;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#ports['7700']}`;
  }

  /** Writes a block of the README and gives where it stands. */
  write(file: string, text: string): string {
    const path = join(this.folder, file);
    writeFileSync(
      path,
      text.replace(/7700|7702|9001|9002/g, (port) => String(this.#ports[port])),
    );
    return path;
  }

  async startAgent(t: Test, name: string, readmePort: 9001 | 9002): Promise<Program> {
    const port = String(this.#ports[readmePort]);
    const agent = startNode([this.write('agent.mjs', readmeBlock('// agent.mjs')), name, port]);
    t.teardown(() => agent.stop());
    await waitUntil(`agent ${name}`, async () => (await fetch(`http://127.0.0.1:${port}`).catch(() => null))?.status === 200);
    return agent;
  }

  async ask(
    path: string,
    payload?: unknown,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<{ status: number; type: string | null; body: Body }> {
    const post = payload === undefined ? {} : { method: 'POST', body: JSON.stringify(payload) };
    const answer = await fetch(`${this.url}${path}`, { ...post, headers: { authorization: `Bearer ${TOKEN}`, ...JSON_TYPE, ...headers } });
    return { status: answer.status, type: answer.headers.get('content-type'), body: (await answer.json()) as Body };
  }

  greet(headers: Readonly<Record<string, string>> = {}, target = 'demo.text.greet'): ReturnType<Tour['ask']> {
    return this.ask(`/v1/invoke/${target}`, {}, headers);
  }
}

async function startSidecar(t: Test, settings: string): Promise<Program> {
  const sidecar = startProgram('sidecar/main.ts', ['run', settings]);
  t.teardown(() => sidecar.stop());
  await sidecar.said(/listens on .*\n/, 20_000);
  return sidecar;
}

/** Runs it to its end: what it said on stderr beside its log, line by line. */
async function refused(settings: string): Promise<{ code: number | null; lines: string[] }> {
  const sidecar = startProgram('sidecar/main.ts', ['run', settings]);
  const { code } = await sidecar.ended(20_000);
  return {
    code,
    lines: sidecar.stderr
      .trim()
      .split('\n')
      .filter((line) => !line.startsWith('{')),
  };
}

t.test('the tour of the README', async (t) => {
  const tour = await Tour.make(t);
  const agents = [await tour.startAgent(t, 'a', 9001)];
  const original = readmeBlock('# table.yaml');
  tour.write('table.yaml', original);
  const sidecar = await startSidecar(t, tour.write('sidecar.yaml', readmeBlock('# sidecar.yaml')));

  await t.test('a call gets a Result with provider, version and attempts, and on request the reason of every stage', async (t) => {
    const { status, body } = await tour.greet({ 'reach-explain': '1' });
    t.equal(status, 200);
    t.match(body, {
      code: 0,
      status: 200,
      data: { text: 'Hello from a' },
      error: null,
      provider: 'demo.greeter.a',
      version: '1.0.0',
      degraded: false,
    });
    t.match(body, { attempts: [{ provider: 'demo.greeter.a', code: 0, started: 'done' }], trace_id: /^[0-9a-f]{32}$/ });
    const stages = (body['decision'] as { stage: string; words: string }[]).filter(({ words }) => words !== '').map(({ stage }) => stage);
    t.strictSame(stages, [
      'identify',
      'name',
      'acl',
      'overrides',
      'limits',
      'resolve',
      'contract',
      'deadline',
      'choose',
      'loops',
      'attempt',
    ]);
  });

  await t.test('explain says who would serve, or what exists instead', async (t) => {
    t.match(await tour.ask('/v1/explain/demo.text.greet'), {
      status: 200,
      body: {
        would_serve: { provider: 'demo.greeter.a', version: '1.0.0' },
        refusal: null,
        candidates: [{ agent_id: 'demo.greeter.a', verdict: 'serves' }],
      },
    });
    t.match(await tour.ask('/v1/explain/demo.text.greet@^2.0'), {
      status: 200,
      body: {
        would_serve: null,
        refusal: { code: 2002, detail: 'demo.text.greet: asked ^2.0; exists: 1.0.0 (1 provider)' },
        candidates: [{ agent_id: 'demo.greeter.a', verdict: 'left_out', because: 'version 1.0.0 is not what was asked for (^2.0)' }],
      },
    });
  });

  await t.test(
    'a missing token, a wrong one, an unknown capability, a bad name and a bad range get their codes as problem documents',
    async (t) => {
      const bare = await fetch(`${tour.url}/v1/invoke/demo.text.greet`, { method: 'POST', headers: JSON_TYPE, body: '{}' });
      t.match([bare.status, await bare.json()], [401, { code: 4001 }]);
      const type = /^application\/problem\+json/;
      t.match(await tour.greet({ authorization: 'Bearer someone-else' }), {
        status: 401,
        type,
        body: { code: 4001, name: 'unauthenticated' },
      });
      t.match(await tour.greet({}, 'demo.text.greets'), { status: 404, type, body: { code: 2001, name: 'no_provider' } });
      t.match(await tour.greet({}, 'Demo.greet'), { status: 400, type, body: { code: 4006, detail: /crm\.order\.query/ } });
      t.match(await tour.greet({}, 'demo.text.greet@1..2'), { status: 400, type, body: { code: 4006 } });
      t.match(await tour.greet({}, 'demo.text.greet@^2.0'), { status: 404, type, body: { code: 2002, detail: /exists: 1\.0\.0/ } });
    },
  );

  await t.test('a bad edit changes nothing, and health names line, column and the likely word', async (t) => {
    const bad = original.replace('acl: public', 'alc: public');
    tour.write('table.yaml', bad);
    await waitUntil('the refusal of the edit', async () => (await tour.ask('/v1/health')).body['status'] === 'stale');
    const { body } = await tour.ask('/v1/health');
    const { problems } = body['table'] as { problems: { line: number; column: number; message: string }[] };
    const line = bad.split('\n').findIndex((each) => each.includes('alc:')) + 1;
    t.match(
      problems.find((problem) => problem.message.includes('alc')),
      { line, column: 5, message: 'unknown key "alc": did you mean acl?' },
    );
    t.match(await tour.greet(), { status: 200, body: { provider: 'demo.greeter.a' } });
    t.equal((await tour.ask('/v1/ready')).status, 200);
  });

  await t.test('a good edit is in force without a restart: a canary, held for each conversation', async (t) => {
    agents.push(await tour.startAgent(t, 'b', 9002));
    tour.write('table.yaml', readmeBlock('# table.yaml, with a canary and a fallback'));
    await waitUntil('the new table', async () => (await tour.ask('/v1/health')).body['status'] === 'ok');
    const met = new Map<string, Set<unknown>>();
    for (let i = 0; i < 120; i++) {
      const talk = `talk-${i % 60}`;
      const { body } = await tour.greet({ 'reach-affinity': talk });
      met.set(talk, (met.get(talk) ?? new Set()).add(body['version']));
    }
    const versions = [...met.values()];
    t.equal(versions.filter((each) => each.size > 1).length, 0, 'no conversation met two versions');
    const onNew = versions.filter((each) => each.has('1.1.0')).length;
    // 12 expected of 60, standard deviation 3.1
    t.ok(onNew >= 1 && onNew <= 24, `${onNew} of 60 conversations met 1.1.0`);
  });

  await t.test('nobody left to serve: the fallback answers, marked as degraded, and says what was tried', async (t) => {
    for (const agent of agents) {
      agent.signal('SIGKILL');
      await agent.ended();
    }
    const { status, body } = await tour.greet();
    t.equal(status, 200);
    t.match(body, { code: 0, degraded: true, provider: null, data: { text: 'Hello from nobody in particular' } });
    const attempts = body['attempts'] as { provider: string; started: string }[];
    t.strictSame(attempts.map(({ provider }) => provider).sort(), ['demo.greeter.a', 'demo.greeter.b']);
    t.ok(attempts.every(({ started }) => started === 'not_started'));
  });

  await t.test('metrics and the OpenAPI document are served, and nothing is left in flight', async (t) => {
    t.match(await (await fetch(`${tour.url}/metrics`)).text(), /^# TYPE reach_/m);
    t.match(await tour.ask('/v1/openapi.json'), { status: 200, body: { openapi: /^3\.1/ } });
    t.match(await tour.ask('/v1/health'), { body: { calls: { in_flight: 0 } } });
  });

  await t.test('SIGTERM ends it cleanly, and it has never said its token', async (t) => {
    sidecar.signal('SIGTERM');
    t.strictSame(await sidecar.ended(), { code: 0, signal: null });
    t.notMatch(sidecar.stdout + sidecar.stderr, TOKEN);
  });
});

t.test('a call under way when SIGTERM comes gets its answer, and new ones are turned away', async (t) => {
  const tour = await Tour.make(t);
  let answer = (): void => {};
  const agent = await TestAgent.listen('slow', async () => {
    await new Promise<void>((done) => {
      answer = done;
    });
    return { body: { text: 'late, but here' } };
  });
  t.teardown(() => agent.close());
  tour.write('table.yaml', readmeBlock('# table.yaml').replace('http://127.0.0.1:9001', agent.url));
  const sidecar = await startSidecar(t, tour.write('sidecar.yaml', readmeBlock('# sidecar.yaml')));
  const underWay = tour.greet();
  await waitUntil('the call to reach the agent', () => agent.executions === 1);
  sidecar.signal('SIGTERM');
  const readiness = async (): Promise<number> => (await tour.ask('/v1/ready').catch(() => null))?.status ?? 0;
  await waitUntil('the sidecar to be draining', async () => (await readiness()) !== 200);
  const late = await tour.greet().catch(() => null);
  t.ok(late === null || late.status === 503, 'a new call is refused');
  answer();
  t.match(await underWay, { status: 200, body: { code: 0, data: { text: 'late, but here' } } });
  t.strictSame(await sidecar.ended(), { code: 0, signal: null });
  t.equal(agent.executions, 1);
});

t.test('what it cannot start with is said in one sentence, with status 2 and without a stack', async (t) => {
  const tour = await Tour.make(t);
  const settings = tour.write('sidecar.yaml', readmeBlock('# sidecar.yaml'));

  await t.test('a port that is taken', async (t) => {
    const port = Number(new URL(tour.url).port);
    const holder = await TestAgent.listen('holder', undefined, port);
    t.teardown(() => holder.close());
    t.strictSame(await refused(settings), { code: 2, lines: [`reach-sidecar: the port 127.0.0.1:${port} is taken by another process`] });
  });

  await t.test('a settings file that is not there', async (t) => {
    const missing = join(tour.folder, 'missing.yaml');
    t.strictSame(await refused(missing), { code: 2, lines: [`reach-sidecar: ${missing}: cannot be read (ENOENT)`] });
  });

  await t.test('a secret that is not set, whose name is said and nothing else', async (t) => {
    const text = readmeBlock('# sidecar.yaml').replace(`token: ${TOKEN}`, 'token: { env: REACH_TEST_NO_SUCH_SECRET }');
    const { code, lines } = await refused(tour.write('secret.yaml', text));
    t.equal(code, 2);
    t.equal(lines.length, 1);
    t.match(lines[0], /REACH_TEST_NO_SUCH_SECRET/);
  });

  await t.test('a mistake in the file, with its line', async (t) => {
    const text = readmeBlock('# sidecar.yaml').replace('listen:', 'lissten:');
    const { code, lines } = await refused(tour.write('typo.yaml', text));
    t.equal(code, 2);
    t.match(lines[0], /typo\.yaml:4:\d+ .*lissten.*did you mean listen\?/);
    t.notMatch(lines.join('\n'), TOKEN);
  });
});

t.test('a table file that is not there yet: alive but not ready, and ready as soon as it appears', async (t) => {
  const tour = await Tour.make(t);
  await startSidecar(t, tour.write('sidecar.yaml', readmeBlock('# sidecar.yaml')));
  t.match(await tour.ask('/v1/ready'), { status: 503, body: { ready: false } });
  t.match(await tour.ask('/v1/health'), {
    status: 200,
    body: { status: 'starting', table: { problems: [{ message: /cannot be read \(ENOENT\)/ }] } },
  });
  t.match(await tour.greet(), { status: 503, body: { code: 2003 } });
  await tour.startAgent(t, 'a', 9001);
  tour.write('table.yaml', readmeBlock('# table.yaml'));
  await waitUntil('readiness', async () => (await tour.ask('/v1/ready')).status === 200);
  t.match(await tour.greet(), { status: 200, body: { data: { text: 'Hello from a' } } });
});

t.test('`make dev-standalone` starts the team, what it prints works, and Ctrl-C leaves nothing behind', async (t) => {
  const dev = startProgram('deploy/local/dev-standalone.ts');
  t.teardown(() => dev.stop(15_000));
  const [, tableFile] = await dev.said(/^ {2}(\/.*\/team\.yaml)$/m, 60_000);
  const [, token, url] = (await dev.said(/Bearer (\S+)'.* '(http:\S+)\/v1\/invoke\/crm\.order\.query/)) as unknown as [
    string,
    string,
    string,
  ];
  const headers = { authorization: `Bearer ${token}`, 'x-session': 'me', ...JSON_TYPE };
  const answer = await fetch(`${url}/v1/invoke/crm.order.query@^2.0`, { method: 'POST', headers, body: '{"order":"1042"}' });
  t.match(await answer.json(), { code: 0, version: '2.0.0', provider: /^crm\.order\.(a1|b1)$/, data: { order: '1042', state: 'waiting' } });
  const explained = await fetch(`${url}/v1/explain/crm.order.query@^2.0`, { headers });
  t.match(await explained.json(), { would_serve: { version: '2.0.0' }, candidates: { length: 3 } });
  dev.signal('SIGINT');
  t.strictSame(await dev.ended(20_000), { code: 0, signal: null });
  t.notOk(existsSync(tableFile as string), 'its files are removed');
  await t.rejects(fetch(`${url}/v1/ready`), 'its sidecars are gone');
});
