/**
 * `audit`: what operators did and what was refused; shown, followed, exported, verified. An export is written as it is read, a
 * page at a time. Chains are verified here and not by the server, of the log itself or of an export.
 */
import type { Command } from 'commander';
import { printable } from '../../base/log.ts';
import { type AuditRecord, isEntry } from '../../proto/wire/audit.ts';
import { ChainCheck } from '../audit/verify.ts';
import type { AuditAnswer, AuditView } from '../api/audit-shapes.ts';
import { Exit, Failed } from './client.ts';
import { type Context, wholeOf } from './context.ts';
import type { Act, Options } from './program.ts';
import { table, when } from './table.ts';

const PAGE = 1_000;
const COLUMNS = [
  'id',
  'stored_at_ms',
  'v',
  'writer',
  'n',
  'prev',
  'at_ms',
  'actor',
  'role',
  'action',
  'subject',
  'reason',
  'detail',
  'outcome',
  'code',
  'count',
  'since_ms',
] as const;

export function auditCommands(program: Command, act: Act): void {
  const audit = program.command('audit').description('what operators did, and what was refused').helpCommand(false);
  const filtered = (name: string, description: string, isDefault = false): Command =>
    audit
      .command(name, { isDefault })
      .description(description)
      .option('--actor <name>', 'who; with * at the end: all that begin so')
      .option('--action <name>', 'what, such as provider.drain or override.*')
      .option('--subject <name>', 'to what, such as crm.order.*')
      .option('--outcome <word>', 'done, refused or audited');
  const spanned = (command: Command): Command =>
    command.option('--since <when>', 'not older: 24h, or 2026-05-01T12:00:00Z').option('--until <when>', 'not newer, in the same forms');
  spanned(filtered('list', 'newest first; what `audit` alone does', true))
    .option('--limit <n>', 'at most so many', '50')
    .action(act(list));
  audit
    .command('show <id>')
    .description('one entry, with all that it says')
    .action(
      act(async (context, [id]) => {
        const answer = await context.client.call({ path: `/v1/audit/${encodeURIComponent(id as string)}` });
        context.show<AuditView>(answer, words);
      }),
    );
  filtered('follow', 'entries as they come, until you end it').action(act(follow));
  spanned(filtered('export', 'all of them, oldest first, to standard output'))
    .option('--format <format>', 'jsonl or csv', 'jsonl')
    .action(act(exported));
  audit
    .command('verify')
    .description('check that nothing was changed or taken out: the entries of each writer are a chain. Ends with 1 when one is broken')
    .option('--file <file>', 'of an export in jsonl without filters, instead of the log itself; - is standard input')
    .action(act(verify));
}

async function list(context: Context, _args: readonly string[], options: Options): Promise<void> {
  const limit = wholeOf(options['limit'] as string, '--limit');
  const entries: AuditView[] = [];
  let looked = 0;
  for (let cursor: string | null = ''; cursor !== null && entries.length < limit; ) {
    const answer: AuditAnswer = await page(context, options, { cursor, limit: String(Math.min(PAGE, limit - entries.length)) });
    entries.push(...answer.entries);
    looked += answer.looked;
    cursor = answer.next;
  }
  context.show<{ entries: AuditView[] }>({ entries, looked }, (answer) =>
    table(
      ['ID', 'WHEN', 'WHO', 'WHAT', 'TO', 'REASON', 'OUTCOME'],
      answer.entries.map((one) => [
        one.id,
        when(one.at_ms),
        one.actor === '' ? '(nobody known)' : one.actor,
        one.action,
        one.subject,
        one.reason,
        outcome(one),
      ]),
    ),
  );
}

async function page(context: Context, options: Options, more: Readonly<Record<string, string>>): Promise<AuditAnswer> {
  const query: Record<string, string> = {};
  for (const key of ['actor', 'action', 'subject', 'outcome', 'since', 'until'])
    if (typeof options[key] === 'string') query[key] = options[key];
  for (const [key, value] of Object.entries(more)) if (value !== '') query[key] = value;
  return (await context.client.call({ path: '/v1/audit', query })) as AuditAnswer;
}

function outcome({ outcome: word, code, count }: AuditView): string {
  return `${word}${code === null ? '' : ` ${code}`}${count > 1 ? ` (${count} times)` : ''}`;
}

