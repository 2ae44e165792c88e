/** `tasks` and `pools`: what is kept for people, what is parked, and what is done with it. */
import type { Command } from 'commander';
import { printable } from '../../base/log.ts';
import type {
  HandledAnswer,
  KeptAnswer,
  KeptShown,
  ParkedAnswer,
  PoolsAnswer,
  PoolView,
  RedriveAnswer,
  TaskOrderAnswer,
  PayloadAnswer,
} from '../api/task-shapes.ts';
import { Exit, Failed } from './client.ts';
import { type Context, wholeOf } from './context.ts';
import type { Act, Options } from './program.ts';
import { ago, type Cell, table, when } from './table.ts';

const REASON = ['--reason <text>', 'stands in the audit log'] as const;

export function taskCommands(program: Command, act: Act): void {
  const tasks = program.command('tasks').description('tasks that need a person').helpCommand(false);
  tasks
    .command('list')
    .description('what is kept: dead letters, tasks in doubt, tasks to be reviewed; the oldest first')
    .option('--kind <kind>', 'dead, in_doubt or review')
    .option('--capability <name>', 'only of this one')
    .option('--limit <n>', 'at most so many', '100')
    .option('--after <seq>', 'go on after this sequence')
    .action(
      act(async (context, _args, options) => {
        const query = {
          kind: textOf(options, 'kind'),
          capability: textOf(options, 'capability'),
          limit: String(wholeOf(String(options['limit']), '--limit')),
          after: textOf(options, 'after'),
        };
        const answer = await context.client.call({ path: '/v1/tasks/kept', query });
        context.show<KeptAnswer>(answer, keptWords);
      }),
    );
  tasks
    .command('show <task>')
    .description('one of them: why it is kept, who tried, what the message says')
    .option('--payload', 'its payload and headers too, as they are; that you looked stands in the audit log')
    .action(
      act(async (context, [task], options) => {
        const path = `/v1/tasks/kept/${encodeURIComponent(task as string)}`;
        const answer = (await context.client.call({ path })) as KeptShown;
        if (options['payload'] !== true) return context.show<KeptShown>(answer, shownWords);
        const payload = (await context.client.call({ path: `${path}/payload` })) as PayloadAnswer;
        context.show<KeptShown & { payload: typeof payload }>({ ...answer, payload }, (shown) =>
          [
            shownWords(shown),
            ...headerWords(payload.headers),
            '',
            printable(Buffer.from(payload.base64, 'base64').toString('utf8'), 100_000),
          ].join('\n'),
        );
      }),
    );
  releasing(tasks.command('release <task>'), act);
  moving(tasks.command('drop [task]'), act, 'drop').description('take it out for good; with --pool: what is parked there');
  moving(tasks.command('reroute [task]'), act, 'reroute')
    .description('send it to another capability; with --pool: what is parked there')
    .requiredOption('--to <capability>', 'name or alias, with a range where one is wanted');
  tasks
    .command('redrive')
    .description('release many at once; those in doubt are released one by one')
    .option('--kind <kind>', 'dead or review', 'dead')
    .option('--capability <name>', 'only of this one')
    .option('--limit <n>', 'at most so many', '100')
    .option(...REASON)
    .action(
      act(async (context, _args, options) => {
        const capability = textOf(options, 'capability');
        const json = {
          kind: options['kind'],
          limit: wholeOf(String(options['limit']), '--limit'),
          ...(capability === null ? {} : { capability }),
          ...reasonOf(options),
        };
        const answer = (await context.client.call({ method: 'POST', path: '/v1/tasks/redrive', json })) as RedriveAnswer;
        context.show<RedriveAnswer>(answer, ({ redriven, failed, stopped }) =>
          [
            `${redriven} released`,
            ...failed.map(({ task_id: task, why }) => `${task} was not: ${printable(why)}`),
            ...(stopped === null ? [] : [`the others were not looked at: ${printable(stopped)}`]),
          ].join('\n'),
        );
        if (answer.stopped !== null) throw new Failed(Exit.refused, ['it stopped half-way: order it again']);
        if (answer.failed.length > 0) throw new Failed(Exit.refused, [`${answer.failed.length} could not be released`]);
      }),
    );
  tasks
    .command('parked [pool]')
    .description('pools that hold tasks and have nobody who works on them, or only agents that are drained; or the tasks of one')
    .option('--limit <n>', 'at most so many tasks', '100')
    .option('--after <seq>', 'go on after this sequence')
    .action(act(parked));
  const pools = program.command('pools').description('the pools that tasks wait in').helpCommand(false);
  pools
    .command('list')
    .description('every pool: who works on it, and what waits in it')
    .action(
      act(async (context) => {
        const answer = await context.client.call({ path: '/v1/pools' });
        context.show<PoolsAnswer>(answer, (view) =>
          table(['POOL', 'AGENTS', 'WAITING', 'HIGH', 'NORMAL', 'LOW', 'IN HAND', 'OLDEST', 'OWNERS', 'WHAT'], view.pools.map(poolRow)),
        );
      }),
    );
}

