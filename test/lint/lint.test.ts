import { cpSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { repoFile } from '../support/paths.ts';
import { type Linted, lintTree } from './lint-tree.ts';
import { layerProblem } from './layers.ts';

/** A tree of its own, linted under the very configuration of this one. */
function lintCopyOf(folder: string | null): Linted {
  const top = mkdtempSync(join(tmpdir(), 'reach-lint-'));
  try {
    if (folder !== null) cpSync(folder, top, { recursive: true });
    for (const file of ['.oxlintrc.json', 'tsconfig.json']) cpSync(repoFile(file), join(top, file));
    symlinkSync(repoFile('node_modules'), join(top, 'node_modules'));
    return lintTree(top);
  } finally {
    rmSync(top, { recursive: true, force: true });
  }
}

t.test('every way to break a rule of the house is reported, where it is', async (t) => {
  const { ok, lines, findings } = lintCopyOf(repoFile('test/lint/broken'));
  t.notOk(ok);
  const expected: [string, RegExp][] = [
    ['base/ambient.ts:2', /setTimeout.*Clock\.after/],
    ['base/ambient.ts:3', /setInterval.*Clock\.after/],
    ['base/ambient.ts:4', /setImmediate.*Clock\.after/],
    ['base/ambient.ts:5', /globalThis\.setTimeout/],
    ['base/ambient.ts:6', /AbortSignal\.any/],
    ['base/ambient.ts:6', /AbortSignal\.timeout/],
    ['base/ambient.ts:7', /Date\.now/],
    ['base/ambient.ts:7', /Math\.random/],
    ['base/ambient.ts:7', /performance.*Clock\.now/],
    ['base/ambient.ts:7', /new Date\(\)/],
    ['base/timers.ts:1', /node:timers\/promises: time is passed in/],
    ['base/floating.ts:6', /no-floating-promises/],
    ['base/default.ts:1', /no-default-export/],
    ['base/extension.ts:1', /without its \.ts/],
    ['base/climbs.ts:1', /go down only/],
    ['proto/barrel.ts:1', /re-exports/],
    ['sidecar/acl/acl.ts:1', /sidecar\/acl\/ and sidecar\/choose\/ stand side by side/],
    ['sidecar/call/climbs.ts:1', /go down only/],
    ['sidecar/call/one.ts:1', /no-cycle/],
    ['sidecar/call/two.ts:1', /no-cycle/],
    ['sidecar/odd/odd.ts:1', /belongs to no layer/],
    ['control-plane/crosses.ts:1', /separate programs/],
    ['sidecar/choose/crosses.ts:1', /separate programs/],
  ];
  for (const [place, what] of expected) {
    t.ok(
      lines.some((line) => line.startsWith(`${place}:`) && what.test(line)),
      `${place} is reported: ${what.source}`,
      { found: lines.filter((line) => line.startsWith(place)) },
    );
  }
  const innocent = findings.filter(({ file }) => ['base/clock.ts', 'proto/grant.ts', 'sidecar/choose/choose.ts'].includes(file));
  t.strictSame(innocent, [], 'files that keep the rules are left alone, and base/clock.ts may read the time');
});

t.test('a lint that saw no files fails', async (t) => {
  t.match(lintCopyOf(null), { ok: false, lines: ['lint saw no files'] });
});

t.test('imports go down, from the mechanisms to the entry', async (t) => {
  const allowed: [string, string][] = [
    ['sidecar/call/call.ts', 'sidecar/table/snapshot.ts'],
    ['sidecar/attempt/attempt.ts', 'sidecar/transports/transport.ts'],
    ['sidecar/attempt/attempt.ts', 'sidecar/attempt/judge.ts'],
    ['sidecar/pipeline.ts', 'sidecar/acl/acl.ts'],
    ['sidecar/accept/http.ts', 'sidecar/pipeline.ts'],
    ['control-plane/api/api.ts', 'proto/wire/codes.ts'],
    ['control-plane/console/app.tsx', 'proto/wire/codes.ts'],
    ['docs/generate.ts', 'sidecar/config.ts'],
  ];
  for (const [from, to] of allowed) t.equal(layerProblem(from, to), null, `${from} may import ${to}`);
  const refused: [string, string][] = [
    ['base/clock.ts', 'proto/wire/codes.ts'],
    ['proto/wire/codes.ts', 'sidecar/call/call.ts'],
    ['sidecar/health/health.ts', 'sidecar/call/call.ts'],
    ['sidecar/acl/acl.ts', 'sidecar/pipeline.ts'],
    ['sidecar/transports/http.ts', 'sidecar/attempt/attempt.ts'],
    ['sidecar/retry/retry.ts', 'sidecar/choose/choose.ts'],
    ['sidecar/pipeline.ts', 'sidecar/accept/http.ts'],
    ['sidecar/sidecar.ts', 'control-plane/main.ts'],
    ['sidecar/main.ts', 'test/support/paths.ts'],
    ['control-plane/console/shapes.ts', 'control-plane/api/shapes.ts'],
    ['base/clock.ts', 'unheard-of/file.ts'],
  ];
  for (const [from, to] of refused) t.type(layerProblem(from, to), 'string', `${from} may not import ${to}`);
});
