/** The page of the metrics, from the tables in which both programs declare them. */
import type { Metric } from '../base/metric.ts';
import { CONTROL_LABELS, CONTROL_METRICS } from '../control-plane/api/declared-metrics.ts';
import { CALL_BOUNDS, MAX_HISTOGRAM_SERIES, MAX_SERIES, SIDECAR_LABELS, SIDECAR_METRICS } from '../sidecar/observe/declared-metrics.ts';

const HEAD = `# Metrics

<!-- Generated from sidecar/observe/declared-metrics.ts and control-plane/api/declared-metrics.ts by \`make docs\`. Edit the tables there, not this page. -->

Prometheus reads them at \`/metrics\` of each sidecar (the port for agents) and of each replica of the control plane. Dashboards and
rules that use them are in [deploy/observability](../deploy/observability); where to look first says [seeing.md](seeing.md).

A metric that is not here does not exist: both programs make their pages from these tables, and a test holds dashboards and rules
against them.
`;

const SIDECAR_HEAD = `
## Sidecar

Labels come from the route table, from [the codes](errors.md) and from fixed words, never from what a caller wrote. One metric has at
most ${MAX_SERIES} series (a histogram ${MAX_HISTOGRAM_SERIES}); what finds no room is counted under \`other\`. A provider that is gone is shown once more and then no
longer.

Calls and attempts are counted apart: a call is what its caller waited for, retries and fallbacks included; an attempt is one try at
one provider. A call that passes two sidecars is counted at both, with \`way="mesh"\` at the second: leave that way out to count each
call once.

Buckets of both histograms, in seconds: ${CALL_BOUNDS.join(', ')}. To a scraper that takes OpenMetrics each bucket of a call's duration shows its
newest trace as an exemplar, of traces that are told.
`;

const CONTROL_HEAD = `
## Control plane

Every replica answers for itself. Registry, fleet and what is seen are the same at all of them, up to seconds: take \`max\` over
replicas, not \`sum\`. What stands under "of the leader alone" is not shown by the others.
`;

export function metricsPage(): string {
  return [
    HEAD,
    SIDECAR_HEAD,
    table(Object.values(SIDECAR_METRICS)),
    labels(SIDECAR_LABELS),
    CONTROL_HEAD,
    table(Object.values(CONTROL_METRICS)),
    labels(CONTROL_LABELS),
  ].join('');
}

function table(metrics: readonly Metric[]): string {
  const rows = metrics.map(
    ({ name, type, unit, labels: names, help }) =>
      `| \`${name}\` | ${type} | ${unit === '' ? 'count' : unit} | ${names.map((label) => `\`${label}\``).join(', ')} | ${cell(help)} |`,
  );
  return ['', '| metric | type | unit | labels | meaning |', '|---|---|---|---|---|', ...rows, ''].join('\n');
}

function labels(meanings: Readonly<Record<string, string>>): string {
  const rows = Object.entries(meanings).map(([label, meaning]) => `| \`${label}\` | ${cell(meaning)} |`);
  return ['', '| label | what it says |', '|---|---|', ...rows, ''].join('\n');
}

function cell(text: string): string {
  return text.replaceAll('|', '\\|');
}
