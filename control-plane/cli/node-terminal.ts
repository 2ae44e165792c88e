/** The terminal that this process has, if stdout is one. */
import type { Terminal } from './terminal.ts';

const NAMED: Readonly<Record<string, string>> = {
  '\u0003': 'ctrl-c',
  '\u001B': 'escape',
  '\u001B[A': 'up',
  '\u001B[B': 'down',
  '\u001B[C': 'right',
  '\u001B[D': 'left',
  '\u001B[5~': 'page-up',
  '\u001B[6~': 'page-down',
  ' ': 'space',
};

/** Of a terminal that does not say how large it is. */
const COLUMNS = 80;
const ROWS = 24;

export function nodeTerminal(): Terminal | null {
  const { stdin, stdout } = process;
  if (!stdout.isTTY) return null;
  return {
    get columns() {
      return stdout.columns || COLUMNS;
    },
    get rows() {
      return stdout.rows || ROWS;
    },
    write: (text) => void stdout.write(text),
    keys: (hear) => {
      if (!stdin.isTTY) return () => {};
      const onData = (data: Buffer): void => hear(NAMED[data.toString('utf8')] ?? data.toString('utf8'));
      stdin.setRawMode(true);
      stdin.on('data', onData);
      stdin.resume();
      return () => {
        stdin.off('data', onData);
        stdin.setRawMode(false);
        stdin.pause();
      };
    },
    resized: (hear) => {
      stdout.on('resize', hear);
      return () => void stdout.off('resize', hear);
    },
  };
}
