/**
 * `trace`: one trace as a timeline, or those that fit as a list; `tail`: hops as they end. Following a trace goes on while something of
 * it is under way, so that long work can be watched: at a terminal the picture is drawn anew, elsewhere each new span is a line.
 */
import { type Command, Option } from 'commander';
import { printable } from '../../base/log.ts';
import { SPAN_STAGES } from '../../proto/wire/spans.ts';
import type { TailLine, TraceAnswer, TraceLineView, TracesAnswer } from '../api/trace-shapes.ts';
import { Exit, Failed } from './client.ts';
import { type Context, wholeOf } from './context.ts';
import type { Act, Options } from './program.ts';
import { type Cell, table, when } from './table.ts';
import { isUnicode, paintFor, Screen, spell, widthFor } from './terminal.ts';
import { labelOf, type Look, outcomeOf, traceWords } from './trace-view.ts';

const FOLLOW_MS = 1_000;
/** Nothing of it has come: whoever follows a trace id may be early. */
const APPEARS_MS = 60_000;
/** It has gaps, and nothing more comes. */
const SILENT_MS = 10_000;
const RETRIES = 15;
const RETRY_MS = 1_000;

export function traceCommands(program: Command, act: Act): void {
  const trace = filtered(program.command('trace [trace-id]'))
    .description('one call or message through all its hops, as a timeline; without an id: traces that fit, newest first')
    .option('--why', 'and why each step went where it went')
    .option('--follow', 'go on showing it while something of it is under way')
    .option('--since <when>', 'of the list: not older: 15m, or 2026-05-01T12:00:00Z')
    .option('--limit <n>', 'of the list: at most so many', '50');
  trace.action(act((context, [id], options) => (id === undefined ? list(context, options) : one(context, id, options))));
  filtered(program.command('tail'))
    .description('hops as they end, until you end it')
    .addOption(
      new Option('--stage <stages>', `which, with commas, or all: ${SPAN_STAGES.join(', ')}`).default(undefined, 'outbound,send,deliver'),
    )
    .option('--max-per-sec <n>', 'more are left out, and it is said how many')
    .option('--count <n>', 'end after so many')
    .action(act(tail));
}

function filtered(command: Command): Command {
  return command
    .option('--capability <name>', 'canonical name, or a pattern such as crm.*')
    .option('--agent <id>', 'who called or served, or a pattern such as crm.order.*')
    .option('--provider <id>', 'who served')
    .option('--code <code>', 'that some hop or attempt ended with this code')
    .option('--failed', 'only what failed')
    .option('--min-ms <ms>', 'only what took so long, or longer');
}

const FILTER_KEYS = { capability: 'capability', agent: 'agent', provider: 'provider', code: 'code', minMs: 'min_ms' } as const;

function filterOf(options: Options): Record<string, string> {
  const query: Record<string, string> = {};
  for (const [option, key] of Object.entries(FILTER_KEYS)) if (typeof options[option] === 'string') query[key] = options[option];
  if (options['failed'] === true) query['failed'] = '1';
  return query;
}

// ---- a list

async function list(context: Context, options: Options): Promise<void> {
  if (options['why'] === true || options['follow'] === true)
    throw new Failed(Exit.usage, ['--why and --follow are for one trace: say which, such as: reachctl trace <id> --why']);
  const query = { ...filterOf(options), limit: String(wholeOf(String(options['limit']), '--limit')) };
  const since = typeof options['since'] === 'string' ? { since: options['since'] } : {};
  const answer = await context.client.call({ path: '/v1/traces', query: { ...query, ...since } });
  context.show<TracesAnswer>(answer, ({ traces, more }) =>
    traces.length === 0
      ? 'no trace fits'
      : [
          table(['TRACE', 'WHEN', 'TOOK', 'CALLER', 'CAPABILITY', 'SPANS', 'CAME TO'], traces.map(row)),
          ...(more > 0 ? [`and ${more} more: raise --limit, or narrow it`] : []),
        ].join('\n'),
  );
}

function row(one: TraceLineView): readonly Cell[] {
  const came = one.code === 0 && one.failed ? 'ok, with failures' : outcomeOf({ code: one.code });
  return [one.trace_id, when(one.start_ms), spell(one.elapsed_ms), one.caller, one.capability, one.spans, came];
}

// ---- one

async function one(context: Context, id: string, options: Options): Promise<void> {
  for (const key of [...Object.keys(FILTER_KEYS), 'failed', 'since'])
    if (options[key] !== undefined)
      throw new Failed(Exit.usage, [
        `--${key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)} is for the list: leave it out, or the trace id`,
      ]);
  const withWhy = options['why'] === true;
  if (options['follow'] === true) return follow(context, id, withWhy);
  const answer = await fetched(context, id);
  context.show<TraceAnswer>(answer, (trace) => traceWords(trace, lookOf(context), withWhy));
}

async function fetched(context: Context, id: string): Promise<TraceAnswer> {
  return (await context.client.call({ path: `/v1/traces/${encodeURIComponent(id)}` })) as TraceAnswer;
}

function lookOf({ io }: Context): Look {
  return { width: widthFor(io.terminal, io.env), paint: paintFor(io.terminal, io.env), unicode: isUnicode(io.env) };
}

