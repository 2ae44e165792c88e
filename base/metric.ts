/**
 * What a metric is declared as. Each program declares all of its metrics in one table; what counts them, the page that shows
 * them, docs/metrics.md, and the checks of dashboards and rules are made from it. Whatever is not in the table is not there.
 */
export interface Metric {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  /** One sentence: what is counted, and when. */
  readonly help: string;
  /** Names of labels; what they mean stands in the program's table of labels. */
  readonly labels: readonly string[];
  /** '' = how many. */
  readonly unit: MetricUnit;
  /** Its value is read when somebody scrapes; otherwise it is counted as things happen. */
  readonly isRead: boolean;
}

export type MetricUnit = '' | 'seconds' | 'bytes' | 'ratio' | 'Unix time, seconds';

/** What a scraper may ask for. Exemplars (the newest trace in a bucket) are in the second alone. */
export type MetricsFormat = 'text' | 'openmetrics';
const CONTENT_TYPES: Readonly<Record<MetricsFormat, string>> = {
  text: 'text/plain; version=0.0.4; charset=utf-8',
  openmetrics: 'application/openmetrics-text; version=1.0.0; charset=utf-8',
};

export function metricsContentType(format: MetricsFormat): string {
  return CONTENT_TYPES[format];
}

/** By the header `Accept` of a scraper; absent = text. */
export function metricsFormatOf(accept: string | undefined): MetricsFormat {
  return accept?.includes('application/openmetrics-text') === true ? 'openmetrics' : 'text';
}
