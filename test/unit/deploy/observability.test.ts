/**
 * What is shipped for Prometheus and Grafana, held against the metrics that there are: a name or a label that is not declared fails,
 * and so does a word that a label never says.
 */
import { readdirSync, readFileSync } from 'node:fs';
import t from 'tap';
import { parse } from 'yaml';
import type { Metric } from '../../../base/metric.ts';
import { CONTROL_LABELS, CONTROL_METRICS } from '../../../control-plane/api/declared-metrics.ts';
import { CODES } from '../../../proto/wire/codes.ts';
import { SIDECAR_LABELS, SIDECAR_METRICS } from '../../../sidecar/observe/declared-metrics.ts';
import { repoFile } from '../../support/paths.ts';
import { type KnownMetric, type Matcher, readPromql } from '../../support/promql.ts';

const FOLDER = 'deploy/observability';
/** Put on by whoever scrapes. */
const SCRAPED = ['job', 'instance'] as const;

interface Rule {
  readonly record?: string;
  readonly alert?: string;
  readonly expr: string;
  readonly for?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
}
interface Target {
  readonly refId: string;
  readonly expr: string;
  readonly legendFormat?: string;
}
interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly targets?: readonly Target[];
}
interface Dashboard {
  readonly uid: string;
  readonly title: string;
  readonly panels: readonly Panel[];
  readonly templating: { readonly list: readonly { readonly name: string; readonly type: string; readonly definition?: string }[] };
}

function declared(): Map<string, KnownMetric> {
  const known = new Map<string, KnownMetric>();
  const add = (name: string, type: KnownMetric['type'], labels: Iterable<string>): void => {
    const before = known.get(name)?.labels ?? [];
    known.set(name, { type, labels: new Set([...SCRAPED, ...before, ...labels]) });
  };
  for (const { name, type, labels } of [...Object.values(SIDECAR_METRICS), ...Object.values(CONTROL_METRICS)] as readonly Metric[])
    if (type === 'histogram') {
      add(`${name}_bucket`, 'counter', [...labels, 'le']);
      for (const end of ['count', 'sum']) add(`${name}_${end}`, 'counter', labels);
    } else add(name, type, labels);
  return known;
}

const yaml = (file: string): unknown => parse(readFileSync(repoFile(`${FOLDER}/prometheus/${file}`), 'utf8'));
const groups = (yaml('rules.yaml') as { readonly groups: readonly { readonly name: string; readonly rules: readonly Rule[] }[] }).groups;
const scrape = yaml('prometheus.yaml') as {
  readonly rule_files: readonly string[];
  readonly scrape_configs: readonly { readonly job_name: string }[];
};
const rules = groups.flatMap((group) => group.rules);

/** The words that a label can say, as its meaning names them; null = names out of the registry. */
function wordsOf(label: string): ReadonlySet<string> | null {
  if (label === 'code') return new Set(CODES.map(({ code }) => String(code)));
  if (label === 'job') return new Set(scrape.scrape_configs.map(({ job_name: name }) => name));
  const meanings = [(SIDECAR_LABELS as Record<string, string>)[label], (CONTROL_LABELS as Record<string, string>)[label]].join(' ');
  const words = [...meanings.matchAll(/`([a-z0-9_]+)`/g)].map(([, word]) => word as string);
  if (label === 'from') return wordsOf('to');
  return words.length > 1 ? new Set(words) : null;
}

function wordProblem({ label, op, value }: Matcher): string | null {
  const words = wordsOf(label);
  if (words === null || value.includes('$')) return null;
  if (op === '=' || op === '!=') return words.has(value) ? null : `${label} never says ${value}`;
  const pattern = new RegExp(`^(?:${value})$`);
  for (const part of value.split('|'))
    if (![...words].some((word) => new RegExp(`^(?:${part})$`).test(word))) return `${label} never says ${part}`;
  return [...words].every((word) => pattern.test(word)) ? `${label} says nothing else than ${value}` : null;
}

/** With what the rules record. */
function known(): Map<string, KnownMetric> {
  const all = declared();
  for (const rule of rules)
    if (rule.record !== undefined) {
      const { labels } = readPromql(rule.expr, all);
      all.set(rule.record, { type: 'gauge', labels: new Set([...(labels ?? []), ...Object.keys(rule.labels ?? {})]) });
    }
  return all;
}

function problemsOf(
  expr: string,
  all: ReadonlyMap<string, KnownMetric>,
): { readonly problems: string[]; readonly labels: ReadonlySet<string> | null } {
  const { problems, matchers, labels } = readPromql(expr.replaceAll('$__rate_interval', '5m'), all);
  const words = matchers.map(wordProblem).filter((problem) => problem !== null);
  return { problems: [...problems, ...words], labels };
}

