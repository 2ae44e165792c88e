/**
 * A part of a Markdown page read as what its reader is told to do, in order: files to write, commands to type and what they
 * show, and the prose between them. And how what was shown is compared with what came: `…` stands for anything, white space
 * counts only within quotes, and what differs from run to run (times, trace ids) does not count.
 */
export type Step =
  | { readonly kind: 'file'; readonly name: string; readonly text: string }
  /** `shows` is '' when the page shows nothing. */
  | { readonly kind: 'command'; readonly command: string; readonly inBackground: boolean; readonly shows: string }
  | { readonly kind: 'prose'; readonly text: string };

/** @param heading the text of a `##` heading; throws when the page has none */
export function stepsOf(page: string, heading: string): Step[] {
  const start = page.indexOf(`\n## ${heading}\n`);
  if (start < 0) throw new Error(`the page has no heading ${heading}`);
  const end = page.indexOf('\n## ', start + 1);
  const section = page.slice(start, end < 0 ? page.length : end);
  const steps: Step[] = [];
  let at = 0;
  for (const block of section.matchAll(/^```(\w*)\n([^]*?)^```$/gm)) {
    steps.push({ kind: 'prose', text: section.slice(at, block.index) });
    at = block.index + block[0].length;
    const text = block[2] as string;
    const name = /^(?:#|\/\/) ([\w.-]+\.\w+)/.exec(text)?.[1];
    if (block[1] !== '' && name !== undefined) steps.push({ kind: 'file', name, text });
    else if (text.startsWith('$ ')) steps.push(...commandsOf(text));
    else throw new Error(`a block that is neither a named file nor commands: ${text.slice(0, 60)}`);
  }
  steps.push({ kind: 'prose', text: section.slice(at) });
  return steps;
}

function commandsOf(text: string): Step[] {
  return text
    .split(/^\$ /m)
    .slice(1)
    .map((each): Step => {
      const [whole, line] = /^((?:.*\\\n)*.*)\n?/.exec(each) as unknown as [string, string];
      const inBackground = line.endsWith(' &');
      return { kind: 'command', command: inBackground ? line.slice(0, -2) : line, inBackground, shows: each.slice(whole.length).trim() };
    });
}

/** '' when what came is what was shown; else what is missing. */
export function unlike(shown: string, came: string): string {
  const real = compact(came);
  const parts = compact(shown).split('…');
  let at = 0;
  for (const [i, part] of parts.entries()) {
    const found = i === parts.length - 1 && part !== '' ? real.lastIndexOf(part) : real.indexOf(part, at);
    if (found < at || (i === 0 && found !== 0)) return part;
    at = found + part.length;
  }
  return parts.at(-1) === '' || at === real.length ? '' : `nothing behind ${parts.at(-1)}`;
}

/** Without white space outside of quotes, and without what differs from run to run. */
function compact(text: string): string {
  return text
    .replace(/("(?:[^"\\]|\\.)*")|\s+/g, (_all, quoted: string | undefined) => quoted ?? '')
    .replace(/("(?:elapsed_ms|at_ms|elapsedMs|atMs)":)[\d.]+/g, '$10')
    .replace(/"[0-9a-f]{32}"/g, '"trace"');
}
