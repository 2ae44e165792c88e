import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { COMPILED, REPO } from '../../support/paths.ts';

const run = promisify(execFile);

const MODULE = join(REPO, COMPILED ? 'dist/base/tick-shape.js' : 'base/tick-shape.ts');
const LOADER = COMPILED ? [] : ['--import', import.meta.resolve('tsx')];

/** Collections at a moment when no tick is under way, and how long one takes then: the best of five, nanoseconds. */
const PROGRAM = `
const [module, keeps, collects] = process.argv.slice(-3);
if (keeps === 'yes') (await import(module)).keepTickShape();
const ticks = (count) => new Promise((done) => { let i = 0; (function next() { if (i++ < count) process.nextTick(next); else done(); })(); });
const idle = () => new Promise((done) => setTimeout(done, 5));
await ticks(1_000);
for (let i = 0; i < 4; i++) { await idle(); if (collects === 'yes') gc(); }
await ticks(200_000);
let best = Infinity;
for (let i = 0; i < 5; i++) {
  const before = process.cpuUsage();
  await ticks(100_000);
  const { user, system } = process.cpuUsage(before);
  best = Math.min(best, (user + system) / 100);
}
process.stdout.write(String(best));
`;

async function tickNs(keeps: 'yes' | 'no', collects: 'yes' | 'no'): Promise<number> {
  const args = [...LOADER, '--expose-gc', '--input-type=module', '-e', PROGRAM, '--', MODULE, keeps, collects];
  return Number((await run(process.execPath, args)).stdout);
}

t.test('process.nextTick stays quick after a full collection at an idle moment', async (t) => {
  const fresh = await tickNs('no', 'no');
  const kept = await tickNs('yes', 'yes');
  t.ok(fresh > 0 && kept < 2.5 * fresh, `${kept.toFixed(0)} ns each, ${fresh.toFixed(0)} in a process that collects nothing`);
  if (process.version.startsWith('v20.')) {
    const without = await tickNs('no', 'yes');
    t.ok(without > 2 * kept, `${without.toFixed(0)} ns without; where that is quick as well, the file can go`);
  }
});
