/** `quota`: how much agents, capabilities and providers may be asked for, set while everything runs. */
import type { Command } from 'commander';
import type { InForceView, QuotaAnswer, QuotaChange, QuotasAnswer, QuotaView } from '../api/quotas.ts';
import { Exit, Failed } from './client.ts';
import { type Context, wholeOf } from './context.ts';
import type { Act } from './program.ts';
import { table, when } from './table.ts';

type Options = Readonly<Record<string, unknown>>;

const EXAMPLES = `
KIND is agent, capability or provider; TARGET has three parts, with * for any: the quota of each that it covers.
Of several that cover one name the most exact counts, for each limit by itself.

Examples: reachctl quota set agent sales.bot.7 --calls 1000/s --for 2h --reason "campaign"
          reachctl quota set agent 'sales.*.*' --calls 100/s --messages 50/s --in-flight 20
          reachctl quota set capability crm.order.query --calls 500/s
          reachctl quota set provider crm.order.a --calls 200/s --in-flight 16`;

export function quotaCommands(program: Command, act: Act): void {
  const quota = program
    .command('quota')
    .description('how much may be asked for, by agent, of a capability, of a provider')
    .addHelpText('after', EXAMPLES)
    .helpCommand(false);
  quota
    .command('list')
    .description('every quota, with what it let through and refused')
    .option('--kind <kind>', 'agent, capability or provider')
    .action(
      act(async (context, _args, options) => {
        const query = { kind: typeof options['kind'] === 'string' ? options['kind'] : null };
        const answer = await context.client.call({ path: '/v1/quotas', query });
        context.show<QuotasAnswer>(answer, listWords);
      }),
    );
  quota
    .command('show <kind> <target>')
    .description('one quota')
    .action(
      act(async (context, args) => {
        const answer = await context.client.call({ path: pathOf(args) });
        context.show<QuotaAnswer>(answer, (view) => listWords({ quotas: [view.quota], in_force: view.in_force }));
      }),
    );
  quota
    .command('set <kind> <target>')
    .description('set a quota, in place of the one that there is; in force everywhere within a second')
    .option('--calls <rate>', 'calls a second, such as 100/s or 6000/m')
    .option('--calls-burst <n>', "calls at once; a second's worth when left out")
    .option('--messages <rate>', 'messages a second, of agents')
    .option('--messages-burst <n>', 'messages at once')
    .option('--in-flight <n>', 'calls under way at once, of agents and providers')
    .option('--for <duration>', 'falls away by itself after this, such as 2h')
    .option('--reason <text>', 'stands in the audit log')
    .action(act((context, args, options) => set(context, args, options)));
  quota
    .command('remove <kind> <target>')
    .description('take a quota back')
    .option('--reason <text>', 'stands in the audit log')
    .action(
      act(async (context, args, options) => {
        const query = { reason: typeof options['reason'] === 'string' ? options['reason'] : null };
        const answer = await context.client.call({ method: 'DELETE', path: pathOf(args), query });
        context.show<QuotaChange>(answer, changeWords);
      }),
    );
}

async function set(context: Context, args: readonly string[], options: Options): Promise<void> {
  const json: Record<string, unknown> = {};
  for (const what of ['calls', 'messages']) {
    const rate = options[what];
    if (typeof rate === 'string') json[`${what}_per_sec`] = perSecOf(rate, `--${what}`);
    const burst = options[`${what}Burst`];
    if (typeof burst === 'string') json[`${what}_burst`] = wholeOf(burst, `--${what}-burst`);
  }
  if (typeof options['inFlight'] === 'string') json['in_flight'] = wholeOf(options['inFlight'], '--in-flight');
  for (const key of ['for', 'reason']) if (typeof options[key] === 'string') json[key] = options[key];
  const answer = await context.client.call({ method: 'PUT', path: pathOf(args), json });
  context.show<QuotaChange>(answer, changeWords);
}

const PER: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3_600 };

/** `100/s`, `6000/m`, `100`. */
function perSecOf(text: string, what: string): number {
  const parts = /^(\d{1,9}(?:\.\d{1,6})?)(?:\/([smh]))?$/.exec(text.trim());
  if (parts === null)
    throw new Failed(Exit.usage, [`${what} takes a rate such as 100/s or 6000/m, not ${JSON.stringify(text.slice(0, 40))}`]);
  return Number(parts[1]) / (PER[parts[2] ?? 's'] as number);
}

function pathOf([kind, target]: readonly string[]): string {
  return `/v1/quotas/${encodeURIComponent(kind as string)}/${encodeURIComponent(target as string)}`;
}

function listWords({ quotas, in_force: inForce }: QuotasAnswer): string {
  if (quotas.length === 0) return 'no quotas are set';
  const rows = quotas.map((one) => [
    one.kind,
    one.target,
    rateWords(one.calls_per_sec, one.calls_burst),
    rateWords(one.messages_per_sec, one.messages_burst),
    one.in_flight,
    one.taken,
    one.refused,
    one.expires_at_ms === null ? null : when(one.expires_at_ms),
    one.author,
    one.reason,
  ]);
  return `${table(['KIND', 'TARGET', 'CALLS', 'MESSAGES', 'IN FLIGHT', 'TAKEN', 'REFUSED', 'UNTIL', 'BY', 'REASON'], rows)}\n\n${forceWords(inForce)}`;
}

function rateWords(perSec: number | null, burst: number | null): string | null {
  if (perSec === null) return null;
  return `${Number(perSec.toPrecision(6))}/s, ${burst ?? '-'} at once`;
}

function forceWords({ on, of, missing }: InForceView): string {
  return `in force on ${on} of ${of} sidecars${missing.length === 0 ? '' : `, missing: ${missing.join(', ')}`}`;
}

function changeWords({ kind, target, quota, warning, seq, in_force: inForce }: QuotaChange): string {
  const told = quota === null ? 'no quota of its own any more' : limitWords(quota);
  const lines = [`${kind} ${target}: ${told}; ${seq > 0 ? `sequence ${seq}, ${forceWords(inForce)}` : 'nothing changed'}`];
  if (warning !== '') lines.push(`warning: ${warning}`);
  return lines.join('\n');
}

function limitWords(one: QuotaView): string {
  const parts: string[] = [];
  const calls = rateWords(one.calls_per_sec, one.calls_burst);
  const messages = rateWords(one.messages_per_sec, one.messages_burst);
  if (calls !== null) parts.push(`calls ${calls}`);
  if (messages !== null) parts.push(`messages ${messages}`);
  if (one.in_flight !== null) parts.push(`${one.in_flight} in flight`);
  return parts.join('; ') + (one.expires_at_ms === null ? '' : `, until ${when(one.expires_at_ms)}`);
}
