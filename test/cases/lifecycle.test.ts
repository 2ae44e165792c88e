/**
 * The end of a sidecar: real processes, a real nats-server and control plane, and what callers, streams, messages and the agents
 * beside it see of it. The variants of a case run side by side, each with a sidecar and capabilities of its own.
 */
import { request as httpRequest } from 'node:http';
import t, { type Test } from 'tap';
import { Header } from '../../proto/wire/headers.ts';
import type { TestAgent } from '../support/agent.ts';
import { OPERATOR } from '../support/control-plane.ts';
import { cast, Fleet, knows } from '../support/fleet.ts';
import { takeBase } from '../support/invariants.ts';
import { nodeArgs } from '../support/paths.ts';
import { CALLER, type Rig, TOKEN } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { type Program, startNode } from '../support/sockets.ts';
import { eventsIn, StreamClient } from '../support/stream-client.ts';
import { agentOf, FAST, finishFleet, NONE, workerProcess } from '../support/workers.ts';

t.setTimeout(118_000);
const before = takeBase();
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
const MESH_TOKEN = 'token-of-the-mesh';
const SYNC = 20;
/** Calls take so long. */
const SYNC_MS = 2_000;

interface Answered {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into whatever came
  readonly json: any;
}

function post(url: string, headers: Readonly<Record<string, string>> = {}, token: string | null = TOKEN): Promise<Answered> {
  const credential = token === null ? {} : { authorization: `Bearer ${token}` };
  return new Promise((done, fail) => {
    const request = httpRequest(
      url,
      { method: 'POST', agent: false, headers: { ...credential, 'content-type': 'application/json', ...headers } },
      (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
        response.on('error', fail).on('aborted', () => fail(new Error('the answer was cut')));
        response.on('end', () => {
          done({ status: response.statusCode ?? 0, headers: response.headers, json: text === '' ? null : JSON.parse(text) });
        });
      },
    );
    request.on('error', fail);
    request.end('{}');
  });
}

/** As another sidecar would ask. */
function postMesh(mesh: string, capability: string, provider: string): Promise<Answered> {
  return post(
    `${mesh}/mesh/v1/invoke/${capability}`,
    { [Header.wire]: '1', [Header.provider]: provider, [Header.version]: '1.0.0', [Header.caller]: CALLER },
    MESH_TOKEN,
  );
}

async function addressesOf(program: Program): Promise<{ url: string; mesh: string }> {
  const said = await program.said(/listens on (http:\S+), mesh (http:\S+) /, 20_000);
  return { url: said[1] as string, mesh: said[2] as string };
}

async function readiness(url: string): Promise<Answered | null> {
  return await new Promise((done) => {
    httpRequest(`${url}/v1/ready`, { agent: false }, (response) => {
      let text = '';
      response.on('data', (chunk: Buffer) => (text += chunk.toString()));
      response.on('end', () => done({ status: response.statusCode ?? 0, headers: response.headers, json: JSON.parse(text) }));
    })
      .on('error', () => done(null))
      .end();
  });
}

/** Milliseconds until a sidecar's table has the provider no more, or has it drained. */
async function notChosen(rig: Rig, capability: string, provider: string, since: number): Promise<number> {
  await waitUntil(
    `${provider} is not chosen any more`,
    () => {
      const versions = rig.started.front.table.current().capabilities.get(capability)?.versions ?? [];
      const found = versions.flatMap(({ candidates }) => candidates).find(({ provider: { agentId } }) => agentId === provider);
      return found === undefined || found.drain || found.health.usable(performance.now()) === 'offline';
    },
    5_000,
    5,
  );
  return performance.now() - since;
}

// ---- C132

/** One sidecar that is going to leave, with an agent of its own and three capabilities. */
class Leaving {
  readonly name: string;
  readonly agent: TestAgent;
  readonly program: Program;
  readonly url: string;
  readonly mesh: string;
  signal: () => void = () => undefined;
  readonly signalled = new Promise<void>((done) => (this.signal = done));
  streams: StreamClient[] = [];
  calls: Promise<Answered>[] = [];
  tasks: string[] = [];

