/** `shift`: traffic of a capability goes over to a version or a provider, in steps, with a guard that takes it back. */
import type { Command } from 'commander';
import type { ShiftChange, ShiftsAnswer, ShiftView } from '../api/shifts.ts';
import { Exit, Failed } from './client.ts';
import { type Context, shareOf, wholeOf } from './context.ts';
import type { Act } from './program.ts';
import { ago, percent, table, when } from './table.ts';

type Options = Readonly<Record<string, unknown>>;

const EXAMPLES = `
Without --guard it is taken back when more than 5 % of at least 50 attempts within a minute fail (--no-guard: never).
With both, errors and P95 are looked at; the new side is held against the old one within the same window.

Examples: reachctl shift start crm.order.query 2.1.0=20% --reason "new parser"
          reachctl shift start crm.order.query 2.1.0 --steps 5,20,50,100 --every 5m --guard 'errors>2%' --guard 'p95>+40%'
          reachctl shift start crm.order.query --provider crm.order.b=30%
          reachctl shift crm.order.query 2.1.0=20%      (start may be left out)`;

export function shiftCommands(program: Command, act: Act): void {
  const shift = program
    .command('shift')
    .description('shift traffic to a version or provider, in steps, guarded')
    .addHelpText('after', EXAMPLES)
    .helpCommand(false);
  shift
    .command('start <capability> [version]', { isDefault: true })
    .description('begin: 2.1.0=20%, or 2.1.0 with --steps')
    .option('--provider <agent>', 'to this provider instead: crm.order.b=30%, or crm.order.b with --steps')
    .option('--steps <shares>', 'shares that grow: 5,20,50,100')
    .option('--every <duration>', 'how long each step lasts at least, such as 5m')
    .option('--guard <condition...>', "what takes it back: 'errors>5%', 'p95>+40%'")
    .option('--no-guard', 'nothing takes it back')
    .option('--min-calls <n>', 'attempts within the window that are needed to judge')
    .option('--for-window <duration>', 'the window, such as 1m')
    .option('--reason <text>', 'stands in the audit log')
    .action(act((context, args, options) => start(context, args, options)));
  shift
    .command('list')
    .description('those that are under way, and the last ones that are over')
    .action(
      act(async (context) => {
        const answer = await context.client.call({ path: '/v1/shifts' });
        context.show<ShiftsAnswer>(answer, listWords);
      }),
    );
  shift
    .command('show <id>')
    .description('one, with what was measured lately')
    .action(
      act(async (context, [id]) => {
        const answer = await context.client.call({ path: `/v1/shifts/${encodeURIComponent(id as string)}` });
        context.show<ShiftView>(answer, shiftWords);
      }),
    );
  for (const [verb, does] of [
    ['pause', 'it stays where it is, and nothing is judged'],
    ['resume', 'goes on; its step begins anew'],
    ['finish', 'to its last step at once, and over'],
    ['abort', 'what was before it is in force again'],
  ] as const)
    shift
      .command(`${verb} <id>`)
      .description(does)
      .option('--reason <text>', 'stands in the audit log')
      .action(
        act(async (context, [id], options) => {
          const path = `/v1/shifts/${encodeURIComponent(id as string)}/${verb}`;
          const answer = await context.client.call({ method: 'POST', path, json: reasonOf(options) });
          context.show<ShiftChange>(answer, shiftWords);
        }),
      );
}

async function start(context: Context, [capability, version]: readonly string[], options: Options): Promise<void> {
  const provider = options['provider'];
  if ((version === undefined) === (typeof provider !== 'string'))
    throw new Failed(Exit.usage, ['name either a version, such as 2.1.0=20%, or --provider, such as crm.order.b=30%']);
  const [name, share] = split((version ?? provider) as string);
  const steps = typeof options['steps'] === 'string' ? stepsOf(options['steps']) : null;
  if ((share === null) === (steps === null)) throw new Failed(Exit.usage, [`name either a share, ${name}=20%, or --steps 5,20,50,100`]);
  const guard = guardOf(options);
  const json = {
    capability,
    ...(version === undefined ? { provider: name } : { version: name }),
    ...(steps === null ? { share: shareOf(share as string, 'the share') } : { steps }),
    ...(typeof options['every'] === 'string' ? { every: options['every'] } : null),
    ...(guard === undefined ? null : { guard }),
    ...reasonOf(options),
  };
  const answer = await context.client.call({ method: 'POST', path: '/v1/shifts', json });
  context.show<ShiftChange>(answer, shiftWords);
}

