import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pino } from 'pino';
import t from 'tap';
import { SeededRandom } from '../../../base/random.ts';
import { VirtualClock } from '../../../base/virtual-clock.ts';
import { readTable } from '../../../proto/language/document.ts';
import { NO_LIMITS } from '../../../proto/language/settings-fields.ts';
import type { TableDocument } from '../../../proto/language/types.ts';
import { Health } from '../../../sidecar/health/health.ts';
import { type CapabilityPart, compile, compileParts } from '../../../sidecar/table/compile.ts';
import { FileTable, wordsOfProblem } from '../../../sidecar/table/file.ts';
import { InstalledTable } from '../../../sidecar/table/installed.ts';
import { LastGood } from '../../../sidecar/table/last-good.ts';
import { admittedBy, type Candidate, type Snapshot, type Version } from '../../../sidecar/table/snapshot.ts';
import { contractOf, policyOf, providerOf } from '../../support/route-table.ts';

const HERE = { name: 'here', region: 'eu', zone: 'a' };

function documentOf(text: string): TableDocument {
  const reading = readTable(text, 'table.yaml', 'here');
  if ('problems' in reading) throw new Error(reading.problems.map(wordsOfProblem).join('\n'));
  return reading.document;
}

interface Bench {
  readonly clock: VirtualClock;
  readonly health: Health;
  push(text: string): Snapshot;
}

function bench(): Bench {
  const clock = new VirtualClock();
  const health = new Health(clock, { consecutive: 3, forMs: 5_000 });
  let version = 0;
  return { clock, health, push: (text) => compile(documentOf(text), health, HERE, ++version) };
}

const line = (table: Snapshot, name: string, version: string): Version =>
  table.capabilities.get(name)?.versions.find((one) => one.text === version) as Version;
const at = (table: Snapshot, name: string, version: string, agent: string): Candidate =>
  line(table, name, version).candidates.find((one) => one.provider.agentId === agent) as Candidate;

const CONTRACT = '{name: crm.order.query, version: 2.0.0, description: x, acl: public';
const MOCK = 'endpoint: {type: mock}';
const SMALL = `
contracts: [${CONTRACT}, aliases: [order]}]
providers: [{agent_id: crm.order.1, offers: [crm.order.query@2.0.0], ${MOCK}}]
`;

