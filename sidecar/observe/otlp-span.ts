/**
 * Records as OTLP spans (opentelemetry/proto/trace/v1), written straight into a request: names and attributes by the semantic
 * conventions of OpenTelemetry where there are any (rpc.*, messaging.*, server.*, error.type, http.response.status_code), our own as
 * `reach.*`; the verdicts of the stages are the span's events. What repeats from call to call (who calls what, and where it goes; a
 * verdict with its words) is encoded once and copied.
 */
import { BackwardWriter } from '../../base/backward-writer.ts';
import { codeEntry } from '../../proto/wire/codes.ts';
import type { SpanStage } from '../../proto/wire/spans.ts';
import { SPREAD_WIDTH } from '../call/trace.ts';
import type { Arg, Reason } from '../call/verdict.ts';
import { lineWords } from './span-of.ts';
import { MAX_LINES, type SpanRecord } from './span-record.ts';

/** Field numbers. */
const Span = {
  traceId: 1,
  spanId: 2,
  parentSpanId: 4,
  name: 5,
  kind: 6,
  start: 7,
  end: 8,
  attributes: 9,
  events: 11,
  status: 15,
  flags: 16,
};
const SpanEvent = { time: 1, name: 2, attributes: 3 };
const Status = { message: 2, code: 3 };
const KeyValue = { key: 1, value: 2 };
const AnyValue = { text: 1, bool: 2, int: 3 };
const STATUS_ERROR = 2;
/** Sampled; and it is known whether the parent is of another process, and it is. */
const FLAGS = 0x101;
const FLAG_REMOTE = 0x200;

const INTERNAL = 1;
const SERVER = 2;
const CLIENT = 3;
const PRODUCER = 4;
const CONSUMER = 5;
const KIND: Readonly<Record<SpanStage, number>> = {
  outbound: SERVER,
  attempt: CLIENT,
  inbound: SERVER,
  send: PRODUCER,
  outbox: INTERNAL,
  queue: INTERNAL,
  deliver: CONSUMER,
  result: PRODUCER,
  inbox: CONSUMER,
};
const MESSAGING_TYPE: Partial<Readonly<Record<SpanStage, string>>> = { send: 'send', deliver: 'process', result: 'send', inbox: 'receive' };
const HTTP_WAYS: ReadonlySet<string> = new Set(['http', 'mesh', 'proxy', 'json_rpc', 'jsonrpc']);

/** What makes one call's attributes those of another. */
class Shape {
  readonly stage: SpanStage;
  readonly capability: string;
  readonly version: string;
  readonly caller: string;
  readonly way: string;
  readonly address: string;
  readonly status: number;
  readonly code: number;
  readonly started: string | null;
  readonly bytes: Buffer;
  constructor(record: SpanRecord, bytes: Buffer) {
    this.stage = record.stage;
    this.capability = record.capability;
    this.version = record.version;
    this.caller = record.caller;
    this.way = record.way;
    this.address = record.address;
    this.status = record.status;
    this.code = record.code;
    this.started = record.started;
    this.bytes = bytes;
  }
}

/** An event as it was written, whole but for its time. */
class Line {
  readonly a: Arg;
  readonly b: Arg;
  readonly c: Arg;
  readonly bytes: Buffer;
  /** Where its time stands. */
  readonly timeAt: number;
  constructor(a: Arg, b: Arg, c: Arg, bytes: Buffer, timeAt: number) {
    this.a = a;
    this.b = b;
    this.c = c;
    this.bytes = bytes;
    this.timeAt = timeAt;
  }
}

/** An event whose last value is a time, which never comes again: what stands around it. */
class Measured {
  readonly a: Arg;
  readonly b: Arg;
  readonly before: Buffer;
  readonly after: Buffer;
  constructor(a: Arg, b: Arg, before: Buffer, after: Buffer) {
    this.a = a;
    this.b = b;
    this.before = before;
    this.after = after;
  }
}

/** What is remembered of one reason. A place for each of its usual values: who comes to the same place takes it over. */
class Lines {
  readonly reason: Reason;
  /** The name of the event, as a field. */
  readonly name: Buffer;
  readonly places: (Line | undefined)[] = new Array<Line | undefined>(PLACES).fill(undefined);
  readonly measured: (Measured | undefined)[] = new Array<Measured | undefined>(PLACES).fill(undefined);
  constructor(reason: Reason, name: Buffer) {
    this.reason = reason;
    this.name = name;
  }
}