  static async start(t: Test, fleet: Fleet, name: string, settings: string): Promise<Leaving> {
    const agent = await agentOf(t, name);
    const program = workerProcess(t, fleet, name, offers(name, [[name, `crm.order.${name}`, agent]]), `  shutdown: ${settings}\n`).start();
    const { url, mesh } = await addressesOf(program);
    return new Leaving(name, agent, program, url, mesh);
  }

  private constructor(name: string, agent: TestAgent, program: Program, url: string, mesh: string) {
    this.name = name;
    this.agent = agent;
    this.program = program;
    this.url = url;
    this.mesh = mesh;
    agent.behaviour = async ({ headers, json }, response) => {
      const asked = headers[Header.capability];
      if (asked === this.of('sync')) await Promise.all([sleep(SYNC_MS), this.signalled.then(() => sleep(300))]);
      else if (asked === this.of('feed')) {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        const isEndless = (json as { endless: boolean }).endless;
        let isOver = false;
        response.on('close', () => (isOver = true));
        void this.signalled.then(() => sleep(1_000)).then(() => (isOver ||= !isEndless));
        for (let n = 1; !isOver; n++) {
          response.write(`id: ${name}-${n}\ndata: tick\n\n`);
          await sleep(40);
        }
        response.end('data: last\n\n');
        return undefined;
      } else if (asked === this.of('job')) {
        if ((json as { endless: boolean }).endless) await new Promise(() => undefined);
        await this.signalled.then(() => sleep(500));
      }
      return { body: { by: name } };
    };
  }

  of(what: 'sync' | 'feed' | 'job'): string {
    return `crm.${this.name}.${what}`;
  }

  get id(): string {
    return `crm.order.${this.name}`;
  }

  count(what: 'sync' | 'feed' | 'job'): number {
    return this.agent.requests.filter(({ headers }) => headers[Header.capability] === this.of(what)).length;
  }

  /** 20 calls, 5 streams and 5 casts: half of them from its own callers, half through another sidecar. */
  async load(peer: Rig): Promise<void> {
    await Promise.all((['sync', 'feed', 'job'] as const).map((what) => knows(peer, this.of(what))));
    for (let n = 0; n < SYNC; n++)
      this.calls.push(
        n % 2 === 0
          ? post(`${this.url}/v1/invoke/${this.of('sync')}`)
          : peer.invoke(this.of('sync')).then(({ status, headers, json }) => ({ status, headers, json: json as unknown })),
      );
    for (let n = 0; n < 5; n++)
      this.streams.push(new StreamClient(n % 2 === 0 ? this : peer, this.of('feed'), 'events', { endless: n < 2 }));
    for (let n = 0; n < 5; n++) this.tasks.push(await cast(peer, this.of('job'), { endless: n < 3 }));
    await waitUntil(
      `${this.name} has its load`,
      () => this.count('sync') === SYNC && this.count('feed') === 5 && this.count('job') === 5,
      10_000,
    );
    await waitUntil('every stream flows', () => this.streams.every(({ chunks }) => chunks.length > 0), 5_000);
  }
}

/** The three capabilities of each name, served by one agent each. */
function offers(sidecar: string, served: readonly (readonly [name: string, id: string, agent: TestAgent])[]): string {
  const contract = (name: string, more = ''): string =>
    `  - {name: ${name}, version: 1.0.0, description: x, acl: public, execution: idempotent, timeout: 60s, deadline: 60s${more}}\n`;
  const contracts = served.map(
    ([name]) => contract(`crm.${name}.sync`) + contract(`crm.${name}.feed`, ', streaming: true') + contract(`crm.${name}.job`),
  );
  const providers = served.map(([name, id, agent]) => {
    const all = ['sync', 'feed', 'job'].map((what) => `crm.${name}.${what}@1.0.0`).join(', ');
    return `  - {agent_id: ${id}, offers: [${all}], via: ${sidecar}, limits: {per_provider: 100}, endpoint: {type: http, address: "${agent.url}"}}\n`;
  });
  return `contracts:\n${contracts.join('')}providers:\n${providers.join('')}`;
}

