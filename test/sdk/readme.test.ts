/**
 * The READMEs of the SDKs, run: every snippet as it stands, in a folder that was empty, with the package as people install
 * it. What a snippet prints is what the README says it prints.
 */
import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { createLog } from '../../base/log.ts';
import { realClock } from '../../base/clock.ts';
import { SeededRandom } from '../../base/random.ts';
import { startSidecar } from '../../sidecar/sidecar.ts';
import { repoFile } from '../support/paths.ts';
import { pythonPath } from '../../deploy/local/python.ts';
import { waitUntil } from '../support/settle.ts';
import { Reach } from '../../sdk/typescript/index.ts';

t.setTimeout(110_000);

interface Snippet {
  readonly file: string;
  readonly text: string;
  /** What it prints; null = the README does not say. */
  readonly prints: string | null;
}

/** The fenced blocks that name a file in their first line, each with the `text` block behind it. */
function snippetsOf(readme: string): Snippet[] {
  const blocks = [...readme.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm)].map(([, language, text]) => ({ language, text: text as string }));
  return blocks.flatMap(({ text }, i) => {
    const file = /^(?:#|\/\/) (\S+\.\w+)\n/.exec(text)?.[1];
    if (file === undefined) return [];
    const next = blocks[i + 1];
    return [{ file, text, prints: next?.language === 'text' ? next.text : null }];
  });
}

const AGENTS: Readonly<Record<string, string>> = { agent: 'token-of-the-agent', serving: 'token-of-another' };

/** Runs all of a README's snippets: its sidecar, its agents, then the rest one after another. */
async function runs(t: Test, folder: string, snippets: readonly Snippet[], command: string, args: readonly string[]): Promise<void> {
  for (const { file, text } of snippets) writeFileSync(join(folder, file), text.replace('127.0.0.1:7700', '127.0.0.1:0'));
  const log = createLog({ level: 'silent', to: process.stderr, service: 'readme' });
  const sidecar = await startSidecar(join(folder, 'sidecar.yaml'), log, realClock, new SeededRandom(1));
  t.teardown(() => sidecar.stop(0));
  const envOf = (token: string): NodeJS.ProcessEnv => ({ ...process.env, REACH_URL: sidecar.url, REACH_TOKEN: token });
  const programs = snippets.filter(({ file }) => !file.endsWith('.yaml'));
  const me = new Reach({ url: sidecar.url, token: 'token-of-me' });
  t.teardown(() => me.close());
  const agents: ChildProcess[] = [];
  for (const { file } of programs) {
    const token = AGENTS[file.split('.')[0] as string];
    if (token === undefined) continue;
    const child = spawn(command, [...args, file], { cwd: folder, env: envOf(token), stdio: 'inherit' });
    agents.push(child);
    t.teardown(() => void child.kill('SIGKILL'));
  }
  for (const work of ['count', 'spell'])
    await waitUntil(`${work} answers`, async () => (await me.call(`nlp.text.${work}`, { text: 'a' })).ok, 20_000, 50);
  for (const { file, prints } of programs) {
    if (AGENTS[file.split('.')[0] as string] !== undefined) continue;
    const printed = await new Promise<string>((done) => {
      execFile(command, [...args, file], { cwd: folder, env: envOf('token-of-me'), encoding: 'utf8', timeout: 20_000 }, (error, out, err) =>
        done(error === null ? out : `${out}${err}${error.message}`),
      );
    });
    t.equal(printed, prints, `${file} prints what stands under it`);
  }
  if (programs.some(({ file }) => file.startsWith('serving.'))) {
    t.match(await me.call('nlp.text.find'), { definitelySuccess: true, data: { found: null, asked_by: 'demo.me.1' } });
    t.match(await me.call('nlp.text.spell', {}), { code: 6001, status: 422, data: { missing: 'text' } });
  }
  for (const child of agents) {
    const ended = new Promise<number | null>((done) => child.once('exit', (code) => done(code)));
    child.kill('SIGTERM');
    t.equal(await ended, 0, 'an agent that is asked to stop ends well');
  }
}