t.test('the rules name only metrics and labels that there are', async (t) => {
  const all = declared();
  for (const rule of rules) {
    const name = rule.record ?? rule.alert ?? '';
    const { problems, labels } = problemsOf(rule.expr, all);
    t.same(problems, [], name);
    if (rule.record !== undefined) {
      t.match(rule.record, /^reach:[a-z_]+:[a-z0-9_]+$/);
      t.notOk(all.has(rule.record), `${name} is recorded once, and before it is used`);
      all.set(rule.record, { type: 'gauge', labels: labels ?? new Set() });
      continue;
    }
    for (const text of Object.values(rule.annotations ?? {}))
      for (const [, label] of text.matchAll(/\$labels\.([a-z_]+)/g)) t.ok(labels?.has(label as string), `${name} names ${label}`);
  }
  t.same(scrape.rule_files, ['rules.yaml']);
});

t.test('there are the four alerts and no others, each with patience and words', async (t) => {
  const alerts = rules.filter(({ alert }) => alert !== undefined);
  t.same(alerts.map(({ alert }) => alert).sort(), ['ReachAgentOffline', 'ReachBacklogGrowing', 'ReachBreakerFlapping', 'ReachP95Rising']);
  for (const { alert = '', annotations, labels, for: patience } of alerts) {
    t.match(annotations, { summary: /./, description: /Look: reachctl / }, alert);
    t.match(labels, { severity: /^(?:warning|critical)$/, product: 'agent-reach' });
    // A breaker's hour is its patience.
    if (alert !== 'ReachBreakerFlapping') t.match(patience, /^[0-9]+[sm]$/, alert);
  }
  const rising = alerts.find(({ alert }) => alert === 'ReachP95Rising')?.expr ?? '';
  t.match(rising, /1\.4 \* quantile_over_time\(0\.5, reach:capability_duration_seconds:p95_usual_5m\[1h\]/, 'by more than 40 %');
  const usual = rules.find(({ record }) => record === 'reach:capability_duration_seconds:p95_usual_5m')?.expr ?? '';
  t.match(
    usual,
    /unless reach:capability_unusual:ratio5m > 0\.25 \+ /,
    'what fails at once in an outage is not held against what comes after',
  );
  t.equal(rising.match(/>= 100/g)?.length, 2, 'with enough calls now and before');
});

t.test('a breaker that opens three times within the hour is no alert, one that opens a fourth time is', async (t) => {
  const expr = rules.find(({ alert }) => alert === 'ReachBreakerFlapping')?.expr ?? '';
  const [, most] = /\(increase\(reach_breaker_transitions_total\{from="closed",to="open"\}\[1h\]\)\) > ([0-9.]+)$/.exec(expr) ?? [];
  t.ok(Number(most) > 3, expr);
  for (const everyS of [15, 30, 60])
    for (const afterS of [90, 600, 2_000, 3_000])
      for (const gapS of [120, 170]) {
        const of = (openings: number): number => increased(countsOf(openings, afterS, gapS, everyS), 0, 3_600);
        const where = `every ${everyS} s, from ${afterS} s on, each ${gapS} s`;
        t.ok(of(3) >= 3 && of(3) <= Number(most), `3 openings, ${where}: ${of(3)}`);
        t.ok(of(4) > Number(most), `4 openings, ${where}: ${of(4)}`);
      }
  t.ok(increased(countsOf(3, 2_000, 120, 15), 0, 3_600) >= 3);
  t.ok(
    increased(countsOf(4, 0, 120, 15).slice(10), 0, 3_600) < Number(most),
    'this comparison can fail: a series that begins with its first opening',
  );
});

/** Samples of a counter within one hour, taken each so many seconds: it stands at 0, and rises by 1 from a second on, after each gap. */
function countsOf(openings: number, afterS: number, gapS: number, everyS: number): readonly (readonly [atS: number, value: number])[] {
  const samples: [number, number][] = [];
  for (let atS = everyS / 3; atS <= 3_600; atS += everyS) {
    const opened = atS < afterS ? 0 : Math.min(openings, 1 + Math.floor((atS - afterS) / gapS));
    samples.push([atS, opened]);
  }
  return samples;
}

/** What Prometheus makes of `increase`: from the first sample to the last, stretched towards the ends of the window. */
function increased(samples: readonly (readonly [atS: number, value: number])[], fromS: number, toS: number): number {
  const [[firstS, first], [lastS, last]] = [samples[0], samples.at(-1)] as [readonly [number, number], readonly [number, number]];
  const [increase, sampledS] = [last - first, lastS - firstS];
  const everyS = sampledS / (samples.length - 1);
  const atEnd = (gapS: number): number => (gapS >= everyS * 1.1 ? everyS / 2 : gapS);
  let before = firstS - fromS;
  // A counter is not taken to have been below zero.
  if (increase > 0) before = Math.min(before, sampledS * (first / increase));
  return increase * ((sampledS + atEnd(before) + atEnd(toS - lastS)) / sampledS);
}

t.test('what is compared with its past, or ranked, has no sample for a time without calls', async (t) => {
  const quantiles = rules.filter(({ record, expr }) => record !== undefined && expr.includes('histogram_quantile('));
  t.equal(quantiles.length, 2);
  for (const { record = '', expr } of quantiles) t.match(expr, /^histogram_quantile\(.*\) >= 0$/s, record);
});

t.test('the dashboards can be loaded, and name only what there is', async (t) => {
  const all = known();
  const files = readdirSync(repoFile(`${FOLDER}/grafana`)).sort();
  t.same(files, ['capability.json', 'control-plane.json', 'messages.json', 'overview.json']);
  const used = new Set<string>();
  for (const file of files) {
    const board = JSON.parse(readFileSync(repoFile(`${FOLDER}/grafana/${file}`), 'utf8')) as Dashboard;
    t.equal(`${board.uid}.json`, `reach-${file}`);
    t.match(board.templating.list[0], { name: 'datasource', type: 'datasource' });
    const variables = new Set(board.templating.list.map(({ name }) => name));
    for (const { definition } of board.templating.list)
      if (definition !== undefined) {
        const [, metric, label] = /^label_values\(([a-z_]+), ([a-z_]+)\)$/.exec(definition) ?? [];
        t.ok(all.get(metric ?? '')?.labels.has(label ?? ''), definition);
      }
    t.equal(new Set(board.panels.map(({ id }) => id)).size, board.panels.length, `${file}: ids`);
    for (const panel of board.panels) {
      t.ok(panel.gridPos.x + panel.gridPos.w <= 24, `${file}: ${panel.title}`);
      for (const { expr, legendFormat } of panel.targets ?? []) {
        const { problems, labels } = problemsOf(expr, all);
        if (problems.length > 0) t.fail(`${file}: ${panel.title}: ${problems.join('; ')}`);
        for (const [, variable] of expr.matchAll(/\$([a-z]+)/g)) t.ok(variables.has(variable as string), `${file}: $${variable}`);
        for (const [, label] of (legendFormat ?? '').matchAll(/\{\{ ?([a-z_]+) ?\}\}/g))
          if (labels?.has(label as string) !== true) t.fail(`${file}: ${panel.title}: the legend names ${label}`);
        for (const metric of readPromql(expr.replaceAll('$__rate_interval', '5m'), all).metrics) used.add(metric);
      }
    }
    const overlaps = board.panels.filter((a, i) =>
      board.panels.some(
        (b, j) =>
          j > i &&
          a.gridPos.x < b.gridPos.x + b.gridPos.w &&
          b.gridPos.x < a.gridPos.x + a.gridPos.w &&
          a.gridPos.y < b.gridPos.y + b.gridPos.h &&
          b.gridPos.y < a.gridPos.y + a.gridPos.h,
      ),
    );
    t.same(
      overlaps.map(({ title }) => title),
      [],
      `${file}: panels lie beside one another`,
    );
  }
  for (const { record } of rules)
    if (record !== undefined) t.ok(used.has(record) || rules.some(({ expr }) => expr.includes(record)), `${record} is used somewhere`);
});

t.test('and this test can fail', async (t) => {
  const all = known();
  const of = (expr: string): string => problemsOf(expr, all).problems.join('; ');
  t.match(of('rate(reach_cals_total[5m])'), /there is no metric reach_cals_total/);
  t.match(of('reach_calls_total{capabilty="x"}'), /reach_calls_total has no label capabilty/);
  t.match(of('sum by (provider) (rate(reach_calls_total[5m]))'), /sum by provider/);
  t.match(of('sum by (code) (sum by (capability) (rate(reach_calls_total[5m])))'), /sum by code/);
  t.match(of('rate(reach_in_flight[5m])'), /which is a gauge/);
  t.match(of('histogram_quantile(0.95, sum by (capability) (rate(reach_call_duration_seconds_bucket[5m])))'), /without le/);
  t.match(of('sum by (capability) (rate(reach_calls_total[5m])) / sum by (code) (rate(reach_calls_total[5m]))'), /nothing will match/);
  t.match(of('reach_calls_total{way="msh"}'), /way never says msh/);
  t.match(of('reach_calls_total{code!~"0|8..."}'), /code never says 8.../);
  t.match(of('reach_calls_total{code=~".*"}'), /says nothing else/);
  t.match(of('sum(rate(reach_calls_total[5m])'), /cannot be read/);
  t.match(of('ratee(reach_calls_total[5m])'), /cannot be read|no metric/);
  t.match(of('reach_calls_total{way=}'), /cannot be read/);
  t.equal(of('sum by (capability) (rate(reach_calls_total{way!="mesh",code!~"0|4..."}[5m])) > 0'), '');
});