/** What a stream was told at its end: the words of its last event. */
function lastEvent(stream: StreamClient): { readonly type: string; readonly data: string } {
  return eventsIn(stream.text).at(-1) ?? { type: '', data: '' };
}

// Input: grace 10 s. Here 4 s, so that the variant that needs all of it does not take so long.
const GRACE_MS = 4_000;

t.test('C132 a stop lets what is under way end, tells what cannot, and gives the rest to others', async (t) => {
  const fleet = await Fleet.start(t);
  const peer = await fleet.sidecar('peer', NONE, FAST);
  const settings = `{grace: ${GRACE_MS}ms}`;
  const leaving = await Promise.all(['term', 'twice', 'drain'].map((name) => Leaving.start(t, fleet, name, settings)));
  const [term, twice, drain] = leaving as [Leaving, Leaving, Leaving];
  await Promise.all(leaving.map((each) => each.load(peer)));
  const other = await agentOf(t, 'other', ({ headers }) => ({ body: { by: 'other', asked: headers[Header.capability] } }));
  const stays = await fleet.sidecar(
    'stays',
    offers(
      'stays',
      leaving.map(({ name, id }) => [name, `${id}b`, other]),
    ),
  );
  await Promise.all(leaving.map((each) => knows(peer, each.of('sync'), 2)));
  await Promise.all([terminated(t, fleet, peer, term), terminatedTwice(t, fleet, twice), drained(t, fleet, peer, drain)]);
  await finishFleet(
    t,
    before,
    fleet,
    [peer, stays],
    [[other, other.executions], ...leaving.map(({ agent }) => [agent, SYNC + 5 + 5] as const)],
  );
});

async function terminated(t: Test, fleet: Fleet, peer: Rig, one: Leaving): Promise<void> {
  const since = performance.now();
  one.program.signal('SIGTERM');
  one.signal();
  const gone = notChosen(peer, one.of('sync'), one.id, since);
  await waitUntil('it is not ready', async () => (await readiness(one.url))?.status === 503, 2_000);
  t.match((await readiness(one.url))?.json, { ready: false, status: 'draining' }, 'alive, and says that it is not ready');

  const fresh = await post(`${one.url}/v1/invoke/${one.of('sync')}`);
  t.match(
    fresh,
    { status: 503, headers: { connection: 'close', 'retry-after': '1' }, json: { code: 2006 } },
    'a new call of an agent beside it',
  );
  const fromPeer = await postMesh(one.mesh, one.of('sync'), one.id);
  t.match(
    fromPeer,
    { status: 503, headers: { connection: 'close', [Header.started]: 'not_started', [Header.code]: '2006' } },
    'a new call of another sidecar: refused, and known not to have begun',
  );
  const elsewhere = await peer.invoke(one.of('sync'));
  t.match(elsewhere.json, { code: 0, data: { by: 'other' } }, 'so it goes elsewhere');
  const later = await cast(peer, one.of('job'), { endless: true });
  const goneMs = await gone;
  t.comment(`not chosen any more after ${goneMs.toFixed(0)} ms`);
  t.ok(goneMs < 1_000, 'peers stop choosing it within a second');

  const calls = await Promise.all(one.calls);
  t.equal(
    calls.filter(({ status, json }) => status === 200 && json.code === 0 && json.data.by === one.name).length,
    SYNC,
    'sync: 20 of 20',
  );
  const exit = await one.program.ended(GRACE_MS + 5_000);
  const tookMs = performance.now() - since;
  t.strictSame(exit, { code: 0, signal: null });
  t.ok(tookMs < GRACE_MS + 1_000, `it was gone after ${tookMs.toFixed(0)} ms, with a grace of ${GRACE_MS} ms`);

  for (const [n, stream] of one.streams.entries()) {
    const { ending } = await stream.over();
    const { type, data } = lastEvent(stream);
    if (n >= 2) t.strictSame([ending, type, data], ['end', 'message', 'last'], `stream ${n} came to its own end`);
    else {
      t.equal(type, 'going_away', `stream ${n} was told`);
      const told = JSON.parse(data) as { code: number; going_away: boolean; resume: string };
      t.match(told, { code: 2006, going_away: true });
      const token = JSON.parse(Buffer.from(told.resume, 'base64url').toString('utf8')) as { provider: string; position: string };
      t.equal(token.provider, one.id);
      t.equal(token.position, `${one.name}-${eventsIn(stream.text).length - 1}`, 'where to go on: behind the last event that it had');
    }
  }
  await waitUntil('the cast that came after the signal is done', async () => (await fleet.statesOf(later)).join() === 'done', 5_000);
  t.equal(one.count('job'), 5, 'by the other one: nothing is pulled any more');
  t.match(one.program.stderr, /2 streams told to go on elsewhere, 3 messages given back for others/, 'it says what had not ended');
  await jobsDone(t, fleet, one, [1, 1, 1, 1, 1]);
}

