/** `alerts`: what is wrong, and what is known already and need not be told again. */
import type { Command } from 'commander';
import type { AlertsAnswer, AlertView, SilenceAnswer, SilenceView } from '../api/alerts.ts';
import { Exit, Failed } from './client.ts';
import type { Context } from './context.ts';
import type { Act, Options } from './program.ts';
import { table, when } from './table.ts';

const EXAMPLES = `
Kinds: p95_rise (subject: the capability), breaker_flapping ('agent capability'), backlog (pool:<id>, dead, in_doubt, review),
agent_offline (the agent, sidecar:<name>, region:<name>, fleet); of each kind 'more', for those beyond 50.
In a subject * stands for any run of characters.

Examples: reachctl alerts list --state firing
          reachctl alerts silence crm.order.query --for 2h --reason "known, new index is being built"
          reachctl alerts silence 'crm.*' --kind agent_offline --for 30m --reason "moving house"
          reachctl alerts unsilence q3`;

export function alertCommands(program: Command, act: Act): void {
  const alerts = program
    .command('alerts')
    .description('what is wrong, and what is silenced')
    .addHelpText('after', EXAMPLES)
    .helpCommand(false);
  alerts
    .command('list')
    .description('those that fire, those on their way, those that were resolved within a day; and silences')
    .option('--state <state>', 'only those: pending, firing or resolved')
    .action(
      act(async (context, _args, options) => {
        const query = { state: typeof options['state'] === 'string' ? options['state'] : null };
        const answer = await context.client.call({ path: '/v1/alerts', query });
        context.show<AlertsAnswer>(answer, listWords);
      }),
    );
  alerts
    .command('silence <subject>')
    .description('tell nobody of these for a time; what still fires afterwards is told then')
    .option('--kind <kind>', 'only this kind of alert')
    .option('--for <duration>', 'how long, such as 2h; at most 30d')
    .option('--reason <text>', 'why: whoever finds the silence will ask')
    .action(act((context, args, options) => silence(context, args[0] as string, options)));
  alerts
    .command('unsilence <id>')
    .description('lift a silence')
    .action(
      act(async (context, [id]) => {
        const answer = await context.client.call({ method: 'DELETE', path: `/v1/alerts/silences/${encodeURIComponent(id as string)}` });
        context.show<SilenceAnswer>(answer, (lifted) => `${lifted.id} is lifted`);
      }),
    );
}

async function silence(context: Context, subject: string, options: Options): Promise<void> {
  if (typeof options['for'] !== 'string') throw new Failed(Exit.usage, ['say for how long: --for 2h']);
  if (typeof options['reason'] !== 'string') throw new Failed(Exit.usage, ['say why: --reason "…"']);
  const kind = typeof options['kind'] === 'string' ? { kind: options['kind'] } : {};
  const made = { subject, for: options['for'], reason: options['reason'], ...kind };
  const answer = await context.client.call({ method: 'POST', path: '/v1/alerts/silences', json: made });
  context.show<SilenceAnswer>(answer, (one) => `${one.id}: ${one.subject} is silenced until ${when(one.until_ms)}`);
}

function listWords({ alerts, silences }: AlertsAnswer): string {
  const lines: string[] = [];
  if (alerts.length === 0) lines.push('nothing is wrong, as far as these alerts can tell');
  else lines.push(table(['ALERT', 'STATE', 'KIND', 'SINCE', 'SILENCED', 'WHAT', 'LOOK'], alerts.map(alertRow)));
  if (silences.length > 0) lines.push('', table(['SILENCE', 'KIND', 'SUBJECT', 'UNTIL', 'BY', 'WHY'], silences.map(silenceRow)));
  return lines.join('\n');
}

function alertRow({ id, state, kind, since_ms: since, silenced_until_ms: silenced, words, look }: AlertView) {
  return [id, state, kind, when(since), silenced === null ? null : `until ${when(silenced)}`, words, look];
}

function silenceRow({ id, kind, subject, until_ms: until, author, reason }: SilenceView) {
  return [id, kind ?? 'all', subject, when(until), author, reason];
}
