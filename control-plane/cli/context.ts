/** What every command is given: where to write, whom to ask, how the user wants it shown. */
import { readFileSync } from 'node:fs';
import type { Command } from 'commander';
import type { Clock } from '../../base/clock.ts';
import { formatRatio, parseDuration, parseRatio } from '../../base/duration.ts';
import { Client, Exit, Failed } from './client.ts';
import type { Terminal } from './terminal.ts';

export interface Io {
  /** One or more lines to stdout. */
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly clock: Clock;
  /** Reads standard input to its end. */
  readonly stdin: () => Promise<string>;
  /** That stdout is; absent = it is none. */
  readonly terminal?: Terminal;
}

interface Globals {
  readonly server?: string;
  readonly token?: string;
  readonly json?: boolean;
  readonly timeout?: string;
}

export const DEFAULT_SERVER = 'http://127.0.0.1:7800';
export const DEFAULT_TIMEOUT = '15s';

export class Context {
  readonly io: Io;
  readonly json: boolean;
  readonly server: string;
  readonly #token: string | null;
  readonly #timeoutMs: number;
  readonly #warn = (line: string): void => this.io.err(`reachctl: ${line}`);

  constructor(io: Io, command: Command) {
    const globals: Globals = command.optsWithGlobals();
    this.io = io;
    this.json = globals.json === true;
    this.server = addressOf(globals.server ?? (io.env['REACH_SERVER'] || DEFAULT_SERVER));
    this.#token = globals.token ?? (io.env['REACH_TOKEN'] || null);
    const timeoutMs = parseDuration(globals.timeout ?? DEFAULT_TIMEOUT);
    if (typeof timeoutMs === 'string') throw new Failed(Exit.usage, [`--timeout: ${timeoutMs}`]);
    this.#timeoutMs = timeoutMs;
  }

  get client(): Client {
    return new Client(this.server, this.#token, this.#timeoutMs, this.io.clock, this.#warn);
  }

  /** One that gives up sooner. */
  clientWithin(timeoutMs: number): Client {
    return new Client(this.server, this.#token, Math.min(timeoutMs, this.#timeoutMs), this.io.clock, this.#warn);
  }

  /** Shows an answer: as it is for programs, in the words of `view` for people. */
  show<T>(answer: unknown, view: (answer: T) => string): void {
    this.io.out(this.json ? JSON.stringify(answer, null, 2) : view(answer as T));
  }

  /** Text of a file; `-` is standard input. */
  async read(file: string): Promise<string> {
    if (file === '-') return this.io.stdin();
    try {
      return readFileSync(file, 'utf8');
    } catch (error) {
      throw new Failed(Exit.usage, [`${file}: cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})`]);
    }
  }
}

function addressOf(text: string): string {
  const full = text.includes('://') ? text : `http://${text}`;
  try {
    const url = new URL(full);
    if (url.protocol === 'http:' || url.protocol === 'https:') return full;
  } catch {
    // Said below.
  }
  throw new Failed(Exit.usage, [`--server ${JSON.stringify(text.slice(0, 80))} is not an address: write one such as ${DEFAULT_SERVER}`]);
}

/** A share as people write it, `5%` or `0.05`, in the form that the API takes. */
export function shareOf(text: string, what: string): string {
  const ratio = parseRatio(/^\d*\.?\d+$/.test(text) ? Number(text) : text);
  if (typeof ratio === 'string') throw new Failed(Exit.usage, [`${what} must be a share: ${ratio}`]);
  return formatRatio(ratio);
}

export function wholeOf(text: string, what: string): number {
  if (/^\d{1,9}$/.test(text)) return Number(text);
  throw new Failed(Exit.usage, [`${what} must be a whole number, not ${JSON.stringify(text.slice(0, 40))}`]);
}