function folderFor(t: Test): string {
  const folder = mkdtempSync(join(tmpdir(), 'reach-readme-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

const linesOf = (snippet: Snippet | undefined): number =>
  (snippet?.text ?? '').split('\n').filter((line) => line.trim() !== '' && !/^(?:\/\/|#)/.test(line)).length;

t.test('TypeScript: packed, installed into an empty folder, and run', async (t) => {
  const folder = folderFor(t);
  // Packed from a copy beside the sources that it is built of: a build leaves its litter where it runs.
  mkdirSync(repoFile('build'), { recursive: true });
  const copy = mkdtempSync(join(repoFile('build'), 'sdk-typescript-'));
  t.teardown(() => rmSync(copy, { recursive: true, force: true }));
  for (const part of ['base', 'proto', 'sdk/typescript', 'tsconfig.json'])
    cpSync(repoFile(part), join(copy, part), { recursive: true, filter: (from) => !/[/\\](?:node_modules|dist)$/.test(from) });
  const env = { ...process.env, npm_config_update_notifier: 'false', npm_config_audit: 'false', npm_config_fund: 'false' };
  const packed = execFileSync('npm', ['pack', '--json', '--pack-destination', folder], {
    cwd: join(copy, 'sdk/typescript'),
    env,
    encoding: 'utf8',
  });
  const [{ filename, files }] = JSON.parse(packed.slice(packed.indexOf('['))) as [{ filename: string; files: { path: string }[] }];
  const paths = files.map(({ path }) => path);
  t.ok(paths.includes('README.md') && paths.includes('dist/sdk/typescript/index.js') && paths.includes('dist/sdk/typescript/index.d.ts'));
  t.strictSame(
    paths.filter((path) => path.endsWith('.ts') && !path.endsWith('.d.ts')),
    [],
    'no sources',
  );
  // `ws` comes from here instead of a registry: nothing is fetched.
  const ws = execFileSync('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', folder, repoFile('node_modules/ws')], {
    env,
    encoding: 'utf8',
  });
  const [wsPacked] = JSON.parse(ws.slice(ws.indexOf('['))) as [{ filename: string }];
  writeFileSync(join(folder, 'package.json'), '{"private": true, "type": "module"}');
  execFileSync('npm', ['install', '--offline', '--ignore-scripts', `./${wsPacked.filename}`, `./${filename}`], {
    cwd: folder,
    env,
    stdio: 'pipe',
  });
  const snippets = snippetsOf(readFileSync(repoFile('sdk/typescript/README.md'), 'utf8'));
  t.ok(snippets.length >= 4 && linesOf(snippets.find(({ file }) => file === 'agent.mjs')) <= 10, 'an agent in at most ten lines');
  await runs(t, folder, snippets, process.execPath, []);

  await t.test('its types are those of a stranger’s project too', async (t) => {
    writeFileSync(
      join(folder, 'check.ts'),
      `import { AgentError, Reach, type ReachError, type Result } from '@agent-reach/sdk';
const reach: Reach = new Reach({ url: 'http://127.0.0.1:7700' });
reach.serve('a.b.c@1.0.0', async (payload: { n: number }, context) => {
  if (context.leftMs < 5) throw new AgentError(503, {});
  return payload.n + 1;
});
const result: Result<number> = await reach.call<number>('a.b.c', { n: 1 }, { deadlineMs: 5, tags: { a: 'b' } });
const data: number | ReachError = result.ok ? result.data : 0;
// @ts-expect-error there is no such option
await reach.call('a.b.c', 1, { deadline: 5 });
for await (const text of reach.stream('a.b.c')) data.toString() + text.length;
`,
    );
    const types = ['--types', 'node', '--typeRoots', repoFile('node_modules/@types')];
    const options = ['--noEmit', '--strict', '--target', 'es2022', '--module', 'nodenext', '--skipLibCheck', 'false', ...types, 'check.ts'];
    let said = '';
    try {
      execFileSync(process.execPath, [repoFile('node_modules/typescript/bin/tsc'), ...options], { cwd: folder, encoding: 'utf8' });
    } catch (error) {
      said = String((error as { stdout?: string }).stdout);
    }
    t.equal(said, '');
  });
});

t.test('Python: installed and run', async (t) => {
  const folder = folderFor(t);
  const snippets = snippetsOf(readFileSync(repoFile('sdk/python/README.md'), 'utf8'));
  t.ok(snippets.length >= 5 && linesOf(snippets.find(({ file }) => file === 'agent.py')) <= 10, 'an agent in at most ten lines');
  await runs(t, folder, snippets, pythonPath(), ['-u']);
});