/** Remembered of one provider, and of how many of them and of reasons. Beyond it everything is forgotten and begins anew. */
const SHAPES = 24;
const PLACES = 64;
const MOST_KEYS = 2_000;
const MAX_CACHED_ARG = 160;

export class OtlpSpans {
  readonly #shapes = new Map<string, Shape[]>();
  readonly #lines = new Map<Reason, Lines>();
  /** Of the reason that stood at this place of the call before: most calls are decided like the one before. */
  readonly #last: (Lines | undefined)[] = new Array<Lines | undefined>(MAX_LINES * SPREAD_WIDTH).fill(undefined);

  /** Writes one span as the given field of what is open. */
  write(to: BackwardWriter, field: number, record: SpanRecord): void {
    const began = to.length;
    const { startMs } = record;
    for (let i = record.lineCount - 1, at = i * SPREAD_WIDTH; i >= 0; i--, at -= SPREAD_WIDTH)
      this.#event(to, record.lines[at] as Reason, startMs + (record.columns.times[record.timeAt + i] as number), record, at);
    this.#shaped(to, record);
    to.nanos(Span.end, startMs + record.elapsedMs);
    to.nanos(Span.start, startMs);
    to.fixed32(Span.flags, !record.hasParent || record.stage === 'attempt' ? FLAGS : FLAGS | FLAG_REMOTE);
    const { ids } = record.columns;
    if (record.hasParent) to.words(Span.parentSpanId, ids, record.idAt + 6, 2);
    to.words(Span.spanId, ids, record.idAt + 4, 2);
    to.words(Span.traceId, ids, record.idAt, 4);
    to.close(field, began);
  }

  /** Name, kind, status and attributes. */
  #shaped(to: BackwardWriter, record: SpanRecord): void {
    if (record.detail !== '' || record.isMessage || record.isDegraded || record.isReplay || record.isSandbox) {
      writeShape(to, record);
      return;
    }
    let shapes = this.#shapes.get(record.provider);
    if (shapes === undefined) {
      if (this.#shapes.size >= MOST_KEYS) this.#shapes.clear();
      shapes = [];
      this.#shapes.set(record.provider, shapes);
    }
    for (const shape of shapes) {
      if (!fits(shape, record)) continue;
      to.raw(shape.bytes);
      return;
    }
    const began = to.length;
    writeShape(to, record);
    if (shapes.length >= SHAPES) shapes.length = 0;
    shapes.push(new Shape(record, to.since(began)));
  }

  #event(to: BackwardWriter, reason: Reason, timeMs: number, record: SpanRecord, at: number): void {
    const a = record.lines[at + 1] as Arg;
    const b = record.lines[at + 2] as Arg;
    const c = record.lines[at + 3] as Arg;
    let lines = this.#last[at];
    if (lines === undefined || lines.reason !== reason) this.#last[at] = lines = this.#linesOf(to, reason);
    const place = placeOf(a, b, c);
    const line = lines.places[place];
    if (line !== undefined && line.a === a && line.b === b && line.c === c) to.rawAt(line.bytes, line.timeAt, timeMs);
    else if (isLasting(a) && isLasting(b)) {
      if (isLasting(c)) lines.places[place] = keep(to, reason, a, b, c, timeMs);
      else if (typeof c === 'number' && reason.passes) writeMeasured(to, lines, a, b, c, timeMs);
      else writeEvent(to, reason, a, b, c, timeMs);
    } else writeEvent(to, reason, a, b, c, timeMs);
  }

  #linesOf(to: BackwardWriter, reason: Reason): Lines {
    let lines = this.#lines.get(reason);
    if (lines === undefined) {
      if (this.#lines.size >= MOST_KEYS) this.#lines.clear();
      const began = to.length;
      to.text(SpanEvent.name, `${reason.stage}.${reason.name}`);
      lines = new Lines(reason, to.since(began));
      to.back(began);
      this.#lines.set(reason, lines);
    }
    return lines;
  }
}

/** Which of the places these values have: usual ones are small numbers that go up and down, and names that end differently. */
function placeOf(a: Arg, b: Arg, c: Arg): number {
  return (numberOf(a) + 7 * numberOf(b) + 19 * numberOf(c)) & (PLACES - 1);
}

function numberOf(arg: Arg): number {
  if (typeof arg === 'number') return arg | 0;
  return typeof arg === 'string' && arg.length > 0 ? arg.length + arg.charCodeAt(arg.length - 1) : 0;
}

