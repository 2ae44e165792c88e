/**
 * The pages say what is there: every command that they show is one of our programs, every file, page, heading, make target, metric
 * and error code that they name exists, and every setting comes with advice. So that they cannot rot.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { Command } from 'commander';
import t from 'tap';
import { realClock } from '../../../base/clock.ts';
import { buildProgram } from '../../../control-plane/cli/program.ts';
import { Adviser, configPage } from '../../../docs/generate-config.ts';
import { CODES } from '../../../proto/wire/codes.ts';
import { commandsIn, problemOf } from '../../support/command-lines.ts';
import { repoFile } from '../../support/paths.ts';
import { startProgram } from '../../support/sockets.ts';

const read = (path: string): string => readFileSync(repoFile(path), 'utf8');
const PAGES: readonly string[] = [
  'README.md',
  'CHANGELOG.md',
  ...readdirSync(repoFile('docs'))
    .filter((file) => file.endsWith('.md'))
    .map((file) => `docs/${file}`),
  'sdk/typescript/README.md',
  'sdk/python/README.md',
];
/** Shipped with the pages, and as full of commands. */
const DEPLOY: readonly string[] = readdirSync(repoFile('deploy'), { recursive: true, encoding: 'utf8' })
  .filter((file) => /\.(?:yaml|sh|service|conf)$|Dockerfile$/.test(file) && !file.startsWith('local/'))
  .map((file) => `deploy/${file}`);

const SOURCES = ['base', 'proto', 'sidecar', 'control-plane', 'sdk', 'deploy', 'test', 'docs'];
const files = new Set(
  SOURCES.flatMap((folder) =>
    readdirSync(repoFile(folder), { recursive: true, encoding: 'utf8' }).map((file) => `${folder}/${file.replaceAll('\\', '/')}`),
  ),
);

t.test('every command that a page shows is one that the program has, with these options', async (t) => {
  const io = { out: () => {}, err: () => {}, env: {}, clock: realClock, stdin: async () => '' };
  const programs: Readonly<Record<string, Command>> = {
    reachctl: buildProgram(io, '0'),
    'reach-sidecar': await ofUsage('reach-sidecar', 'sidecar/main.ts'),
    'reach-control': await ofUsage('reach-control', 'control-plane/main.ts'),
  };
  let seen = 0;
  for (const page of [...PAGES, ...DEPLOY]) {
    for (const [name, program] of Object.entries(programs))
      for (const shown of commandsIn(name, page, read(page))) {
        seen++;
        const problem = problemOf(program, shown);
        if (problem !== '') t.fail(`${page}:${shown.line}: ${name} ${shown.words.join(' ')}: ${problem}`);
      }
  }
  t.ok(seen > 100, `${seen} commands`);

  t.test('and this test can fail', async (t) => {
    const of = (text: string): string => problemOf(programs['reachctl'] as Command, commandsIn('reachctl', 'x.md', text)[0] as never);
    t.equal(of('`reachctl fleet --check`'), '');
    t.match(of('`reachctl flet`'), /no command flet/);
    t.match(of('`reachctl fleet --chekc`'), /no option --chekc/);
    t.match(of('`reachctl fleet now`'), /takes 0 words/);
    t.equal(of('`reachctl providers drain`'), '', 'in running text');
    t.match(of('```\n$ reachctl providers drain\n```'), /needs 1 words/);
    t.match(of('```\nreachctl providers\n```'), /wants a command/);
    t.equal(of('```\n$ sudo reachctl providers drain <id> --reason "new disk"   # said\n```'), '');
  });
});

