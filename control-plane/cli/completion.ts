/**
 * Completion for shells. The scripts know nothing: they hand the words typed so far to `reachctl complete`, which walks
 * the tree of commands, and asks the control plane for names where a name is wanted. Who cannot be reached completes nothing.
 */
import type { Command } from 'commander';
import type { CapabilitiesAnswer, FleetAnswer, HistoryAnswer, ProvidersAnswer } from '../api/shapes.ts';
import type { KeptAnswer, PoolsAnswer } from '../api/task-shapes.ts';
import type { TracesAnswer } from '../api/trace-shapes.ts';
import type { IdentitiesAnswer } from '../api/identity-shapes.ts';
import { SPAN_STAGES } from '../../proto/wire/spans.ts';
import { CLI_SCHEMAS } from './schemas.ts';
import { SORTS } from './top-view.ts';
import type { Client } from './client.ts';
import type { Context } from './context.ts';

export const SHELLS = ['bash', 'zsh', 'fish'] as const;

const BASH = `# reachctl completion for bash: source <(reachctl completion bash)
_reachctl() {
  local IFS=$'\\n'
  COMPREPLY=($(compgen -W "$(reachctl complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- "\${COMP_WORDS[COMP_CWORD]}"))
  if [ \${#COMPREPLY[@]} -eq 0 ]; then compopt -o default 2>/dev/null; fi
}
complete -F _reachctl reachctl`;

const ZSH = `#compdef reachctl
# reachctl completion for zsh: source <(reachctl completion zsh)
_reachctl() {
  local -a candidates
  candidates=("\${(@f)$(reachctl complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "\${candidates[1]}" ]]; then compadd -a candidates; else _files; fi
}
compdef _reachctl reachctl`;

const FISH = `# reachctl completion for fish: reachctl completion fish | source
function __reachctl_complete
  set -l words (commandline -opc) (commandline -ct)
  reachctl complete -- $words[2..-1] 2>/dev/null
end
complete -c reachctl -f -a '(__reachctl_complete)'`;

const SCRIPTS: Readonly<Record<string, string>> = { bash: BASH, zsh: ZSH, fish: FISH };

/** Null for a shell that is not known. */
export function completionScript(shell: string): string | null {
  return Object.hasOwn(SCRIPTS, shell) ? (SCRIPTS[shell] as string) : null;
}

const LOOK_MS = 1_500;

/** What may stand in place of the last word. */
export async function complete(program: Command, words: readonly string[], context: Context): Promise<readonly string[]> {
  const last = words.at(-1) ?? '';
  let command = program;
  let position = 0;
  let wantsValueOf: string | null = null;
  for (const word of words.slice(0, -1)) {
    if (wantsValueOf !== null) {
      wantsValueOf = null;
      continue;
    }
    if (word.startsWith('-')) {
      const option = [...command.options, ...program.options].find(({ long, short }) => word === long || word === short);
      if (option !== undefined && (option.required || option.optional)) wantsValueOf = option.long ?? word;
      continue;
    }
    const next: Command | undefined = command.commands.find((each) => each.name() === word);
    if (next !== undefined && position === 0) command = next;
    else position++;
  }
  const candidates =
    wantsValueOf !== null ? await valuesOf(wantsValueOf, context) : await wordsFor(program, command, position, last, context);
  return candidates.filter((candidate) => candidate.startsWith(last));
}

async function wordsFor(program: Command, command: Command, position: number, last: string, context: Context): Promise<readonly string[]> {
  if (last.startsWith('-')) return [...command.options, ...(command === program ? [] : program.options)].flatMap(({ long }) => long ?? []);
  if (command.commands.length > 0)
    return position > 0 ? [] : command.commands.filter((each) => each.name() !== 'complete').map((each) => each.name());
  const argument = command.registeredArguments[Math.min(position, command.registeredArguments.length - 1)];
  return argument === undefined ? [] : valuesOf(argument.name(), context);
}

const OFFERED: Readonly<Record<string, readonly string[]>> = {
  shell: SHELLS,
  what: Object.keys(CLI_SCHEMAS),
  '--kind': ['dead', 'in_doubt', 'review'],
  '--stage': ['all', ...SPAN_STAGES],
  '--sort': SORTS,
  '--state': ['online', 'offline', 'draining', 'overdue'],
};

async function valuesOf(name: string, context: Context): Promise<readonly string[]> {
  const fixed = OFFERED[name];
  if (fixed !== undefined) return fixed;
  const client: Client = context.clientWithin(LOOK_MS);
  try {
    switch (name) {
      case 'agent-id':
      case '--as':
      case '--provider':
        return ((await client.call({ path: '/v1/providers' })) as ProvidersAnswer).providers.map(({ agent }) => agent);
      case 'capability':
      case 'name':
      case 'target':
      case '--capability':
      case '--to':
        return ((await client.call({ path: '/v1/capabilities' })) as CapabilitiesAnswer).capabilities.map(({ capability }) => capability);
      case '--sidecar':
        return ((await client.call({ path: '/v1/sidecars' })) as FleetAnswer).sidecars.map(({ sidecar }) => sidecar);
      case 'agent-or-jti':
        return ((await client.call({ path: '/v1/identities', query: { kind: 'agent' } })) as IdentitiesAnswer).identities.map(
          ({ name: each }) => each,
        );
      case 'task':
        return ((await client.call({ path: '/v1/tasks/kept' })) as KeptAnswer).entries.map(({ task_id: task }) => task);
      case 'trace-id':
        return ((await client.call({ path: '/v1/traces', query: { limit: '100' } })) as TracesAnswer).traces.map(({ trace_id: id }) => id);
      case 'pool':
      case '--pool':
        return ((await client.call({ path: '/v1/tasks/parked' })) as PoolsAnswer).pools.map(({ pool }) => pool);
      case 'version':
        return ((await client.call({ path: '/v1/policies/history' })) as HistoryAnswer).versions.map(({ version }) => String(version));
      default:
        return [];
    }
  } catch {
    return [];
  }
}