async function follow(context: Context, id: string, withWhy: boolean): Promise<void> {
  const { io } = context;
  const { clock } = io;
  const terminal = context.json ? undefined : io.terminal;
  const seen = new Set<string>();
  const begun = clock.now();
  let changedAt = begun;
  let last: TraceAnswer | null = null;
  let drawn = 0;
  for (;;) {
    const next: TraceAnswer | null = await fetched(context, id).catch((error: unknown) => {
      const isUnknown = error instanceof Failed && error.exit === Exit.refused && statusOf(error) === 404;
      if (isUnknown && clock.now() - begun < APPEARS_MS) return null;
      if (error instanceof Failed && error.exit === Exit.unreachable && clock.now() - changedAt < APPEARS_MS) return last;
      throw error;
    });
    if (next !== null && isNews(last, next)) {
      changedAt = clock.now();
      if (context.json) io.out(JSON.stringify(next));
      else if (terminal === undefined) for (const span of next.spans) if (!seen.has(span.span_id)) io.out(followLine(span, next.start_ms));
      for (const span of next.spans) seen.add(span.span_id);
      last = next;
    }
    if (last !== null && terminal !== undefined) drawn = draw(terminal, traceWords(last, lookOf(context), withWhy), drawn);
    const isSilent = clock.now() - changedAt >= SILENT_MS;
    if (last !== null && (last.complete || (isSilent && last.under_way.length === 0))) break;
    await new Promise<void>((done) => void clock.after(FOLLOW_MS, done));
  }
  if (!context.json && terminal === undefined) io.out(`\n${traceWords(last, lookOf(context), withWhy)}`);
}

function statusOf(error: Failed): number {
  const body = error.body as { readonly status?: unknown } | null;
  return typeof body?.status === 'number' ? body.status : 0;
}

function isNews(last: TraceAnswer | null, next: TraceAnswer): boolean {
  return (
    last === null ||
    next.spans.length !== last.spans.length ||
    next.under_way.join() !== last.under_way.join() ||
    next.gaps.length !== last.gaps.length
  );
}

function followLine(span: TraceAnswer['spans'][number], startMs: number): string {
  const at = spell(Math.max(0, span.shown_start_ms - startMs)).padStart(8);
  return `+${at}  ${spell(span.elapsed_ms).padStart(8)}  ${'  '.repeat(Math.min(span.depth, 20))}${labelOf(span)}: ${outcomeOf(span)}`;
}

/** In place of what was drawn before; gives how many lines it has. What is taller than the window is written once more below. */
function draw(terminal: NonNullable<Context['io']['terminal']>, text: string, before: number): number {
  const lines = text.split('\n');
  const up = before > 0 && before < terminal.rows ? `\u001B[${before}A\r` : '';
  terminal.write(`${up}${lines.map((line) => `${line}${Screen.clearLine}`).join('\n')}\n${Screen.clearBelow}`);
  return lines.length;
}

// ---- tail

async function tail(context: Context, _args: readonly string[], options: Options): Promise<void> {
  const { io } = context;
  const most = typeof options['count'] === 'string' ? wholeOf(options['count'], '--count') : Number.POSITIVE_INFINITY;
  const query = filterOf(options);
  if (typeof options['stage'] === 'string') query['stage'] = options['stage'];
  if (typeof options['maxPerSec'] === 'string') query['max_per_sec'] = String(wholeOf(options['maxPerSec'], '--max-per-sec'));
  let seen = 0;
  let refused = '';
  for (let failures = 0; seen < most; ) {
    try {
      await context.client.events({ path: '/v1/tail', query }, (name, data) => {
        failures = 0;
        if (name === 'hop') {
          io.out(context.json ? JSON.stringify(data) : tailLine(context, data as TailLine));
          return ++seen < most;
        }
        if (name === 'left_out') {
          const { count } = data as { readonly count: number };
          if (context.json) io.out(JSON.stringify({ left_out: count }));
          else io.err(`reachctl: ${count} more were left out: narrow it, or raise --max-per-sec`);
        }
        if (name === 'full') {
          refused = printable(String((data as { readonly detail?: unknown }).detail));
          return false;
        }
        return true;
      });
    } catch (error) {
      if (!(error instanceof Failed) || error.exit !== Exit.unreachable || ++failures > RETRIES) throw error;
    }
    if (refused !== '') throw new Failed(Exit.refused, [refused]);
    if (seen >= most) return;
    io.err('reachctl: the stream has ended; looking again, and what ends meanwhile is not shown');
    await new Promise<void>((done) => void io.clock.after(RETRY_MS, done));
  }
}

function tailLine({ io }: Context, span: TailLine): string {
  const paint = paintFor(io.terminal, io.env);
  const time = new Date(span.start_ms + span.elapsed_ms).toISOString().slice(11, 23);
  const what = span.stage === 'outbound' ? '' : `${span.stage} `;
  const version = span.version === undefined ? '' : `@${printable(span.version, 40)}`;
  const came = paint(span.code === 0 ? 'good' : 'bad', outcomeOf(span));
  const detail = span.code === 0 || span.detail === undefined ? '' : `: ${printable(span.detail, 160)}`;
  const place = `${printable(span.caller ?? '-', 80)} > ${printable(span.capability, 120)}${version}${span.provider === undefined ? '' : ` at ${printable(span.provider, 80)}`}`;
  return `${time}  ${what}${place}  ${spell(span.elapsed_ms)}  ${came}${detail}  ${paint('dim', span.trace_id)}`;
}
