/**
 * What a live view needs of a terminal, and how text is coloured and cut for one. Where stdout is no terminal there is none, and
 * commands print lines that a file can hold: no colour, no cursor.
 */
export interface Terminal {
  readonly columns: number;
  readonly rows: number;
  /** As it is: control characters are ours. */
  write(text: string): void;
  /** Keys as they are pressed, one by one, until the returned function is called; ctrl-c comes as `ctrl-c`. */
  keys(hear: (key: string) => void): () => void;
  /** The window has another size. */
  resized(hear: () => void): () => void;
}

export type Ink = 'bad' | 'warn' | 'good' | 'dim' | 'strong';

const INKS: Readonly<Record<Ink, string>> = { bad: '31', warn: '33', good: '32', dim: '2', strong: '1' };
const ESC = '\u001B[';

export type Paint = (ink: Ink, text: string) => string;

/** The words of `no-color.org`: set and not empty, there is none. */
export function paintFor(terminal: Terminal | undefined, env: Readonly<Record<string, string | undefined>>): Paint {
  if (terminal === undefined || (env['NO_COLOR'] ?? '') !== '' || env['TERM'] === 'dumb') return (_ink, text) => text;
  return (ink, text) => (text === '' ? '' : `${ESC}${INKS[ink]}m${text}${ESC}0m`);
}

/** Whether bars and branches may be drawn: a terminal that says of another encoding gets ASCII. */
export function isUnicode(env: Readonly<Record<string, string | undefined>>): boolean {
  const said = env['LC_ALL'] || env['LC_CTYPE'] || env['LANG'] || '';
  return said === '' || /utf-?8/i.test(said);
}

/** Another page in place of this one, the cursor hidden; `leave` gives the old one back. */
export const Screen = {
  enter: `${ESC}?1049h${ESC}?25l`,
  leave: `${ESC}?25h${ESC}?1049l`,
  home: `${ESC}H`,
  clearLine: `${ESC}K`,
  clearBelow: `${ESC}J`,
} as const;

const DEFAULT_COLUMNS = 120;
const LEAST_COLUMNS = 40;

/** The width to write for: that of the terminal, else of COLUMNS, else of a wide one. */
export function widthFor(terminal: Terminal | undefined, env: Readonly<Record<string, string | undefined>>): number {
  const said = terminal?.columns ?? Number(env['COLUMNS'] ?? 0);
  return Math.max(LEAST_COLUMNS, said > 0 ? said : DEFAULT_COLUMNS);
}

/** Cut to so many characters, with an ellipsis when something is missing. */
export function cutTo(text: string, width: number): string {
  const letters = Array.from(text);
  return letters.length <= width ? text : `${letters.slice(0, Math.max(0, width - 1)).join('')}…`;
}

export function padTo(text: string, width: number): string {
  return text + ' '.repeat(Math.max(0, width - Array.from(text).length));
}

export function padLeft(text: string, width: number): string {
  return ' '.repeat(Math.max(0, width - Array.from(text).length)) + text;
}

/** Whole words on lines of that width, those after the first indented. */
export function wrap(text: string, width: number, indent: string): string {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    const prefix = lines.length === 0 ? '' : indent;
    if (line !== '' && Array.from(prefix + line).length + 1 + Array.from(word).length > width) {
      lines.push(prefix + line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  lines.push((lines.length === 0 ? '' : indent) + line);
  return lines.join('\n');
}

/** `0.4ms`, `12ms`, `3.02s`, `4m 10s`: five or six characters. */
export function spell(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return '-';
  if (ms < 10) return `${ms.toFixed(1)}ms`;
  if (ms < 1_000) return `${Math.round(ms)}ms`;
  if (ms < 100_000) return `${(ms / 1_000).toFixed(ms < 10_000 ? 2 : 1)}s`;
  return `${Math.floor(ms / 60_000)}m ${Math.round((ms % 60_000) / 1_000)}s`;
}