function poolRow(one: PoolView): Cell[] {
  const { lanes } = one;
  const owners = one.sticky ? `${new Set(one.owners.filter((owner) => owner !== '')).size}` : null;
  return [
    one.pool,
    one.agents,
    one.messages,
    lanes['high'] ?? 0,
    lanes['normal'] ?? 0,
    lanes['low'] ?? 0,
    one.in_hand,
    ago(one.oldest_ms),
    owners,
    one.words,
  ];
}

/** Why nobody works on it although somebody is there. */
function drainedWords({ drained }: PoolView): string {
  return drained === 0 ? '' : ` (drained: ${drained} agent${drained === 1 ? '' : 's'})`;
}

function releasing(command: Command, act: Act): void {
  command
    .description('put it back into the queue: one in doubt may be carried out a second time')
    .option(...REASON)
    .action(
      act(async (context, [task], options) => {
        const path = `/v1/tasks/kept/${encodeURIComponent(task as string)}/release`;
        const answer = await context.client.call({ method: 'POST', path, json: reasonOf(options) });
        context.show<TaskOrderAnswer>(answer, orderWords);
      }),
    );
}

/** Of what is kept, by task; or of what is parked, by pool. */
function moving(command: Command, act: Act, verb: 'drop' | 'reroute'): Command {
  return command
    .option('--pool <pool>', 'not one that is kept, but what is parked in this pool: the task that is named, or all')
    .option('--limit <n>', 'of what is parked: at most so many', '100')
    .option(...REASON)
    .action(
      act(async (context, [task], options) => {
        const pool = textOf(options, 'pool');
        const to = textOf(options, 'to');
        const json = { ...(to === null ? {} : { capability: to }), ...reasonOf(options) };
        if (pool === null) {
          if (task === undefined) throw new Failed(Exit.usage, [`say which task to ${verb}, or a pool with --pool`]);
          const path = `/v1/tasks/kept/${encodeURIComponent(task)}/${verb}`;
          const answer = await context.client.call({ method: 'POST', path, json });
          return context.show<TaskOrderAnswer>(answer, orderWords);
        }
        const some = { ...json, limit: wholeOf(String(options['limit']), '--limit'), ...(task === undefined ? {} : { task }) };
        const path = `/v1/tasks/parked/${encodeURIComponent(pool)}/${verb}`;
        const answer = (await context.client.call({ method: 'POST', path, json: some })) as HandledAnswer;
        context.show<HandledAnswer>(answer, ({ done, failed }) =>
          [
            `${done.length} ${verb === 'drop' ? 'dropped' : `sent to ${to ?? ''}`}`,
            ...failed.map(({ task_id: id, why }) => `${id} was not: ${printable(why)}`),
          ].join('\n'),
        );
        if (answer.failed.length > 0) throw new Failed(Exit.refused, [`${answer.failed.length} stayed where they are`]);
      }),
    );
}