function split(text: string): readonly [string, string | null] {
  const at = text.indexOf('=');
  return at < 0 ? [text, null] : [text.slice(0, at), text.slice(at + 1)];
}

/** `5,20,50,100` are percentages; with a sign they may say so. */
function stepsOf(text: string): string[] {
  return text.split(',').map((one) => {
    const step = one.trim().replace(/%$/, '');
    if (!/^\d{1,3}(?:\.\d{1,4})?$/.test(step))
      throw new Failed(Exit.usage, [`--steps takes percentages such as 5,20,50,100, not ${JSON.stringify(text.slice(0, 80))}`]);
    return `${step}%`;
  });
}

/** undefined = as always, null = none. */
function guardOf(options: Options): Record<string, unknown> | null | undefined {
  if (options['guard'] === false) {
    if (options['minCalls'] === undefined && options['forWindow'] === undefined) return null;
    throw new Failed(Exit.usage, ['--min-calls and --for-window are of the guard: leave them out, or --no-guard']);
  }
  const guard: Record<string, unknown> = {};
  for (const text of (options['guard'] as string[] | true | undefined) === true ? [] : ((options['guard'] as string[] | undefined) ?? [])) {
    const parts = /^\s*(errors|p95)\s*>\s*\+?\s*(\d{1,6}(?:\.\d{1,4})?)\s*%\s*$/.exec(text);
    if (parts === null) throw new Failed(Exit.usage, [`--guard takes 'errors>5%' or 'p95>+40%', not ${JSON.stringify(text.slice(0, 80))}`]);
    guard[parts[1] as string] = `${parts[2]}%`;
  }
  if (typeof options['minCalls'] === 'string') guard['min_calls'] = wholeOf(options['minCalls'], '--min-calls');
  if (typeof options['forWindow'] === 'string') guard['window'] = options['forWindow'];
  return Object.keys(guard).length === 0 ? undefined : guard;
}

function reasonOf(options: Options): Record<string, string> {
  return typeof options['reason'] === 'string' ? { reason: options['reason'] } : {};
}

const targetOf = ({ version, provider }: ShiftView): string => version ?? provider ?? '-';

function listWords({ shifts }: ShiftsAnswer): string {
  if (shifts.length === 0) return 'no traffic is shifted, and none was';
  const rows = shifts.map((one) => [
    one.id,
    one.capability,
    targetOf(one),
    one.status.replace('_', ' '),
    `${percent(one.share)} (${one.step + 1} of ${one.steps.length})`,
    when(one.started_at_ms),
    one.author,
    one.why,
  ]);
  return table(['SHIFT', 'CAPABILITY', 'TO', 'STATUS', 'SHARE', 'BEGUN', 'BY', 'WHY'], rows);
}

function shiftWords(one: ShiftView): string {
  const steps = one.steps.map((share, i) => (i === one.step ? `[${percent(share)}]` : percent(share))).join(' ');
  const lines = [
    `${one.id}: ${one.capability} to ${targetOf(one)}, ${one.status.replace('_', ' ')}`,
    `steps ${steps}${one.every_ms === null ? '' : `, each at least ${ago(one.every_ms)}`}`,
    guardWords(one),
    `begun ${when(one.started_at_ms)} by ${one.author || '-'}${one.reason === '' ? '' : `: ${one.reason}`}`,
  ];
  if (one.why !== '') lines.push(one.why);
  if (one.measured !== null) {
    const { fresh, old } = one.measured;
    const row = (side: string, { calls, errors, p95_ms: p95 }: typeof fresh) => [
      side,
      calls,
      errors,
      calls === 0 ? null : percent(errors / calls),
      p95 === null ? null : `${p95} ms`,
    ];
    lines.push('', table(['SIDE', 'ATTEMPTS', 'ERRORS', 'SHARE', 'P95'], [row(targetOf(one), fresh), row('the others', old)]));
  }
  return lines.join('\n');
}

function guardWords({ guard }: ShiftView): string {
  if (guard === null) return 'no guard';
  const conditions: string[] = [];
  if (guard.errors !== null) conditions.push(`errors above ${percent(guard.errors)}`);
  if (guard.p95 !== null) conditions.push(`P95 more than ${percent(guard.p95)} above that of the others`);
  return `taken back by ${conditions.join(' or ')}, of at least ${guard.min_calls} attempts within ${ago(guard.window_ms)}`;
}