async function terminatedTwice(t: Test, fleet: Fleet, one: Leaving): Promise<void> {
  one.program.signal('SIGTERM');
  await sleep(200);
  const since = performance.now();
  one.program.signal('SIGTERM');
  t.strictSame(await one.program.ended(5_000), { code: 4, signal: null }, 'calls were cut, and the exit code says so');
  const tookMs = performance.now() - since;
  t.ok(tookMs < 1_500, `the second signal ends the grace: gone after ${tookMs.toFixed(0)} ms`);
  t.match(one.program.stderr, /^reach-sidecar: 20 calls cut, 5 streams told to go on elsewhere, 5 messages given back for others$/m);
  const calls = await Promise.all(one.calls);
  for (const { status, json } of calls) t.match([status, json], [503, { code: 2006, error: { ambiguous: true } }], 'each caller is told');
  for (const stream of one.streams) {
    await stream.over();
    t.equal(lastEvent(stream).type, 'going_away');
  }
  one.signal();
  await jobsDone(t, fleet, one, [1, 1, 1, 1, 1]);
}

async function drained(t: Test, fleet: Fleet, peer: Rig, one: Leaving): Promise<void> {
  const since = performance.now();
  const ordered = await fetch(`${fleet.plane.url}/v1/providers/${one.id}/drain`, {
    method: 'POST',
    headers: { authorization: `Bearer ${OPERATOR}`, 'content-type': 'application/json' },
    body: '{"reason": "the case"}',
  });
  t.equal(ordered.status, 200);
  one.signal();
  const goneMs = await notChosen(peer, one.of('sync'), one.id, since);
  t.ok(goneMs < 1_000, `drained: not chosen any more after ${goneMs.toFixed(0)} ms`);
  t.match((await peer.invoke(one.of('sync'))).json, { code: 0, data: { by: 'other' } }, 'new calls go elsewhere');
  t.match(await readiness(one.url), { status: 200 }, 'the sidecar itself goes on');
  const calls = await Promise.all(one.calls);
  t.equal(calls.filter(({ status, json }) => status === 200 && json.data.by === one.name).length, SYNC, 'sync: 20 of 20');
  for (const stream of one.streams.slice(2)) t.match(await stream.over(), { ending: 'end' });
  t.notOk(
    one.streams.slice(0, 2).some(({ isOver }) => isOver),
    'streams that have not ended go on',
  );
  await waitUntil(
    'the two casts that end have ended',
    async () => (await Promise.all(one.tasks.slice(3).map((task) => fleet.statesOf(task)))).every((states) => states.join() === 'done'),
    5_000,
  );
  const later = await cast(peer, one.of('job'), { endless: false });
  await waitUntil('a new cast is carried out elsewhere', async () => (await fleet.statesOf(later)).join() === 'done', 5_000);
  for (const stream of one.streams.slice(0, 2)) stream.leave();
  // Nothing else of it is under way but the three casts that never end.
  one.program.signal('SIGTERM');
  await sleep(100);
  one.program.signal('SIGTERM');
  t.strictSame(await one.program.ended(5_000), { code: 0, signal: null });
  await jobsDone(t, fleet, one, [1, 1, 1, 1, 1]);
}

