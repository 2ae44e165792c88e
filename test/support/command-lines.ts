/**
 * Commands as pages show them, and whether our programs have them: the words of a line are walked down the tree of commands that
 * the program itself is built from. What stands for something (`<id>`, `…`, `FILE`) is any word; what is in brackets may be left out.
 */
import type { Command } from 'commander';

export interface Shown {
  readonly page: string;
  readonly line: number;
  /** The words behind the name of the program. */
  readonly words: readonly string[];
  /** In a block of code: to be typed as it stands. In running text a command is often named without what belongs to it. */
  readonly isWhole: boolean;
}

/** Every command line of `program` in a page of Markdown, or in the comments and commands of another file. */
export function commandsIn(program: string, page: string, text: string): Shown[] {
  const found: Shown[] = [];
  const isMarkdown = page.endsWith('.md');
  let isFenced = false;
  for (const [at, line] of text.split('\n').entries()) {
    if (isMarkdown && line.startsWith('```')) {
      isFenced = !isFenced;
      continue;
    }
    const spans = [...line.matchAll(/`([^`]+)`/g)].map((match) => match[1] as string);
    const parts = isMarkdown ? (isFenced ? [line] : spans) : [line, ...spans];
    // A line of output in a block is no command: there they begin with `$`, or with the program.
    for (const part of parts)
      for (const command of part.split(/\s(?:\||&&?|;)\s?|\s#\s|\s>\s|\s{5,}/)) {
        const words = wordsOf(command);
        const name = words.findIndex((word) => word === program || word.endsWith(`/${program}`));
        if (name < 0 || !words.slice(0, name).every(isBefore)) continue;
        found.push({ page, line: at + 1, words: words.slice(name + 1), isWhole: isFenced });
      }
  }
  return found;
}

/** What may stand before the program: a prompt, a comment sign, who runs it, variables. */
function isBefore(word: string): boolean {
  return /^(?:\$|#|do|sudo|npx|exec|docker|compose|run|--rm|-f|-v|-e|.*=.*|deploy\/\S+|\S*:\S+|REACH_\w+)$/.test(word);
}

function wordsOf(command: string): string[] {
  const words = command.match(/'[^']*'|"[^"]*"|<[^>]*>|[^\s'"<>]+/g) ?? [];
  return words.map((word) => word.replaceAll(/^["'[(]+|["'\])]+$/g, '')).filter((word) => word !== '' && word !== '\\');
}

/** '' when the program takes such a line; else what is wrong with it. */
export function problemOf(program: Command, { words, isWhole }: Shown): string {
  let command = program;
  const chain = [program];
  let positionals = 0;
  for (let i = 0; i < words.length; i++) {
    const word = words[i] as string;
    if (word.startsWith('-') && word !== '-') {
      if (word === '--help' || word === '-h') continue;
      const name = word.split('=')[0] as string;
      const usual = defaultOf(command);
      if (usual !== null && !chain.some((each) => each.options.some(({ long }) => long === name))) {
        command = usual;
        chain.push(usual);
      }
      const option = chain.flatMap((each) => each.options).find(({ long, short }) => long === name || short === name);
      if (option === undefined) return `${pathOf(chain)} has no option ${name}`;
      if ((option.required || option.optional) && !word.includes('=')) {
        i++;
        if (isWhole && words[i] === undefined) return `${name} wants a value`;
        while (option.variadic && words[i + 1]?.startsWith('-') === false) i++;
      }
      continue;
    }
    if (word === '…') {
      // Whatever belongs there.
      if (command.commands.length > 0) return '';
      positionals = Math.max(positionals, command.registeredArguments.length);
      continue;
    }
    if (command.commands.length > 0) {
      const next = command.commands.find((each) => each.name() === word || each.aliases().includes(word));
      const usual = defaultOf(command);
      if (next === undefined && usual === null) return `${pathOf(chain)} has no command ${word}`;
      command = next ?? (usual as Command);
      chain.push(command);
      if (next === undefined) positionals++;
    } else positionals++;
  }
  const { registeredArguments: wanted } = command;
  if (wanted.at(-1)?.variadic !== true && positionals > wanted.length)
    return `${pathOf(chain)} takes ${wanted.length} words, not ${positionals}`;
  if (isWhole && command.commands.length > 0 && defaultOf(command) === null && !words.includes('--help'))
    return `${pathOf(chain)} wants a command`;
  const needed = wanted.filter(({ required }) => required).length;
  return isWhole && positionals < needed ? `${pathOf(chain)} needs ${needed} words, not ${positionals}` : '';
}

/** The command that is meant when none is named. */
function defaultOf(command: Command): Command | null {
  const name = (command as unknown as { readonly _defaultCommandName: string | null })._defaultCommandName;
  return command.commands.find((each) => each.name() === name) ?? null;
}

function pathOf(chain: readonly Command[]): string {
  return chain.map((each) => each.name()).join(' ');
}
