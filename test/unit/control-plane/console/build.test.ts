import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { TOPICS as TOLD } from '../../../../control-plane/api/live.ts';
import type * as Alerts from '../../../../control-plane/api/alerts.ts';
import type * as Audit from '../../../../control-plane/api/audit-shapes.ts';
import type * as View from '../../../../control-plane/api/capability-view.ts';
import type * as Overrides from '../../../../control-plane/api/override-shapes.ts';
import type * as Edges from '../../../../control-plane/api/overview.ts';
import type * as Quotas from '../../../../control-plane/api/quotas.ts';
import type * as Rules from '../../../../control-plane/api/rule-shapes.ts';
import type * as Sessions from '../../../../control-plane/api/session.ts';
import type * as Api from '../../../../control-plane/api/shapes.ts';
import type * as Shifts from '../../../../control-plane/api/shifts.ts';
import type * as Tasks from '../../../../control-plane/api/task-shapes.ts';
import type * as Traces from '../../../../control-plane/api/trace-shapes.ts';
import type * as Page from '../../../../control-plane/console/shapes.ts';
import { TOPICS } from '../../../../control-plane/console/topics.ts';
import type * as Overview from '../../../../control-plane/overview/overview-shapes.ts';
import { buildConsole } from '../../../run/build-console.ts';
import { repoFile } from '../../../support/paths.ts';

/** Compiles only while what the API answers is what the page reads. */
type Fits<Given extends Wanted, Wanted> = readonly [Given, Wanted];
type Checked = readonly [
  Fits<Overview.OverviewAnswer, Page.Overview>,
  Fits<Edges.TopologyAnswer, Page.Topology>,
  Fits<View.CapabilityViewAnswer, Page.CapabilityShown>,
  Fits<Traces.TracesAnswer, Page.TracesAnswer>,
  Fits<Traces.TraceAnswer, Page.TraceShown>,
  Fits<Sessions.SessionAnswer, Page.Session>,
  Fits<Sessions.SessionEndedAnswer, Page.SessionEnded>,
  Fits<Alerts.AlertsAnswer, Page.AlertsAnswer>,
  Fits<Overrides.OverridesAnswer, Page.OverridesAnswer>,
  Fits<Overrides.OverrideTried, Page.OverrideTried>,
  Fits<Overrides.OverrideOrdered, Page.OverrideOrdered>,
  Fits<Api.ProvidersAnswer, Page.ProvidersAnswer>,
  Fits<Api.CapabilitiesAnswer, Page.CapabilitiesAnswer>,
  Fits<Api.FleetAnswer, Page.FleetAnswer>,
  Fits<Api.PoliciesAnswer, Page.PoliciesAnswer>,
  Fits<Api.HistoryAnswer, Page.HistoryAnswer>,
  Fits<Api.PolicyChangeAnswer, Page.PolicyChange>,
  Fits<Rules.RulesAnswer, Page.RulesAnswer>,
  Fits<Rules.LintAnswer, Page.LintAnswer>,
  Fits<Quotas.QuotasAnswer, Page.QuotasAnswer>,
  Fits<Shifts.ShiftsAnswer, Page.ShiftsAnswer>,
  Fits<Tasks.KeptAnswer, Page.KeptAnswer>,
  Fits<Tasks.KeptShown, Page.KeptShown>,
  Fits<Tasks.PayloadAnswer, Page.PayloadShown>,
  Fits<Tasks.PoolsAnswer, Page.PoolsAnswer>,
  Fits<Tasks.ParkedAnswer, Page.ParkedAnswer>,
  Fits<Audit.AuditAnswer, Page.AuditAnswer>,
];
const SHAPES: Checked['length'] = 27;

/** Uncompressed, everything that the page loads. */
const MAX_BYTES = 200_000;