function words(one: AuditView): string {
  const lines: (readonly [string, string])[] = [
    ['id', one.id],
    ['when', new Date(one.at_ms).toISOString()],
    ['who', `${one.actor === '' ? '(nobody known)' : one.actor}${one.role === '' ? '' : ` (${one.role})`}`],
    ['what', one.action],
    ['to', one.subject],
    ['outcome', outcome(one)],
    ['reason', one.reason],
    ...(one.count > 1 ? ([['since', new Date(one.since_ms).toISOString()]] as const) : []),
    ...Object.entries(one.detail).map(([key, value]) => [key, String(value)] as const),
    ['written by', `${one.writer}, its entry ${one.n}`],
  ];
  const width = Math.max(...lines.map(([key]) => key.length));
  return lines.map(([key, value]) => `${key.padEnd(width)}  ${printable(value)}`).join('\n');
}

async function follow(context: Context, _args: readonly string[], options: Options): Promise<void> {
  const query: Record<string, string> = {};
  for (const key of ['actor', 'action', 'subject', 'outcome']) if (typeof options[key] === 'string') query[key] = options[key];
  await context.client.events({ path: '/v1/audit/follow', query }, (name, data) => {
    if (name !== 'entry') return true;
    const one = data as AuditView;
    context.io.out(
      context.json
        ? JSON.stringify(one)
        : printable(
            `${when(one.at_ms)}  ${one.actor === '' ? '(nobody known)' : one.actor}  ${one.action}  ${one.subject}  ${outcome(one)}${one.reason === '' ? '' : `: ${one.reason}`}`,
          ),
    );
    return true;
  });
}

async function exported(context: Context, _args: readonly string[], options: Options): Promise<void> {
  const { format } = options;
  if (format !== 'jsonl' && format !== 'csv') throw new Failed(Exit.usage, ['--format must be jsonl or csv']);
  if (format === 'csv') context.io.out(COLUMNS.join(','));
  await eachPage(context, options, (entries) => {
    if (entries.length > 0) context.io.out(entries.map(format === 'csv' ? csvLine : (one) => JSON.stringify(one)).join('\n'));
  });
}

async function eachPage(context: Context, options: Options, take: (entries: readonly AuditView[]) => void): Promise<void> {
  for (let cursor: string | null = ''; cursor !== null; ) {
    const answer: AuditAnswer = await page(context, options, { cursor, limit: String(PAGE), order: 'oldest' });
    take(answer.entries);
    cursor = answer.next;
  }
}

function csvLine(one: AuditView): string {
  return COLUMNS.map((key) => csvCell(key === 'detail' ? JSON.stringify(one.detail) : String(one[key] ?? ''))).join(',');
}

/** Quoted where it must be; what a spreadsheet would take for a formula gets a quote before it. */
function csvCell(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) && !/^-?\d+(\.\d+)?$/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

async function verify(context: Context, _args: readonly string[], options: Options): Promise<void> {
  const check = new ChainCheck();
  if (typeof options['file'] === 'string') {
    const lines = (await context.read(options['file'])).split('\n');
    for (const [i, line] of lines.entries()) if (line.trim() !== '') check.add(...lineIn(line, i + 1));
  } else await eachPage(context, {}, (entries) => entries.forEach((one) => check.add(one.id, one)));
  const chains = check.chains();
  context.show({ entries: check.entries, chains, problems: check.problems }, () =>
    [
      table(
        ['WRITER', 'LOG', 'ENTRIES', 'FROM', 'TO', 'HASH OF THE LAST'],
        chains.map((one) => [one.writer, one.log, String(one.entries), String(one.first), String(one.last), one.hash]),
      ),
      ...check.problems.map((problem) => `broken: ${problem}`),
      ...(check.problems.length === 0 ? [`${check.entries} entries, nothing changed or taken out between them`] : []),
    ].join('\n'),
  );
  if (check.problems.length > 0) throw new Failed(Exit.refused, ['the audit log is broken: see above']);
}

function lineIn(line: string, number: number): readonly [string, AuditRecord] {
  let value: unknown;
  try {
    value = JSON.parse(line) as unknown;
  } catch {
    // said below
  }
  const { id } = (value ?? {}) as { id?: unknown };
  if (typeof id !== 'string' || !isEntry(value)) throw new Failed(Exit.refused, [`line ${number} is no entry of an export`]);
  return [id, value];
}
