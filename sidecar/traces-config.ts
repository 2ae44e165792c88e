/** The sidecar's settings for traces (`sidecar.traces`): which of them are told, and to which collector beside the control plane. */
import { readSecret, type SecretSource } from '../base/secret.ts';
import { addressProblem, tidyAddress } from '../proto/language/http-text.ts';
import { defaultsOf, secret } from '../proto/language/process-shapes.ts';
import { mapped, object, optional, required, type Shape } from '../proto/language/reader.ts';
import { count, dictionary, duration, flag, ratio, size, text } from '../proto/language/shapes.ts';

export interface OtlpSettings {
  /** Where spans are posted, with its path. */
  readonly url: string;
  readonly headers: Readonly<Record<string, SecretSource>>;
  readonly gzip: boolean;
  /** One request. */
  readonly timeoutMs: number;
  /** What waits to be sent. */
  readonly queueBytes: number;
  /** `service.name`; null = the sidecar's name. */
  readonly serviceName: string | null;
}

export interface TraceSettings {
  readonly isOn: boolean;
  /** Of all traces, 0–1. */
  readonly ratio: number;
  /** Calls and messages that are told; above it a smaller share of the traces is. */
  readonly maxPerSec: number;
  /** A call that takes longer is always told; 0 = longer than 99 of 100 of its capability. */
  readonly slowMs: number;
  /** For so long it can be found out that a trace is to be told after all. */
  readonly holdMs: number;
  /** Spans that are held for it. */
  readonly heldSpans: number;
  /** null = only the control plane is told. */
  readonly otlp: OtlpSettings | null;
}

const DEFAULT_PATH = '/v1/traces';
/** RFC 9110 token, lower case. */
const HEADER_NAME = /^[a-z0-9!#$%&'*+.^_`|~-]{1,128}$/;

const otlpShape: Shape<OtlpSettings> = mapped(
  object('map', {
    url: required(
      text('the address of a collector such as http://127.0.0.1:4318', (value) => addressProblem(value)),
      'Where a collector takes OTLP over HTTP (protobuf). Without a path `/v1/traces` is added.',
    ),
    headers: optional(
      dictionary('header', (name) => (HEADER_NAME.test(name) ? null : 'a header name in lower case'), secret, 16),
      "Sent with every request, such as a hosted collector's key: `{env: NAME}`, `{file: path}`, or the text itself. Read anew at each request.",
      Object.freeze({}) as Readonly<Record<string, SecretSource>>,
      'none',
    ),
    gzip: optional(
      flag,
      'Compresses what is sent: about a tenth of the bytes, for about as much time again as encoding takes.',
      false,
      'false',
    ),
    timeout: optional(duration(100, 60_000), 'Longest wait for an answer of the collector.', 10_000, '10s'),
    queue: optional(
      size(65_536, 1_073_741_824),
      'Spans that wait for the collector. Above it new ones are dropped and counted (`reach_spans_total`).',
      8_388_608,
      '8MiB',
    ),
    service_name: optional(text('a name'), "`service.name` of the spans. Absent: the sidecar's name.", null, "the sidecar's name"),
  }),
  (read): OtlpSettings => ({
    url: withPath(tidyAddress(read.url)),
    headers: read.headers,
    gzip: read.gzip,
    timeoutMs: read.timeout,
    queueBytes: read.queue,
    serviceName: read.service_name,
  }),
);

export const tracesShape: Shape<TraceSettings> = mapped(
  object('map', {
    enabled: optional(
      flag,
      'Spans of calls and messages are made, kept for a while, and told. Off: trace ids are passed on all the same.',
      true,
      'true',
    ),
    ratio: optional(
      ratio(true),
      'The share of traces that are told, picked by their id and so the same ones at every sidecar. Failed and slow ones are told beside it.',
      1,
      '1',
    ),
    max_per_sec: optional(
      count(1, 10_000_000),
      'Calls and messages of this sidecar that are told each second. Above it the share sinks for as long; failed and slow ones have as much room again.',
      200,
      '200',
    ),
    slow: optional(
      duration(0),
      'A call that takes longer is told whatever `ratio` says. `0s`: longer than 99 of 100 calls of its capability took of late.',
      0,
      '0s',
    ),
    hold: optional(
      duration(0, 60_000),
      'For how long spans that were not picked are held, in case another sidecar finds that their trace failed or was slow.',
      5_000,
      '5s',
    ),
    held_spans: optional(count(256, 1_000_000), 'Spans held at most, about 400 bytes each; the oldest go first.', 8_192, '8192'),
    otlp: optional(otlpShape, 'A collector that gets the spans as well. Absent: only the control plane does.', null, 'none'),
  }),
  (read): TraceSettings => ({
    isOn: read.enabled,
    ratio: read.ratio,
    maxPerSec: read.max_per_sec,
    slowMs: read.slow,
    holdMs: read.hold,
    heldSpans: read.held_spans,
    otlp: read.otlp,
  }),
);

export const TRACE_DEFAULTS: TraceSettings = defaultsOf(tracesShape);

/** Header names and values, read anew; null = one of them cannot be read. */
export function otlpHeaders({ headers }: OtlpSettings): Record<string, string> | null {
  const read: Record<string, string> = {};
  try {
    for (const name in headers) read[name] = readSecret(headers[name] as SecretSource);
  } catch {
    return null;
  }
  return read;
}

function withPath(url: string): string {
  const parsed = new URL(url);
  if (parsed.pathname !== '/' && parsed.pathname !== '') return url;
  parsed.pathname = DEFAULT_PATH;
  return parsed.href;
}