/** Each cast has one end, `done`; what was given back does not count as a try. */
async function jobsDone(t: Test, fleet: Fleet, one: Leaving, attempts: readonly number[]): Promise<void> {
  const finals = async () => {
    const all = await fleet.finals();
    return one.tasks.map((task) => all.filter(({ event }) => event.task_id === task).map(({ event }) => event));
  };
  await waitUntil(`the casts of ${one.name} have ended`, async () => (await finals()).every((events) => events.length > 0), 10_000);
  const ends = await finals();
  t.strictSame(
    ends.map((events) => events.map(({ state }) => state).join()),
    ['done', 'done', 'done', 'done', 'done'],
    `every cast of ${one.name} has one end`,
  );
  t.strictSame(
    ends.map((events) => events[0]?.attempts),
    attempts,
    'what was given back is no try',
  );
}

// ---- C133

/** A sidecar with the agent beside it; both are told to stop at once. */
class Pair {
  readonly sidecar: Program;
  readonly agent: Program;
  readonly url: string;
  readonly mesh: string;
  /** What it serves; nobody is sent there when it does not. */
  readonly serves: string;

  /** @param args of the agent, behind its sidecar's URL and its token */
  static async start(t: Test, fleet: Fleet, name: string, settings: string, args: readonly string[], isServing: boolean): Promise<Pair> {
    const worker = workerProcess(t, fleet, name, NONE, `  shutdown: ${settings}\n  anonymous: support.stranger.${name}\n`);
    const sidecar = worker.start();
    const { url, mesh } = await addressesOf(sidecar);
    await waitUntil(`${name} knows what its agent needs`, async () => (await post(`${url}/v1/invoke/${HELP}`)).status === 200, 10_000);
    const agent = startNode([...nodeArgs('test/support/finishing-agent.ts'), url, TOKEN, HELP, ...args]);
    t.teardown(() => agent.signal('SIGKILL'));
    const [, port] = await agent.said(/"port":(\d+)/);
    await agent.said(/"call":0,"outcome":"200 0"/);
    const pair = new Pair(sidecar, agent, url, mesh, `crm.${name}.work`);
    if (isServing) await pair.#register(port as string);
    return pair;
  }

  private constructor(sidecar: Program, agent: Program, url: string, mesh: string, serves: string) {
    this.sidecar = sidecar;
    this.agent = agent;
    this.url = url;
    this.mesh = mesh;
    this.serves = serves;
  }

  async #register(port: string): Promise<void> {
    const answer = await fetch(`${this.url}/v1/agents`, {
      method: 'POST',
      headers: { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        contracts: [
          {
            name: this.serves,
            version: '1.0.0',
            description: 'x',
            acl: 'public',
            execution: 'idempotent',
            deadline: '30s',
            timeout: '30s',
          },
        ],
        provider: { agent_id: CALLER, offers: [`${this.serves}@1.0.0`], endpoint: { type: 'http', address: `http://127.0.0.1:${port}` } },
      }),
    });
    if (answer.status !== 201) throw new Error(await answer.text());
  }

  stop(): number {
    this.sidecar.signal('SIGTERM');
    this.agent.signal('SIGTERM');
    return performance.now();
  }

  /** Of the calls after the signal, in order. */
  outcomes(): string[] {
    return this.agent.stdout
      .split('\n')
      .filter((line) => line.startsWith('{"call":') && !line.startsWith('{"call":0,'))
      .map((line) => (JSON.parse(line) as { outcome: string }).outcome);
  }

  /** What is new is refused at once, whoever asks. */
  async refusesNew(t: Test): Promise<void> {
    await waitUntil('it is not ready', async () => (await readiness(this.url))?.status === 503, 2_000);
    const stranger = await withoutToken(`${this.url}/v1/invoke/${HELP}`);
    t.match(stranger, { status: 503, headers: { connection: 'close' }, json: { code: 2006 } }, 'another agent that begins something');
    t.match(
      await postMesh(this.mesh, this.serves, CALLER),
      { status: 503, headers: { connection: 'close', [Header.started]: 'not_started' } },
      'new work from outside',
    );
  }
}

function withoutToken(url: string): Promise<Answered> {
  return post(url, {}, null);
}

