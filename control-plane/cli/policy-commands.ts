/** `policies`: the operators' document. A refused file shows every mistake as file:line:column: sentence. */
import type { Command } from 'commander';
import type { HistoryAnswer, PoliciesAnswer, PolicyChangeAnswer } from '../api/shapes.ts';
import { problemWords } from './client.ts';
import { type Context, shareOf, wholeOf } from './context.ts';
import type { Act, Options } from './program.ts';
import { percent, table, when } from './table.ts';

export function policyCommands(program: Command, act: Act): void {
  const policies = program
    .command('policies')
    .description('the operators’ document: policies, rules for messages, and contracts')
    .helpCommand(false);
  applying(policies.command('apply <file>'), act);
  applying(program.command('apply <file>'), act, 'the same as policies apply');
  policies
    .command('diff <file>')
    .description('what applying a file would change; nothing is changed')
    .action(
      act(async (context, [file]) => {
        const text = await context.read(file as string);
        const answer = await context.client.call({ method: 'POST', path: '/v1/policies/diff', text, query: { file: file as string } });
        context.show<PolicyChangeAnswer>(answer, changeWords);
      }),
    );
  policies
    .command('history')
    .description('every version that was applied, newest first')
    .action(
      act(async (context) => {
        const answer = await context.client.call({ path: '/v1/policies/history' });
        context.show<HistoryAnswer>(answer, (view) =>
          table(
            ['VERSION', 'WHEN', 'WHO', 'WHAT', 'ACTIVE', 'NOTE'],
            view.versions.map((one) => [
              one.version,
              when(one.at_ms),
              one.author,
              one.action,
              one.version === view.active ? '*' : null,
              one.note,
            ]),
          ),
        );
      }),
    );
  policies
    .command('show [version]')
    .description('the text of a version; of the one in force when none is named')
    .action(
      act(async (context, [version]) => {
        const path = version === undefined ? '/v1/policies' : `/v1/policies/history/${wholeOf(version, 'the version')}`;
        const answer = await context.client.call({ path });
        context.show<PoliciesAnswer>(answer, (view) =>
          view.text === ''
            ? '# nothing has been applied yet'
            : `# version ${view.version}, ${view.author}, ${when(view.at_ms)}\n${view.text.trimEnd()}`,
        );
      }),
    );
  policies
    .command('rollback <version>')
    .description('apply an old version as a new one')
    .action(
      act(async (context, [version]) => {
        const json = { version: wholeOf(version as string, 'the version') };
        const answer = await context.client.call({ method: 'POST', path: '/v1/policies/rollback', json });
        context.show<PolicyChangeAnswer>(answer, changeWords);
      }),
    );
  policies
    .command('promote')
    .description('give a staged document to everybody')
    .option('--force', 'although some of its sidecars have not said yet that they use it')
    .action(
      act(async (context, _args, options) => {
        const json = options['force'] === true ? { force: true } : {};
        const answer = await context.client.call({ method: 'POST', path: '/v1/policies/promote', json });
        context.show<PoliciesAnswer>(answer, ({ version }) => `version ${version} is in force for everybody`);
      }),
    );
  policies
    .command('halt')
    .description('end a staged roll-out: everybody uses the document in force again')
    .action(
      act(async (context) => {
        const answer = await context.client.call({ method: 'POST', path: '/v1/policies/halt', json: {} });
        context.show<PoliciesAnswer>(answer, ({ version }) => `the roll-out is over; version ${version} is in force`);
      }),
    );
  policies
    .command('widen <share>')
    .description('give a staged document to a larger share of the sidecars')
    .action(
      act(async (context, [share]) => {
        const answer = await context.client.call({
          method: 'POST',
          path: '/v1/policies/widen',
          json: { share: shareOf(share as string, 'the share') },
        });
        context.show<PoliciesAnswer>(answer, ({ rollout }) => (rollout === null ? 'no roll-out is under way' : rolloutWords(rollout)));
      }),
    );
}

function applying(command: Command, act: Act, description = 'apply a file: whole, or not at all'): void {
  command
    .description(description)
    .option('--dry-run', 'judge it and say what it would change')
    .option('--share <share>', 'a staged roll-out: only this share of the sidecars uses it at first')
    .option('--note <text>', 'why; stands in the history')
    .action(act(async (context, [file], options) => apply(context, file as string, options)));
}

async function apply(context: Context, file: string, options: Options): Promise<void> {
  const text = await context.read(file);
  const query = {
    file,
    dry_run: options['dryRun'] === true ? 'true' : null,
    share: typeof options['share'] === 'string' ? shareOf(options['share'], '--share') : null,
    note: typeof options['note'] === 'string' ? options['note'] : null,
  };
  const answer = await context.client.call({ method: 'POST', path: '/v1/policies', text, query });
  context.show<PolicyChangeAnswer>(answer, changeWords);
}

export function rolloutWords(rollout: NonNullable<PoliciesAnswer['rollout']>): string {
  const share = percent(rollout.share);
  if (rollout.halted !== '') return `version ${rollout.version} was stopped at ${share}: ${rollout.halted}`;
  const missing =
    rollout.missing.length === 0 ? '' : `, missing: ${rollout.missing.slice(0, 10).join(', ')}${rollout.missing.length > 10 ? ' …' : ''}`;
  return `version ${rollout.version} is rolled out to ${share}: in force on ${rollout.in_force.length} of ${rollout.expected.length}${missing}`;
}

function changeWords(view: PolicyChangeAnswer): string {
  const lines = [...view.warnings.map((warning) => `warning: ${problemWords(warning)}`), ...view.diff];
  if (view.dry_run) lines.push(view.diff.length === 0 ? 'it would change nothing' : 'this is what it would change; nothing was changed');
  else if (view.version === null) lines.push('nothing changed');
  else if (view.rollout !== null && view.rollout.version === view.version) lines.push(rolloutWords(view.rollout));
  else lines.push(`version ${view.version} is in force at sequence ${view.seq}`);
  return lines.join('\n');
}