t.test('the built console', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'reach-console-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const sizes = buildConsole(repoFile('control-plane/console'), folder);
  const text = (name: string): string => readFileSync(join(folder, name), 'utf8');
  const page = text('index.html');

  t.test('is small', async (t) => {
    const total = [...sizes.values()].reduce((sum, bytes) => sum + bytes, 0);
    t.comment(`${total} bytes: ${[...sizes].map(([name, bytes]) => `${name} ${bytes}`).join(', ')}`);
    t.ok(total < MAX_BYTES, `${total} bytes`);
    t.equal(sizes.size, 4, 'one script, one style sheet, an icon, the page');
  });

  t.test('names its files by their content, and the page names just these', async (t) => {
    for (const name of sizes.keys()) if (name !== 'index.html') t.match(name, /^(script|style|icon)-[A-Z0-9]{8}\.(js|css|svg)$/);
    const named = [...page.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, name]) => name);
    t.strictSame(named.sort(), [...sizes.keys()].filter((name) => name !== 'index.html').sort());
    t.notMatch(page, /\{\{/);
  });

  t.test('has nothing from outside, and nothing that its content policy forbids', async (t) => {
    for (const name of sizes.keys()) {
      const addresses = text(name).match(/(?:https?:)?\/\/[a-z0-9-]+\.[a-z0-9.-]+/gi) ?? [];
      // Names of XML, not addresses.
      t.strictSame(
        [...new Set(addresses)].filter((address) => !address.endsWith('//www.w3.org')),
        [],
        name,
      );
    }
    t.notMatch(page, /<script(?![^>]* src=)|<style| style=| on[a-z]+=/);
    t.notMatch(text([...sizes.keys()].find((name) => name.startsWith('style-')) ?? ''), /url\(|@import/);
  });
});

t.test('the page listens for topics that are told, and reads what is answered', async (t) => {
  const told: ReadonlySet<string> = new Set(TOLD);
  for (const [page, topics] of Object.entries(TOPICS)) for (const topic of topics) t.ok(told.has(topic), `${page}: ${topic}`);
  t.equal(SHAPES, 27);
});

t.test('no source of the page puts text of strangers in as markup', async (t) => {
  const names = [
    'app.tsx',
    'red.tsx',
    'parts/table.tsx',
    'parts/words.tsx',
    'parts/states.tsx',
    'pages/overview.tsx',
    'pages/trace.tsx',
    'pages/task.tsx',
  ];
  for (const name of names) {
    const text = readFileSync(repoFile(`control-plane/console/${name}`), 'utf8');
    t.notMatch(text, /dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(/, name);
    // What comes from the API never becomes an address: every link is made by address.ts.
    for (const [, value = ''] of text.matchAll(/href=\{([^}]*)\}/g))
      t.match(value, /^(pageAddress|itemAddress|go|href)/, `${name}: ${value}`);
  }
});

t.test('text can be read in both themes: 4.5 : 1 at least', async (t) => {
  const tokens = new Map<string, readonly [string, string]>();
  const css = readFileSync(repoFile('control-plane/console/tokens.css'), 'utf8');
  for (const [, name = '', light = '', dark = ''] of css.matchAll(/--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)/g))
    tokens.set(name, [light, dark]);
  const colour = (name: string, theme: 0 | 1): string => tokens.get(name)?.[theme] ?? '#ffffff';
  const pairs = [
    ...['text', 'muted', 'accent', 'bad', 'warn', 'good'].flatMap((on) =>
      ['ground', 'sheet', 'raised'].map((ground) => [on, ground] as const),
    ),
    ['bad', 'bad-ground'],
    ['warn', 'warn-ground'],
    ['good', 'good-ground'],
    ['accent', 'accent-ground'],
    ['on-red', 'red'],
  ] as const;
  t.ok(tokens.size > 15, 'the colours were found');
  for (const theme of [0, 1] as const)
    for (const [on, ground] of pairs) {
      const ratio = contrast(colour(on, theme), colour(ground, theme));
      t.ok(ratio >= 4.5, `${on} on ${ground}, ${theme === 0 ? 'light' : 'dark'}: ${ratio.toFixed(2)}`);
    }
  for (const theme of [0, 1] as const)
    for (const ground of ['ground', 'sheet'])
      t.ok(contrast(colour('line-strong', theme), colour(ground, theme)) >= 3, 'edges of fields: 3 : 1');
});

/** As WCAG 2 has it. */
function contrast(one: string, other: string): number {
  const [a, b] = [luminance(one), luminance(other)];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}

function luminance(hex: string): number {
  const [r = 0, g = 0, b = 0] = [1, 3, 5].map((at) => {
    const value = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
    return value <= 0.040_45 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
