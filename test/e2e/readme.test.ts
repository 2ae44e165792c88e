/**
 * The tour of README.md as a newcomer walks it: every file is written and every command typed, in the order and the words of
 * the page, and what a command shows is compared with what the page shows. Nothing of the page is repeated here.
 */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { grpcurl } from '../support/grpcurl.ts';
import { COMPILED, repoFile } from '../support/paths.ts';
import { freePort } from '../support/sockets.ts';
import { stepsOf, unlike } from '../support/tour.ts';
import { typed, Walk } from '../support/walk.ts';

t.setTimeout(110_000);

const README = readFileSync(repoFile('README.md'), 'utf8');
/** As they stand in the README. */
const PORTS = ['7700', '7702', '9001', '9002'] as const;

async function walkOf(t: Test): Promise<Walk> {
  const ports = new Map(await Promise.all(PORTS.map(async (port) => [port, await freePort()] as const)));
  return Walk.make(t, ports, { REACH_URL: `http://127.0.0.1:${ports.get('7700')}` });
}

/** What the prose says to do. */
async function follow(walk: Walk, text: string, files: ReadonlyMap<string, string>): Promise<void> {
  for (const [, command] of text.matchAll(/`([^`]+) &`/g)) await walk.start(command as string);
  const mistake = /Write `(\w+)` for the first `(\w+)` of `([\w.]+)`/.exec(text);
  if (mistake !== null) {
    const [, wrong, right, name] = mistake as unknown as [string, string, string, string];
    walk.write(name, (files.get(name) as string).replace(right, wrong));
  }
  if (text.includes('Stop both agents')) for (const each of walk.started) if (each.command.includes('agent.mjs')) await each.stop();
}

const TOUR = stepsOf(README, 'A tour of five minutes');

t.test('the tour, from its first line to its last', async (t) => {
  const walk = await walkOf(t);
  t.comment(grpcurl() === null ? 'no grpcurl here: its stand-in was used' : `with ${grpcurl()}`);
  const files = new Map<string, string>();
  for (const step of TOUR) {
    if (step.kind === 'prose') await follow(walk, step.text, files);
    else if (step.kind === 'command') await typed(t, walk, step);
    else {
      if (files.has(step.name)) await walk.rewrite(step.name, step.text);
      else walk.write(step.name, step.text);
      files.set(step.name, step.text);
    }
  }
  const exits = await Promise.all(walk.started.map(async (each) => `${each.command.includes('agent.mjs') ? 'any' : await each.stop()}`));
  t.ok(exits.every((code) => code === '0' || code === 'any') && exits.length === 5, `what was started ends well: ${exits.join(' ')}`);
});

t.test('the tour shows the same call by every client, and new agents in at most ten lines', async (t) => {
  const commands = TOUR.filter((step) => step.kind === 'command');
  const ways = ['/v1/invoke/demo.text.greet', '/rpc', 'grpcurl ', 'curl -s -x ', 'call.mts', 'call.py'];
  for (const way of ways) {
    const step = commands.find(({ command }) => command.includes(way));
    t.match(step?.shows, /Hello from a/, way);
  }
  for (const name of ['counter.mts', 'speller.py']) {
    const file = TOUR.find((step) => step.kind === 'file' && step.name === name);
    const lines = (file as { text: string }).text.split('\n').filter((line) => line.trim() !== '' && !/^(?:\/\/|#)/.test(line));
    t.ok(lines.length > 3 && lines.length <= 10, `${name} has ${lines.length} lines`);
    t.ok(
      commands.some(({ command, inBackground }) => inBackground && command.includes(name)),
      `${name} is run`,
    );
  }
  const { version } = JSON.parse(readFileSync(repoFile('sdk/typescript/package.json'), 'utf8')) as { version: string };
  t.ok(
    commands.some(({ command }) => command.includes(`agent-reach-sdk-${version}.tgz`)),
    'the package by its name',
  );
});

t.test('its TypeScript is good TypeScript', async (t) => {
  if (!COMPILED) {
    t.comment('the types are those of the build: run compiled');
    return;
  }
  const walk = await walkOf(t);
  for (const step of [...TOUR, ...stepsOf(README, 'Messages')])
    if (step.kind === 'file' && step.name.endsWith('.mts')) walk.write(step.name, step.text);
  const types = `--types node --typeRoots ${repoFile('node_modules/@types')}`;
  const options = `--ignoreConfig --noEmit --strict --target es2022 --module nodenext ${types}`;
  const { code, out } = await walk.run(`node ${repoFile('node_modules/typescript/bin/tsc')} ${options} build/tour/*.mts`);
  t.equal(code, 0, out);
});

t.test('every page that the README leads to is there', async (t) => {
  for (const [, path] of README.matchAll(/\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)/g)) t.ok(readable(path as string), path as string);
});

t.test('what is shown is compared with what came: this comparison can fail', async (t) => {
  t.equal(unlike('{"a":1, … "elapsed_ms":2.5}', '{"a":1,"b":2,"elapsed_ms":7}'), '');
  t.equal(unlike('a\nb …', 'a b c'), '');
  t.not(unlike('{"a":1}', '{"a":2}'), '');
  t.not(unlike('{"a":1}', '{"a":1}{"b":2}'), '');
  t.not(unlike('{"a":1, … "c":3}', '{"c":3,"a":1}'), '');
  t.not(unlike('… "a b"', '"ab"'), '', 'white space within quotes counts');
  t.not(unlike('{"a":1}', ''), '');
});

function readable(path: string): boolean {
  try {
    readFileSync(fileURLToPath(new URL(path, `file://${repoFile('README.md')}`)));
    return true;
  } catch {
    return false;
  }
}