/** Writes an event, and gives what is remembered of it. */
function keep(to: BackwardWriter, reason: Reason, a: Arg, b: Arg, c: Arg, timeMs: number): Line {
  const began = to.length;
  writeEvent(to, reason, a, b, c, timeMs);
  const bytes = to.since(began);
  // The tag and the length of the event, which has one byte or two; the tag of the time.
  return new Line(a, b, c, bytes, (bytes[1] as number) < 0x80 ? 3 : 4);
}

function writeEvent(to: BackwardWriter, reason: Reason, a: Arg, b: Arg, c: Arg, timeMs: number): void {
  const began = to.length;
  writeLine(to, reason, a, b, c);
  to.nanos(SpanEvent.time, timeMs);
  to.close(Span.events, began);
}

/** A verdict that passes, with a time in its words: as `writeEvent`, and the words around it are made once. */
function writeMeasured(to: BackwardWriter, lines: Lines, a: Arg, b: Arg, c: number, timeMs: number): void {
  const { reason } = lines;
  const place = placeOf(a, b, null);
  let around = lines.measured[place];
  if (around === undefined || around.a !== a || around.b !== b) {
    const words = lineWords(reason, a, b, HOLE);
    const at = words.indexOf(HOLE);
    if (at < 0 || at !== words.lastIndexOf(HOLE) || words.length > MAX_MEASURED_CHARS) {
      writeEvent(to, reason, a, b, c, timeMs);
      return;
    }
    around = new Measured(a, b, Buffer.from(words.slice(0, at), 'utf8'), Buffer.from(words.slice(at + HOLE.length), 'utf8'));
    lines.measured[place] = around;
  }
  const began = to.length;
  to.raw(around.after);
  to.hundredths(c);
  to.raw(around.before);
  to.close(AnyValue.text, began);
  to.close(KeyValue.value, began);
  to.raw(WORDS_KEY);
  to.close(SpanEvent.attributes, began);
  to.raw(lines.name);
  to.nanos(SpanEvent.time, timeMs);
  to.close(Span.events, began);
}

/** Of the plane of private use: nobody's words hold it. */
const HOLE = '\uE0A7';
/** Longer ones may be cut: these are written the long way. */
const MAX_MEASURED_CHARS = 400;
const WORDS_KEY = keyBytes('reach.words');

function keyBytes(key: string): Buffer {
  const to = new BackwardWriter(64);
  to.text(KeyValue.key, key);
  return Buffer.from(to.bytes());
}

/** Comes again: names and small numbers, not times. */
function isLasting(arg: Arg): boolean {
  if (arg === null) return true;
  if (typeof arg === 'string') return arg.length <= MAX_CACHED_ARG;
  return typeof arg === 'number' && Number.isInteger(arg);
}

function fits(shape: Shape, record: SpanRecord): boolean {
  return (
    shape.stage === record.stage &&
    shape.capability === record.capability &&
    shape.code === record.code &&
    shape.status === record.status &&
    shape.way === record.way &&
    shape.version === record.version &&
    shape.caller === record.caller &&
    shape.started === record.started &&
    shape.address === record.address
  );
}

/** Name and attributes of one verdict: the fields of an event but its time. */
function writeLine(to: BackwardWriter, reason: Reason, a: Arg, b: Arg, c: Arg): void {
  if (reason.code !== 0) attributeInt(to, SpanEvent.attributes, 'reach.code', reason.code);
  attribute(to, SpanEvent.attributes, 'reach.words', lineWords(reason, a, b, c));
  to.text(SpanEvent.name, `${reason.stage}.${reason.name}`);
}

