/** The commands of reachctl as one tree: help, completion and tests read the same one. */
import { Command, CommanderError } from 'commander';
import { CLI_SCHEMAS } from './schemas.ts';
import { Exit, Failed } from './client.ts';
import { complete, completionScript, SHELLS } from './completion.ts';
import { Context, DEFAULT_SERVER, DEFAULT_TIMEOUT, type Io } from './context.ts';
import { aclCommands } from './acl-commands.ts';
import { alertCommands } from './alert-commands.ts';
import { auditCommands } from './audit-commands.ts';
import { fleetCommands } from './fleet-commands.ts';
import { identityCommands } from './identity-commands.ts';
import { natsCommands } from './nats-commands.ts';
import { overrideCommands } from './override-commands.ts';
import { policyCommands } from './policy-commands.ts';
import { quotaCommands } from './quota-commands.ts';
import { registryCommands } from './registry-commands.ts';
import { ruleCommands } from './rule-commands.ts';
import { shiftCommands } from './shift-commands.ts';
import { taskCommands } from './task-commands.ts';
import { topCommands } from './top-commands.ts';
import { traceCommands } from './trace-commands.ts';

export type Options = Readonly<Record<string, unknown>>;
type Action = (context: Context, args: readonly string[], options: Options) => Promise<void> | void;
/** Makes an action of commander's from one of ours. */
export type Act = (action: Action) => (...given: unknown[]) => Promise<void>;

const EXIT_CODES = `
Exit codes: 0 done · 1 refused or failed · 2 not understood · 3 the control plane cannot be reached
Environment: REACH_SERVER, REACH_TOKEN`;

export function buildProgram(io: Io, version: string): Command {
  const program = new Command('reachctl')
    .description('Asks and instructs the control plane of Agent-Reach.')
    .version(version, '-V, --version')
    .option('--server <url>', `any replica of the control plane; the way to the leader is found (REACH_SERVER, else ${DEFAULT_SERVER})`)
    .option('--token <token>', 'who you are; better in REACH_TOKEN, where no process list shows it')
    .option('--json', 'for programs: the answer as JSON')
    .option('--timeout <duration>', 'how long to wait for an answer', DEFAULT_TIMEOUT)
    .addHelpText('after', EXIT_CODES)
    .configureOutput({
      writeOut: (text) => io.out(text.trimEnd()),
      writeErr: (text) => io.err(text.trimEnd().replace(/^error: /, 'reachctl: ')),
    })
    .showSuggestionAfterError(true)
    .helpCommand(false);
  const act: Act =
    (action) =>
    async (...given) => {
      const command = given.at(-1) as Command;
      await action(new Context(io, command), command.args, command.opts());
    };
  registryCommands(program, act);
  policyCommands(program, act);
  fleetCommands(program, act);
  ruleCommands(program, act);
  taskCommands(program, act);
  identityCommands(program, act);
  quotaCommands(program, act);
  shiftCommands(program, act);
  overrideCommands(program, act);
  natsCommands(program, act);
  auditCommands(program, act);
  aclCommands(program, act);
  alertCommands(program, act);
  traceCommands(program, act);
  topCommands(program, act);
  program
    .command('schema [what]')
    .description(`JSON Schema for editors: ${Object.keys(CLI_SCHEMAS).join(', ')}`)
    .action(
      act(async (context, [what = 'policies']) => {
        const schema = CLI_SCHEMAS[what];
        if (schema === undefined)
          throw new Failed(Exit.usage, [
            `there is a schema for ${Object.keys(CLI_SCHEMAS).join(' and ')}, not for ${JSON.stringify(what.slice(0, 40))}`,
          ]);
        context.io.out(JSON.stringify(schema(), null, 2));
      }),
    );
  program
    .command('completion <shell>')
    .description(`a script that completes commands and names: ${SHELLS.join(', ')}`)
    .addHelpText('after', '\nExample: source <(reachctl completion bash)')
    .action(
      act(async (context, [shell]) => {
        const script = completionScript(shell as string);
        if (script === null)
          throw new Failed(Exit.usage, [
            `completion is for ${SHELLS.join(', ')}, not for ${JSON.stringify((shell as string).slice(0, 40))}`,
          ]);
        context.io.out(script);
      }),
    );
  program
    .command('complete [words...]', { hidden: true })
    .allowUnknownOption()
    .helpOption(false)
    .action(
      act(async (context, words) => {
        for (const candidate of await complete(program, words, context)) context.io.out(candidate);
      }),
    );
  // As the root: a mistake throws instead of ending the process. Subcommands inherit only what is set before they are made.
  const overriding = (command: Command): void => {
    command.exitOverride();
    command.configureOutput(program.configureOutput());
    command.commands.forEach(overriding);
  };
  overriding(program);
  return program;
}

/** Runs one command line; gives the exit code. */
export async function runReachctl(argv: readonly string[], io: Io, version: string): Promise<Exit> {
  try {
    await buildProgram(io, version).parseAsync([...argv], { from: 'user' });
    return Exit.ok;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? Exit.ok : Exit.usage;
    if (error instanceof Failed) {
      for (const line of error.lines) io.err(`reachctl: ${line}`);
      if (argv.includes('--json') && error.body !== null) io.out(JSON.stringify(error.body, null, 2));
      return error.exit;
    }
    throw error;
  }
}