async function parked(context: Context, [pool]: readonly string[], options: Options): Promise<void> {
  if (pool === undefined) {
    const answer = await context.client.call({ path: '/v1/tasks/parked' });
    return context.show<PoolsAnswer>(answer, ({ pools }) =>
      pools.length === 0
        ? 'nothing is parked'
        : table(
            ['POOL', 'MESSAGES', 'OLDEST', 'WHAT'],
            pools.map((one) => [one.pool, one.messages, ago(one.oldest_ms), `${one.words}${drainedWords(one)}`]),
          ),
    );
  }
  const query = { limit: String(wholeOf(String(options['limit']), '--limit')), after: textOf(options, 'after') };
  const answer = await context.client.call({ path: `/v1/tasks/parked/${encodeURIComponent(pool)}`, query });
  context.show<ParkedAnswer>(answer, ({ tasks, next }) => {
    const rows = table(
      ['TASK', 'SINCE', 'LANE', 'FROM', 'TYPE', 'RULE', 'BYTES'],
      tasks.map((one) => [one.task_id, when(one.since_ms), one.lane, one.source, one.message_type, one.rule, one.payload_bytes]),
    );
    return next === null ? rows : `${rows}\nthere is more: --after ${next}`;
  });
}

function orderWords({ task_id: task, capability, version, pool }: TaskOrderAnswer): string {
  return pool === null ? `${task} is dropped` : `${task} waits in pool ${pool}: ${capability}${version === null ? '' : `@${version}`}`;
}

function keptWords({ entries, next }: KeptAnswer): string {
  if (entries.length === 0) return 'nothing is kept';
  const rows = table(
    ['TASK', 'KIND', 'SINCE', 'CAPABILITY', 'FROM', 'TRIES', 'WHY'],
    entries.map((one) => [one.task_id, one.kind, when(one.since_ms), one.capability, one.source, one.attempts, whyOf(one)]),
  );
  return next === null ? rows : `${rows}\nthere is more: --after ${next}`;
}

function whyOf({ code, name, cause, detail }: KeptAnswer['entries'][number]): string {
  return [code === 0 ? '' : `${code} ${name}`, cause, detail].filter((part) => part !== '').join(', ');
}

function shownWords(one: KeptShown): string {
  const lines = [
    `${one.task_id} (${one.kind}), since ${when(one.since_ms)}`,
    `why         ${printable(whyOf(one), 500)}`,
    `capability  ${one.capability}${one.version === null ? '' : `@${one.version}`}, lane ${one.lane ?? '-'}, pool ${one.pool ?? '-'}`,
    `from        ${one.source}${one.rule === null ? '' : `, by rule ${one.rule}`}`,
    `key         ${printable(one.power_id)}`,
    `payload     ${one.payload_bytes} bytes${one.content_type === '' ? '' : `, ${printable(one.content_type)}`}`,
  ];
  if (one.message === null) lines.push('the message itself cannot be read: it can only be dropped');
  for (const [i, { by, at_ms: atMs, code, detail }] of one.tries.entries())
    lines.push(`try ${i + 1}       ${when(atMs)}  ${by === '' ? '-' : by}  ${code}  ${printable(detail, 300)}`);
  return lines.join('\n');
}

function headerWords(headers: PayloadAnswer['headers']): string[] {
  return Object.entries(headers).map(([name, value]) => `header      ${printable(name)}: ${printable(value, 300)}`);
}

function textOf(options: Options, name: string): string | null {
  const value = options[name];
  return typeof value === 'string' ? value : null;
}

function reasonOf(options: Options): { readonly reason?: string } {
  const reason = textOf(options, 'reason');
  return reason === null ? {} : { reason };
}
