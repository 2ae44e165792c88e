/** `acl`: may this agent call that, and why; and who may. */
import type { Command } from 'commander';
import { printable } from '../../base/log.ts';
import type { AclEnd, AclTestAnswer, AclWhoAnswer } from '../api/acl-shapes.ts';
import { Exit, Failed } from './client.ts';
import type { Act } from './program.ts';
import { table } from './table.ts';

export function aclCommands(program: Command, act: Act): void {
  const acl = program.command('acl').description('who may call what, and why').helpCommand(false);
  acl
    .command('test <caller> <capability>')
    .description('whether an agent may call a capability (with a range: name@^2), at both ends; ends with 1 when it may not')
    .option('--via <sidecar>', 'the sidecar through which it calls; absent: where it is at home')
    .action(
      act(async (context, [caller, target], options) => {
        const via = typeof options['via'] === 'string' ? options['via'] : null;
        const answer = (await context.client.call({
          path: '/v1/acl/test',
          query: { caller: caller as string, target: target as string, via },
        })) as AclTestAnswer;
        context.show<AclTestAnswer>(answer, testWords);
        if (!answer.allowed) throw new Failed(Exit.refused, [`${caller as string} may not call ${target as string}`]);
      }),
    );
  acl
    .command('who <capability>')
    .description('the lists of a capability, and the agents known at present that they name')
    .action(
      act(async (context, [target]) => {
        const answer = await context.client.call({ path: '/v1/acl/who', query: { target: target as string } });
        context.show<AclWhoAnswer>(answer, whoWords);
      }),
    );
}

function testWords(answer: AclTestAnswer): string {
  const { caller, capability, range, allowed, against, notes, versions } = answer;
  const lines = [
    `${caller} ${allowed ? 'may' : 'MAY NOT'} call ${capability}${range === null ? '' : `@${range}`}`,
    ...against.map((line) => `  against it: ${line}`),
    ...notes.map((line) => `  note: ${line}`),
    '',
    table(
      ['VERSION', 'IN RANGE', 'LET IN BY', 'MODE', 'SAID BY', 'ACL'],
      versions.map((one) => [one.version, one.is_in_range ? 'yes' : 'no', one.by ?? 'nobody', one.mode, one.mode_by, one.acl.join(' ')]),
    ),
    '',
    `identity: ${answer.identity}; policies: ${answer.policies_version === 0 ? 'none say anything of it' : `version ${answer.policies_version}`}`,
    ...endWords("caller's end", answer.callers_end),
    ...endWords("provider's end", answer.providers_end),
  ];
  return lines.map((line) => (line.includes('\n') ? line : printable(line))).join('\n');
}

function endWords(end: string, asked: readonly AclEnd[]): string[] {
  if (asked.length === 0) return [`${end}: no sidecar to ask`];
  return asked.flatMap(({ sidecar, allowed, words }) => [
    `${end}, ${sidecar}: ${allowed === null ? 'could not be asked' : allowed ? 'lets it pass' : 'refuses it'}`,
    ...words.map((line) => `    ${line}`),
  ]);
}

function whoWords({ capability, versions, agents }: AclWhoAnswer): string {
  return [
    ...versions.map(
      ({ version, acl, mode }) => `${capability}@${version}: ${acl.join(' ')}${mode === 'audit' ? ' (in audit: everybody is let in)' : ''}`,
    ),
    '',
    agents.length === 0
      ? 'no agent that is known at present may call it'
      : table(
          ['AGENT', 'LET IN BY'],
          agents.map(({ agent, by }) => [agent, by.join(' ')]),
        ),
  ].join('\n');
}