t.test('compile', async (t) => {
  t.test('versions stand newest first by semver, candidates by agent id, aliases lead to the capability', async (t) => {
    const table = bench().push(`
contracts:
  - {name: crm.order.query, version: 1.9.0, description: x, acl: public}
  - {name: crm.order.query, version: 2.0.0, description: x, acl: public}
  - {name: crm.order.query, version: 1.10.0, description: x, acl: public, aliases: [orders]}
  - {name: crm.order.query, version: 2.0.0-rc.1, description: x, acl: public}
providers:
  - {agent_id: crm.order.b, offers: [crm.order.query@1.10.0, crm.order.query@2.0.0], ${MOCK}}
  - {agent_id: crm.order.a, offers: [crm.order.query@1.10.0], ${MOCK}}
`);
    t.strictSame(
      table.capabilities.get('crm.order.query')?.versions.map((one) => one.text),
      ['2.0.0', '2.0.0-rc.1', '1.10.0', '1.9.0'],
    );
    t.strictSame(
      line(table, 'crm.order.query', '1.10.0').candidates.map((one) => one.provider.agentId),
      ['crm.order.a', 'crm.order.b'],
    );
    t.strictSame(line(table, 'crm.order.query', '1.9.0').candidates, [], 'a contract without a provider is known all the same');
    t.equal(table.aliases.get('orders'), table.capabilities.get('crm.order.query'));
  });

  t.test('settings: default < contract < policies from general to exact < policy for the provider, field by field', async (t) => {
    const table = bench().push(`
contracts:
  - {name: crm.order.query, version: 2.0.0, description: x, acl: public, timeout: 2s, breaker: {min_calls: 20, open: 9s}}
  - {name: nlp.text.write, version: 1.0.0, description: x, acl: public}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0], weight: 3, ${MOCK}}
  - {agent_id: crm.order.2, offers: [crm.order.query@2.0.0, nlp.text.write@1.0.0], weight: 3, ${MOCK}}
policies:
  - {capability: crm.order.query, breaker: {open: 7s}, providers: {crm.order.1: {breaker: {probes: 1}, weight: 5}}}
  - {capability: "*", timeout: 3s, load: random, breaker: {open: 8s, window: 30s}}
  - {capability: "crm.*", load: round_robin, providers: {crm.order.1: {timeout: 1s, breaker: {probes: 2, successes: 2}}}}
`);
    t.match(line(table, 'crm.order.query', '2.0.0').settings, {
      timeoutMs: 3_000,
      load: 'round_robin',
      breaker: { minCalls: 20, openMs: 7_000, windowMs: 30_000, probes: 3 },
      deadlineMs: 10_000,
    });
    const first = at(table, 'crm.order.query', '2.0.0', 'crm.order.1');
    t.match(
      first.settings,
      { timeoutMs: 1_000, breaker: { probes: 1, successes: 2, openMs: 7_000 } },
      'two policies for one provider: each field from the strongest that says it',
    );
    t.equal(first.weight, 5);
    t.equal(at(table, 'crm.order.query', '2.0.0', 'crm.order.2').weight, 3);
    t.match(line(table, 'nlp.text.write', '1.0.0').settings, { timeoutMs: 3_000, load: 'random' });
    t.equal(first.health.settings.probes, 1, 'the breaker has the settings of its own provider');
  });

  t.test('a drain by policy is for the capabilities that it covers; one on the record for all; the operator is the stronger', async (t) => {
    const table = bench().push(`
contracts:
  - {name: crm.order.query, version: 2.0.0, description: x, acl: public}
  - {name: crm.refund.apply, version: 1.0.0, description: x, acl: public}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0, crm.refund.apply@1.0.0], ${MOCK}}
  - {agent_id: crm.order.2, offers: [crm.order.query@2.0.0, crm.refund.apply@1.0.0], drain: true, ${MOCK}}
policies:
  - {capability: crm.order.query, providers: {crm.order.1: {drain: true}, crm.order.2: {drain: false}}}
`);
    const drain = (name: string, version: string, agent: string): boolean => at(table, name, version, agent).drain;
    t.strictSame([drain('crm.order.query', '2.0.0', 'crm.order.1'), drain('crm.refund.apply', '1.0.0', 'crm.order.1')], [true, false]);
    t.strictSame([drain('crm.order.query', '2.0.0', 'crm.order.2'), drain('crm.refund.apply', '1.0.0', 'crm.order.2')], [false, true]);
  });

  t.test('how a provider is reached, and how far away it is', async (t) => {
    const table = bench().push(`
contracts: [${CONTRACT}}]
sidecars: [{name: there, mesh: "http://10.0.0.2:7701"}]
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0], ${MOCK}, locality: {region: eu, zone: a}}
  - {agent_id: crm.order.2, offers: [crm.order.query@2.0.0], ${MOCK}, locality: {region: eu, zone: b}, via: here}
  - {agent_id: crm.order.3, offers: [crm.order.query@2.0.0], ${MOCK}, locality: {region: us, zone: a}, via: there}
  - {agent_id: crm.order.4, offers: [crm.order.query@2.0.0], ${MOCK}}
`);
    const seen = [...table.providers.values()].map((one) => [one.reach, one.meshUrl, one.distance]);
    t.strictSame(seen, [
      ['direct', '', 0],
      ['self', '', 1],
      ['mesh', 'http://10.0.0.2:7701', 2],
      ['direct', '', 2],
    ]);
    t.equal(at(table, 'crm.order.query', '2.0.0', 'crm.order.3').settings.breaker.enabled, false, 'its host keeps the breaker');
    t.equal(at(table, 'crm.order.query', '2.0.0', 'crm.order.2').settings.breaker.enabled, true);
  });

  t.test('calls at once: what the record says, else the least of its capabilities', async (t) => {
    const table = bench().push(`
contracts:
  - {name: crm.order.query, version: 2.0.0, description: x, acl: public, limits: {per_provider: 9}}
  - {name: crm.refund.apply, version: 1.0.0, description: x, acl: public, limits: {per_provider: 5}}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0, crm.refund.apply@1.0.0], ${MOCK}}
  - {agent_id: crm.order.2, offers: [crm.order.query@2.0.0, crm.refund.apply@1.0.0], limits: {per_provider: 70}, ${MOCK}}
`);
    t.strictSame(
      [...table.providers.values()].map((one) => one.health.limit),
      [5, 70],
    );
  });

  t.test('one check of the ACL answers for all versions only where they are the same', async (t) => {
    const same = (a: string, b: string): boolean | undefined =>
      bench()
        .push(
          `contracts: [{name: a.b.c, version: 1.0.0, description: x, acl: ${a}}, {name: a.b.c, version: 2.0.0, description: x, acl: ${b}}]`,
        )
        .capabilities.get('a.b.c')?.sameAcl;
    t.equal(same('public', 'public'), true);
    t.equal(same('[team:x, role:y]', '[team:x, role:y]'), true);
    t.equal(same('public', '[team:x]'), false);
    t.equal(same('[team:x]', '[team:y]'), false);
    t.match(admittedBy({ isPublic: true, patterns: [] }, 'a', 'b', 'c'), 'public');
    t.equal(admittedBy({ isPublic: false, patterns: [] }, 'a', 'b', 'c'), null, 'an empty list admits nobody');
  });

  t.test("the operator's default range and canary are those of the strongest policy that names one", async (t) => {
    const capability = bench()
      .push(`
contracts: [${CONTRACT}}, {name: crm.order.query, version: 2.1.0, description: x, acl: public}]
policies:
  - {capability: crm.order.query, canary: {"2.1.0": 5%}}
  - {capability: "*", default_range: "^1"}
  - {capability: "crm.*", default_range: "^2"}
`)
      .capabilities.get('crm.order.query');
    t.equal(capability?.defaultRange, '^2');
    t.strictSame([...(capability?.canary ?? [])], [['2.1.0', 0.05]]);
  });

  t.test('a push keeps what is known of the health of those that stay, and forgets the rest', async (t) => {
    const here = bench();
    const two = `${SMALL.replace(/\]\n$/, '')}, {agent_id: crm.order.2, offers: [crm.order.query@2.0.0], ${MOCK}}]\npolicies: [{capability: "*", breaker: {min_calls: 2, open: 1h}}]\n`;
    let table = here.push(two);
    for (const agent of ['crm.order.1', 'crm.order.2']) {
      const { health } = at(table, 'crm.order.query', '2.0.0', agent);
      for (let i = 0; i < 2; i++) health.end(health.admit(0), 'failure', 1, 0);
    }
    table = here.push(two.replace('open: 1h', 'open: 2h'));
    t.equal(at(table, 'crm.order.query', '2.0.0', 'crm.order.1').health.usable(0), 'breaker_open', 'state survives a push of settings');
    table = here.push(SMALL);
    table = here.push(two);
    t.equal(at(table, 'crm.order.query', '2.0.0', 'crm.order.1').health.stateName, 'open');
    t.equal(at(table, 'crm.order.query', '2.0.0', 'crm.order.2').health.stateName, 'closed', 'who left and came back begins anew');
  });

  t.test('schemas are compiled, and the same one only once', async (t) => {
    const here = bench();
    const text = `contracts: [${CONTRACT}, input: {type: object, required: [id]}, output: true}]`;
    const table = here.push(text);
    const first = line(table, 'crm.order.query', '2.0.0');
    t.match(first.input?.validate({}), [/id/]);
    t.equal(first.input?.validate({ id: 1 }), null);
    t.equal(first.output, null, 'true needs no check');
    t.equal(line(here.push(text), 'crm.order.query', '2.0.0').input, first.input);
  });
});