const HELP = 'crm.base.help';

t.test('C133 an agent that is told to stop with its sidecar finishes its work through it', async (t) => {
  const fleet = await Fleet.start(t);
  const helper = await agentOf(t, 'helper');
  const base = await fleet.sidecar(
    'base',
    `contracts: [{name: ${HELP}, version: 1.0.0, description: x, acl: public, execution: idempotent}]\n` +
      `providers: [{agent_id: crm.base.1, offers: [${HELP}@1.0.0], via: base, endpoint: {type: http, address: "${helper.url}"}}]\n`,
  );
  const [serving, calling, endless] = await Promise.all([
    Pair.start(t, fleet, 'serving', '{grace: 10s}', ['3', '650'], true),
    // It says when it has finished; without that word its sidecar would wait for the whole grace.
    Pair.start(t, fleet, 'calling', '{grace: 10s, quiet: 30s}', ['3', '650', CALLER], false),
    Pair.start(t, fleet, 'endless', '{grace: 2s}', ['26', '100'], false),
  ]);
  await Promise.all([finishesWork(t, base, serving), finishesCalls(t, calling), graceEnds(t, endless)]);
  await finishFleet(t, before, fleet, [base], [[helper, helper.executions]]);
});

/** An agent with the work of another in its hands. */
async function finishesWork(t: Test, base: Rig, pair: Pair): Promise<void> {
  await knows(base, pair.serves);
  const inFlight = base.invoke(pair.serves);
  await sleep(200);
  const since = pair.stop();
  const leftMs = notChosen(base, pair.serves, CALLER, since);
  await pair.refusesNew(t);
  const elsewhere = await base.invoke(pair.serves);
  t.ok([2001, 2003, 2006].includes(elsewhere.json.code as number), `nobody takes new work: ${elsewhere.json.code}`);
  t.ok((await leftMs) < 1_000, `the sidecar left the registry first: after ${(await leftMs).toFixed(0)} ms`);
  t.equal(pair.outcomes().length < 3, true, 'when its agent was still at work');

  t.match((await inFlight).json, { code: 0, data: { finished: ['200 0', '200 0', '200 0'] } }, 'three more calls, and the work is done');
  t.strictSame(await pair.agent.ended(5_000), { code: 0, signal: null });
  t.equal(pair.sidecar.exit, null, 'the sidecar is there when its agent has gone');
  const goneAt = performance.now();
  t.strictSame(await pair.sidecar.ended(5_000), { code: 0, signal: null }, 'it exits last, with nothing cut');
  t.ok(performance.now() - goneAt < 3_000, `${(performance.now() - goneAt).toFixed(0)} ms after its agent`);
}

/** An agent that only calls, and says when it has finished. */
async function finishesCalls(t: Test, pair: Pair): Promise<void> {
  pair.stop();
  await pair.refusesNew(t);
  t.strictSame(await pair.agent.ended(6_000), { code: 0, signal: null });
  t.strictSame(pair.outcomes(), ['200 0', '200 0', '200 0']);
  t.match(pair.agent.stdout, /"finished":204/);
  t.strictSame(await pair.sidecar.ended(2_000), { code: 0, signal: null }, 'nobody is waited for who has said that he has finished');
}

/** An agent that never comes to an end: until the grace ends. */
async function graceEnds(t: Test, pair: Pair): Promise<void> {
  const since = pair.stop();
  t.strictSame(await pair.sidecar.ended(5_000), { code: 0, signal: null });
  const tookMs = performance.now() - since;
  t.ok(tookMs > 1_500 && tookMs < 3_000, `it was gone after ${tookMs.toFixed(0)} ms, with a grace of 2 s`);
  await pair.agent.ended(8_000);
  const outcomes = pair.outcomes();
  const ok = outcomes.filter((outcome) => outcome === '200 0').length;
  t.ok(ok >= 5, `${ok} calls until the grace ended`);
  t.strictSame(
    outcomes.slice(ok).filter((outcome) => !/^503 2006$|^broken: /.test(outcome)),
    [],
    'then it is refused, or finds nobody there: never half of an answer',
  );
}