t.test('what a page names is there', async (t) => {
  const targets = new Set([...read('Makefile').matchAll(/^([a-z-]+):/gm)].map(([, name]) => name as string));
  const code = [...files]
    .filter((file) => /^(?:sidecar|control-plane|base)\/.*\.ts$/.test(file))
    .map(read)
    .join('\n');
  const codes = new Set(CODES.map((entry) => entry.code));
  for (const page of PAGES) {
    const text = read(page);
    const missing: string[] = [];
    for (const [, target] of text.matchAll(/`make ([a-z-]+)/g)) if (!targets.has(target as string)) missing.push(`make ${target}`);
    for (const [, path] of text.matchAll(/`((?:base|proto|sidecar|control-plane|sdk|deploy|test|docs)\/[\w./-]+\.\w+)`/g))
      if (!files.has(path as string)) missing.push(path as string);
    for (const [metric] of text.matchAll(/\breach_[a-z_]+[a-z]\b/g))
      if (!code.includes(metric.replace(/_(?:bucket|sum|count)$/, ''))) missing.push(metric);
    for (const [, number, name] of text.matchAll(/\b([1-79]00\d)[ :(`]+([a-z]+_[a-z_]+)\b/g)) {
      const entry = CODES.find((each) => each.name === name);
      if (entry !== undefined && entry.code !== Number(number)) missing.push(`${number} ${name}`);
    }
    for (const [, link] of text.matchAll(/\]\((?!https?:)([^)\s]+)\)/g)) {
      const [path, anchor] = (link as string).split('#') as [string, string | undefined];
      const target = path === '' ? page : normalize(join(dirname(page), path));
      if (path !== '' && !files.has(target.replace(/\/$/, '')) && !PAGES.includes(target) && target !== 'LICENSE')
        missing.push(link as string);
      else if (anchor !== undefined && target.endsWith('.md') && !anchorsOf(read(target)).has(anchor)) missing.push(link as string);
    }
    t.same(missing, [], page);
  }
  t.ok(codes.size > 30);
});

t.test('every attack that the security page calls a proof is tried', async (t) => {
  const letters: Readonly<Record<string, string>> = { W: 'who', A: 'what', H: 'where', N: 'nats', C: 'console' };
  const tests = new Map(
    Object.entries(letters).map(([letter, file]) => [letter, read(`test/attacks/${file}.test.ts`).replaceAll("\\'", "'")] as const),
  );
  const named = [...read('docs/security.md').matchAll(/\b([WAHNC]) “([^”]+)”/g)];
  t.ok(named.length > 40, `${named.length} attacks`);
  const isTried = (letter: string, sentence: string): boolean =>
    [`t.test('${sentence}`, `t.test("${sentence}`].some((line) => tests.get(letter)?.includes(line));
  const missing = named.filter(([, letter, sentence]) => !isTried(letter as string, sentence as string));
  t.same(
    missing.map(([, letter, sentence]) => `${letter} ${sentence}`),
    [],
  );
});

t.test('every setting has its advice, and an advice that belongs to nothing is found', async (t) => {
  const rows = configPage()
    .split('\n')
    .filter((line) => /^\| `[a-z]/.test(line));
  t.ok(rows.length > 200, `${rows.length} settings`);
  const missing = new Adviser(new Map());
  missing.on('sidecar', 'name');
  t.throws(() => missing.finish(), /nothing to say on: sidecar\.name/);
  const stray = new Adviser(new Map([['sidecar.nme', 'x']]));
  t.throws(() => stray.finish(), /no setting: sidecar\.nme/);
  const good = new Adviser(new Map([['sidecar.name', 'x']]));
  t.equal(good.on('sidecar', 'name'), 'x');
  good.finish();
});

/** As GitHub makes them of headings. */
function anchorsOf(text: string): Set<string> {
  const headings = [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading]) => heading as string);
  return new Set(
    headings.map((heading) =>
      heading
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
        .replaceAll(' ', '-'),
    ),
  );
}

/** The tree of a program that prints what it takes, one line a command: `reach-sidecar health <settings.yaml> [--ready] [--wait TIME]  what`. */
async function ofUsage(name: string, source: string): Promise<Command> {
  const program = startProgram(source, ['--help']);
  await program.ended(20_000);
  const root = new Command(name).option('-V, --version');
  for (const [, usage] of program.stdout.matchAll(new RegExp(`^ +${name} (.+?)(?:  .*)?$`, 'gm'))) {
    const [verb, ...rest] = (usage as string).match(/\[[^\]]*\]|<[^>]*>|\S+/g) as string[];
    const command = root.command(verb as string);
    for (const word of rest) {
      if (word === '…') command.argument('[more...]');
      else if (word.startsWith('[--')) command.option(word.slice(1, -1).replace(/ ([A-Z]+)$/, ' <value>'));
      else command.argument(word.startsWith('[') ? '[word]' : '<word>');
    }
  }
  return root;
}