t.test('a table that came by a thousand pushes is the one that would come at once', async (t) => {
  const random = new SeededRandom(7);
  const pick = (most: number): number => Math.floor(random.next() * most);
  const names = ['crm.order.query', 'crm.order.refund', 'nlp.intent.read', 'nlp.mood.read'];
  const world = { clock: new VirtualClock(), parts: new Map<string, CapabilityPart>() };
  const health = new Health(world.clock, { consecutive: 3, forMs: 5_000 });
  /** A few of twelve agents, each offering some versions of it, with limits of all three kinds. */
  const partOf = (name: string): CapabilityPart => {
    const versions = ['1.0.0', '1.1.0', '2.0.0'].slice(0, pick(4));
    const contracts = versions.map((version) => contractOf(name, version, { limits: { ...NO_LIMITS, perProvider: 10 + pick(5) } }));
    const providers = Array.from({ length: 12 }, (_, n) => n)
      .filter(() => random.next() < 0.4)
      .map((n) => {
        const offers = versions.filter(() => random.next() < 0.7).map((version) => `${name}@${version}`);
        const perProvider = random.next() < 0.3 ? 1 + pick(9) : null;
        return { record: providerOf(`a.b.p${n}`, offers, { weight: pick(100), limits: { ...NO_LIMITS, perProvider } }), mesh: '' };
      });
    const policies = random.next() < 0.3 ? [policyOf(name, { limits: { ...NO_LIMITS, perProvider: 3 + pick(4) } })] : [];
    return { name, contracts, policies, providers };
  };
  let table: Snapshot | null = null;
  let wrong = 0;
  const seen = (snapshot: Snapshot, of: Health) => ({
    providers: [...snapshot.providers.keys()].sort(),
    limits: [...snapshot.providers.values()].map(({ agentId, health: { limit } }) => `${agentId} ${limit}`).sort(),
    known: [...of.providers()].map(({ agentId }) => agentId).sort(),
    cells: [...of.cells()].map(({ agentId, capability }) => `${agentId} ${capability}`).sort(),
    uses: [...(snapshot.uses ?? [])].sort(),
    candidates: [...snapshot.capabilities.values()]
      .map(
        ({ name, versions }) => `${name} ${versions.map((one) => one.candidates.map((each) => `${each.provider.agentId}*${each.weight}`))}`,
      )
      .sort(),
  });
  for (let n = 1; n <= 1_000; n++) {
    for (let moves = 1 + pick(3); moves > 0; moves--) {
      const name = names[pick(names.length)] as string;
      if (random.next() < 0.15) world.parts.delete(name);
      else world.parts.set(name, partOf(name));
    }
    table = compileParts(new Map(world.parts), [], table, health, HERE, n);
    const fresh = new Health(world.clock, { consecutive: 3, forMs: 5_000 });
    const atOnce = compileParts(new Map(world.parts), [], null, fresh, HERE, n);
    if (JSON.stringify(seen(table, health)) === JSON.stringify(seen(atOnce, fresh))) continue;
    if (wrong++ === 0) t.strictSame(seen(table, health), seen(atOnce, fresh), `push ${n}`);
  }
  t.equal(wrong, 0);
});