function writeShape(to: BackwardWriter, record: SpanRecord): void {
  const { stage, capability, code, way, status } = record;
  if (code !== 0) {
    const began = to.length;
    to.uint(Status.code, STATUS_ERROR);
    const detail = record.cleanDetail;
    if (detail !== '') to.text(Status.message, detail);
    to.close(Span.status, began);
    attribute(to, Span.attributes, 'error.type', codeEntry(code).name);
  }
  attribute(to, Span.attributes, 'reach.stage', stage);
  attribute(to, Span.attributes, 'reach.capability', capability);
  attributeInt(to, Span.attributes, 'reach.code', code);
  if (record.version !== '') attribute(to, Span.attributes, 'reach.version', record.version);
  if (record.provider !== '') attribute(to, Span.attributes, 'reach.provider', record.provider);
  if (record.caller !== '') attribute(to, Span.attributes, 'reach.caller', record.caller);
  if (way !== '') attribute(to, Span.attributes, 'reach.way', way);
  if (status !== 0) attributeInt(to, Span.attributes, 'reach.status', status);
  if (record.started !== null) attribute(to, Span.attributes, 'reach.started', record.started);
  if (record.isDegraded) attributeTrue(to, 'reach.degraded');
  if (record.isReplay) attributeTrue(to, 'reach.replay');
  if (record.isSandbox) attributeTrue(to, 'reach.sandbox');
  const isHop = stage === 'outbound' || stage === 'attempt' || stage === 'inbound';
  if (isHop) writeRpc(to, record);
  else writeMessaging(to, record);
  to.uint(Span.kind, KIND[stage]);
  to.text(Span.name, isHop ? rpcName(capability) : `${stage} ${capability}`);
}

function writeRpc(to: BackwardWriter, { stage, capability, way, status, address }: SpanRecord): void {
  attribute(
    to,
    Span.attributes,
    'rpc.system',
    way === 'grpc' ? 'grpc' : way === 'json_rpc' || way === 'jsonrpc' ? 'jsonrpc' : 'agent_reach',
  );
  const dot = capability.lastIndexOf('.');
  if (dot > 0) {
    attribute(to, Span.attributes, 'rpc.service', capability.slice(0, dot));
    attribute(to, Span.attributes, 'rpc.method', capability.slice(dot + 1));
  }
  if (stage !== 'attempt') return;
  if (status >= 100 && status < 600 && HTTP_WAYS.has(way)) attributeInt(to, Span.attributes, 'http.response.status_code', status);
  const server = serverOf(address);
  if (server === null) return;
  attribute(to, Span.attributes, 'server.address', server.host);
  if (server.port !== 0) attributeInt(to, Span.attributes, 'server.port', server.port);
}

function writeMessaging(to: BackwardWriter, { stage, taskId, lane, pool, rule, tries }: SpanRecord): void {
  attribute(to, Span.attributes, 'messaging.system', 'nats');
  attribute(to, Span.attributes, 'messaging.operation.name', stage);
  const type = MESSAGING_TYPE[stage];
  if (type !== undefined) attribute(to, Span.attributes, 'messaging.operation.type', type);
  if (pool !== '') attribute(to, Span.attributes, 'messaging.destination.name', pool);
  if (taskId !== '') attribute(to, Span.attributes, 'messaging.message.id', taskId);
  if (lane !== '') attribute(to, Span.attributes, 'reach.lane', lane);
  if (rule !== '') attribute(to, Span.attributes, 'reach.rule', rule);
  if (tries !== 0) attributeInt(to, Span.attributes, 'reach.tries', tries);
}

/** `$service/$method`, as the conventions name spans of RPC. */
function rpcName(capability: string): string {
  const dot = capability.lastIndexOf('.');
  return dot > 0 ? `${capability.slice(0, dot)}/${capability.slice(dot + 1)}` : capability;
}

/** Null = the endpoint has no address of its own. Without path and query: these may hold what is nobody's business. */
function serverOf(address: string): { readonly host: string; readonly port: number } | null {
  if (address === '') return null;
  try {
    const url = new URL(address.includes('://') ? address : `grpc://${address}`);
    if (url.hostname === '') return null;
    const port = url.port === '' ? (url.protocol === 'https:' ? 443 : url.protocol === 'http:' ? 80 : 0) : Number(url.port);
    return { host: url.hostname, port };
  } catch {
    return null;
  }
}

export function attribute(to: BackwardWriter, field: number, key: string, value: string): void {
  const began = to.length;
  to.text(AnyValue.text, value);
  to.close(KeyValue.value, began);
  to.text(KeyValue.key, key);
  to.close(field, began);
}

function attributeInt(to: BackwardWriter, field: number, key: string, value: number): void {
  const began = to.length;
  to.uint(AnyValue.int, value);
  to.close(KeyValue.value, began);
  to.text(KeyValue.key, key);
  to.close(field, began);
}

function attributeTrue(to: BackwardWriter, key: string): void {
  const began = to.length;
  to.bool(AnyValue.bool, true);
  to.close(KeyValue.value, began);
  to.text(KeyValue.key, key);
  to.close(Span.attributes, began);
}
