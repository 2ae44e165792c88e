/** A trace as lines of text: the tree on the left, what came of each span, and when it was, as bars on the right. Pure. */
import { printable } from '../../base/log.ts';
import { codeEntry } from '../../proto/wire/codes.ts';
import type { TraceAnswer } from '../api/trace-shapes.ts';
import type { PlacedSpan } from '../traces/timeline.ts';
import { cutTo, type Ink, type Paint, padLeft, padTo, spell, wrap } from './terminal.ts';

export interface Look {
  readonly width: number;
  readonly paint: Paint;
  readonly unicode: boolean;
}

const TIME_CHARS = 8;
const CODE_CHARS = 22;
/** Below it there are no bars: what is left would say nothing. */
const LEAST_BAR_CHARS = 14;
const LEAST_LABEL_CHARS = 24;
const MAX_INDENT = 24;

export function traceWords(trace: TraceAnswer, look: Look, withWhy: boolean): string {
  const { paint, width } = look;
  const lines = [head(trace, look), '', ...timeline(trace, look)];
  const section = (title: string, ink: Ink, sentences: readonly string[]): void => {
    if (sentences.length === 0) return;
    lines.push('', paint(ink, title));
    for (const sentence of sentences) lines.push(wrap(`- ${printable(sentence)}`, width, '  '));
  };
  section('missing', 'bad', trace.gaps);
  section('under way', 'warn', trace.under_way);
  section('notes', 'dim', trace.notes);
  if (withWhy) section('why', 'strong', trace.why);
  return lines.join('\n');
}

function head(trace: TraceAnswer, { paint, width }: Look): string {
  const sidecars = new Set(trace.spans.map(({ sidecar }) => sidecar)).size;
  const state = trace.complete
    ? paint('good', 'complete')
    : trace.gaps.length > 0 || trace.orphans > 0
      ? paint('bad', `not complete: ${trace.gaps.length} gaps, ${trace.orphans} orphans`)
      : paint('warn', 'under way');
  const words = `trace ${trace.trace_id}  ${new Date(trace.start_ms).toISOString()}  ${spell(trace.elapsed_ms)}  ${trace.spans.length} ${trace.spans.length === 1 ? 'span' : 'spans'} of ${sidecars} ${sidecars === 1 ? 'sidecar' : 'sidecars'}`;
  return words.length + 30 > width ? `${words}\n${state}` : `${words}  ${state}`;
}

function timeline(trace: TraceAnswer, look: Look): string[] {
  const { width, paint } = look;
  const labels = trace.spans.map((span) => indentOf(span, look) + labelOf(span));
  const fixed = TIME_CHARS + CODE_CHARS + 4;
  const longest = Math.max(...labels.map((label) => Array.from(label).length), 4);
  const room = width - fixed;
  const hasBars = room - Math.min(longest, Math.floor(room * 0.6)) - 2 >= LEAST_BAR_CHARS;
  const labelChars = Math.max(LEAST_LABEL_CHARS, Math.min(longest, hasBars ? Math.floor(room * 0.6) : room));
  const barChars = hasBars ? Math.max(LEAST_BAR_CHARS, room - labelChars - 2) : 0;
  const title = `${padTo('SPAN', labelChars)}  ${padLeft('TIME', TIME_CHARS)}  ${padTo('CAME TO', CODE_CHARS)}`.trimEnd();
  return [
    paint('dim', title),
    ...trace.spans.map((span, i) => {
      const label = padTo(cutTo(labels[i] as string, labelChars), labelChars);
      const outcome = padTo(cutTo(outcomeOf(span), CODE_CHARS), CODE_CHARS);
      const ink = inkOf(span);
      const bar = barChars === 0 ? '' : `  ${barOf(span, trace, barChars, look)}`;
      return `${label}  ${padLeft(spell(span.elapsed_ms), TIME_CHARS)}  ${ink === null ? outcome : paint(ink, outcome)}${bar}`.trimEnd();
    }),
  ];
}

function indentOf(span: PlacedSpan, { unicode }: Look): string {
  if (span.orphan === true) return '? ';
  return span.depth === 0 ? '' : `${'  '.repeat(Math.min(span.depth - 1, MAX_INDENT))}${unicode ? '└ ' : '` '}`;
}

/** What it is, in as few words as say it. */
export function labelOf(span: PlacedSpan): string {
  const version = span.version === undefined ? '' : `@${printable(span.version, 40)}`;
  const way = span.way === undefined ? '' : ` by ${printable(span.way, 40)}`;
  const name = printable(span.capability, 120) + version;
  switch (span.stage) {
    case 'outbound':
      return `${printable(span.caller ?? 'somebody', 80)} calls ${name}${way}`;
    case 'attempt':
      return `at ${printable(span.provider ?? 'nobody', 80)}${version}${way}${span.sandbox === true ? ', a mock' : ''}`;
    case 'inbound':
      return `in ${printable(span.sidecar, 64)}, for ${printable(span.provider ?? 'its agent', 80)}`;
    case 'send':
      return `${printable(span.caller ?? 'somebody', 80)} sends to ${name}${span.rule === undefined ? '' : ` (rule ${printable(span.rule, 60)})`}`;
    case 'outbox':
      return 'on the disk of the sender';
    case 'queue':
      return `in the queue${span.lane === undefined ? '' : `, lane ${printable(span.lane, 40)}`}`;
    case 'deliver':
      return `try ${span.tries ?? 1} at ${printable(span.provider ?? 'a worker', 80)}${version}`;
    case 'result':
      return `result, to the inbox of ${printable(span.caller ?? 'the sender', 80)}`;
    case 'inbox':
      return `in the inbox of ${printable(span.provider ?? span.caller ?? 'the agent', 80)}${span.detail === undefined ? '' : `: ${printable(span.detail, 40)}`}`;
  }
}

export function outcomeOf(span: Pick<PlacedSpan, 'code' | 'status' | 'degraded' | 'replay' | 'sandbox'>): string {
  const { code, status, degraded, replay, sandbox } = span;
  if (code === 0)
    return replay === true ? 'ok, said again' : degraded === true ? 'ok, by its fallback' : sandbox === true ? 'ok, by a mock' : 'ok';
  const entry = codeEntry(code);
  return `${code} ${entry.code === code ? entry.name : ''}${status === undefined || status === 0 ? '' : ` (${status})`}`;
}

function inkOf({ code, degraded, stage }: PlacedSpan): Ink | null {
  if (code !== 0) return 'bad';
  return degraded === true ? 'warn' : stage === 'outbound' || stage === 'deliver' ? 'good' : null;
}

function barOf(span: PlacedSpan, trace: TraceAnswer, chars: number, { unicode, paint }: Look): string {
  const whole = Math.max(trace.elapsed_ms, 0.001);
  const from = Math.min(1, Math.max(0, (span.shown_start_ms - trace.start_ms) / whole));
  const to = Math.min(1, Math.max(from, (span.shown_start_ms + span.elapsed_ms - trace.start_ms) / whole));
  const start = Math.min(chars - 1, Math.floor(from * chars));
  const length = Math.max(1, Math.min(chars - start, Math.round((to - from) * chars)));
  const isWait = span.stage === 'queue' || span.stage === 'outbox' || span.stage === 'inbox';
  const mark = isWait ? (unicode ? '░' : '.') : unicode ? '█' : '#';
  return ' '.repeat(start) + paint(span.code === 0 ? 'dim' : 'bad', mark.repeat(length));
}