t.test('the table in force', async (t) => {
  const clock = new VirtualClock();
  const health = new Health(clock, { consecutive: 3, forMs: 5_000 });
  const table = new InstalledTable(clock, health, HERE);
  t.strictSame([table.ready, table.current().version, table.current().capabilities.size], [false, 0, 0]);
  await clock.advance(100);
  const first = table.install(documentOf(SMALL), 'file');
  t.match(table, { ready: true, source: 'file', installedAt: 100, staleBecause: '', refusals: 0 });
  t.equal(
    at(first, 'crm.order.query', '2.0.0', 'crm.order.1').health.weightFactor(clock.now()),
    1,
    'who was there from the start counts as warm',
  );
  table.refuse([{ file: 'x', line: 1, column: 1, path: '', message: 'bad' }], 'the newest x was refused: 1 problem');
  t.match(table, { ready: true, refusals: 1, staleBecause: /refused/, problems: [{ message: 'bad' }] });
  t.equal(table.current(), first, 'a refusal changes nothing');
  const joined = table.install(
    documentOf(SMALL.replace(/\]\n$/, `, {agent_id: crm.order.2, offers: [crm.order.query@2.0.0], ${MOCK}}]\n`)),
    'file',
  );
  t.match([joined.version, table.staleBecause, table.problems.length, table.refusals], [2, '', 0, 1]);
  t.ok(at(joined, 'crm.order.query', '2.0.0', 'crm.order.2').health.weightFactor(clock.now()) < 1, 'a newcomer starts slowly');
  t.equal(at(joined, 'crm.order.query', '2.0.0', 'crm.order.1').health.weightFactor(clock.now()), 1);
  t.equal(first.providers.size, 1, 'a call that read the table before keeps what it read');
});

t.test('the last good copy', async (t) => {
  const folder = join(t.testdir({}), 'deep', 'state');
  const kept = new LastGood(folder, 'desk');
  t.equal(kept.read(), null);
  t.equal(kept.keep('one'), null);
  t.equal(kept.keep('two'), null);
  t.equal(kept.read(), 'two');
  t.strictSame(readdirSync(folder), ['desk.last-good.yaml'], 'nothing temporary is left');
  t.equal(statSync(kept.file).mode & 0o077, 0, 'nobody else may read it: it may hold tokens');
  t.equal(new LastGood(folder, 'other').read(), null, 'sidecars that share a folder do not share the copy');
  const blocked = t.testdir({ file: 'not a folder' });
  t.match(new LastGood(join(blocked, 'file', 'state'), 'desk').keep('x'), /the last good table cannot be kept in .*: (ENOTDIR|EEXIST)/);
  t.equal(new LastGood(join(blocked, 'file', 'state'), 'desk').read(), null);
});

t.test('the table file', async (t) => {
  interface Case {
    readonly file: string;
    readonly state: string;
    readonly clock: VirtualClock;
    readonly table: InstalledTable;
    readonly source: FileTable;
    readonly log: string[];
  }
  const open = (t: { testdir(content: Record<string, string>): string }, content: string | null, state: string | null = null): Case => {
    const folder = t.testdir(content === null ? {} : { 'team.yaml': content });
    const file = join(folder, 'team.yaml');
    const clock = new VirtualClock();
    const table = new InstalledTable(clock, new Health(clock, { consecutive: 3, forMs: 5_000 }), HERE);
    const log: string[] = [];
    const logger = pino({ level: 'info' }, { write: (text: string) => void log.push(text) });
    const where = state ?? join(folder, 'state');
    return {
      file,
      state: where,
      clock,
      table,
      log,
      source: new FileTable(file, 'team.yaml', table, new LastGood(where, 'desk'), clock, logger),
    };
  };
  const looks = (here: Case): Promise<void> => here.clock.advance(1_000);

  t.test('is read at the start, and again when it changes; not when it does not', async (t) => {
    const here = open(t, SMALL);
    here.source.start();
    t.match(here.table, { ready: true, source: 'file' });
    await looks(here);
    t.equal(here.table.current().version, 1);
    writeFileSync(here.file, SMALL.replaceAll('2.0.0', '2.1.0'));
    await looks(here);
    t.equal(here.table.current().version, 2);
    t.ok(line(here.table.current(), 'crm.order.query', '2.1.0'));
    t.match(
      here.log.map((text) => (JSON.parse(text) as { msg: string }).msg),
      ['table installed', 'table installed'],
    );
    here.source.stop();
    writeFileSync(here.file, SMALL);
    await looks(here);
    t.strictSame([here.table.current().version, here.clock.nextAt()], [2, null], 'after stop nothing looks any more');
  });

  t.test('a bad edit changes nothing and says so with line and column; the next good one heals it', async (t) => {
    const here = open(t, SMALL);
    here.source.start();
    for (const [bad, says] of [
      [SMALL.replace('acl: public', 'acll: public'), /team\.yaml:2:\d+ \/contracts\/0\/acll: unknown key "acll": did you mean acl\?/],
      [SMALL.replace('@2.0.0', '@9.9.9'), /team\.yaml:3:\d+ \/providers\/0\/offers\/0/],
      [SMALL.slice(0, 60), /team\.yaml:/],
      ['', /the file is empty/],
    ] as const) {
      const refusals = here.table.refusals;
      writeFileSync(here.file, bad);
      await looks(here);
      t.equal(here.table.current().version, 1);
      t.equal(here.table.refusals, refusals + 1, 'said once, not at every look');
      t.match(here.table.problems.map(wordsOfProblem).join('\n'), says);
      t.match(here.table.staleBecause, /the newest team\.yaml was refused: \d+ problems?$/);
      t.match(here.log.at(-1), /table refused; the one in force stays/);
    }
    writeFileSync(here.file, SMALL);
    await looks(here);
    t.match([here.table.current().version, here.table.staleBecause, here.table.problems.length], [2, '', 0]);
    here.source.stop();
  });

  t.test('a file that goes away or cannot be read is a refusal; coming back by rename is a change', async (t) => {
    const here = open(t, SMALL);
    here.source.start();
    renameSync(here.file, `${here.file}.old`);
    await looks(here);
    t.match([here.table.current().version, here.table.problems.map(wordsOfProblem)], [1, ['team.yaml cannot be read (ENOENT)']]);
    renameSync(`${here.file}.old`, here.file);
    await looks(here);
    t.match([here.table.current().version, here.table.staleBecause], [2, '']);
    rmSync(here.file);
    mkdirSync(here.file);
    await looks(here);
    t.match(here.table.problems.map(wordsOfProblem), ['team.yaml cannot be read (EISDIR)']);
    here.source.stop();
  });

  t.test('a start with a bad file serves from the last good copy, and says that it is stale', async (t) => {
    const good = open(t, SMALL);
    good.source.start();
    good.source.stop();
    t.equal(readFileSync(join(good.state, 'desk.last-good.yaml'), 'utf8'), SMALL);
    writeFileSync(good.file, 'contracts: 7\n');
    const clock = new VirtualClock();
    const table = new InstalledTable(clock, new Health(clock, { consecutive: 3, forMs: 5_000 }), HERE);
    const source = new FileTable(good.file, 'team.yaml', table, new LastGood(good.state, 'desk'), clock, pino({ level: 'silent' }));
    source.start();
    t.match(table, { ready: true, source: 'last good copy', staleBecause: /refused/, problems: [{ line: 1 }] });
    t.equal(table.current().providers.size, 1);
    writeFileSync(good.file, SMALL);
    await clock.advance(1_000);
    t.match(table, { source: 'file', staleBecause: '' });
    source.stop();
  });

  t.test('without a last good copy a bad file leaves the sidecar not ready, until it is mended', async (t) => {
    const here = open(t, null);
    here.source.start();
    t.match(here.table, { ready: false, refusals: 1, problems: [{ message: 'cannot be read (ENOENT)' }] });
    writeFileSync(here.file, SMALL);
    await looks(here);
    t.equal(here.table.ready, true);
    here.source.stop();
  });

  t.test('a copy that is itself no table is not believed', async (t) => {
    const here = open(t, 'contracts: 7\n');
    mkdirSync(here.state, { recursive: true });
    writeFileSync(join(here.state, 'desk.last-good.yaml'), 'junk: true\n');
    here.source.start();
    t.equal(here.table.ready, false);
    here.source.stop();
  });

  t.test('where no copy can be kept, the table serves all the same and the log warns', async (t) => {
    const blocked = t.testdir({ file: 'x' });
    const here = open({ testdir: () => blocked }, null, join(blocked, 'file', 'state'));
    writeFileSync(here.file, SMALL);
    here.source.start();
    t.equal(here.table.ready, true);
    t.match(here.log.at(-1), /the last good table cannot be kept/);
    here.source.stop();
  });

  t.equal(wordsOfProblem({ file: 'a.yaml', line: 3, column: 5, path: '/x', message: 'is bad' }), 'a.yaml:3:5 /x: is bad');
});
