/**
 * Everything that a run of the tests writes, in one place: its temporary folders, what its tests delete, what its programs say.
 * It is looked through for credentials as the run goes on, and what was looked through is deleted, so that it needs little room.
 */
import { mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { credentialsOf, findCredentials, type Found } from './find-credentials.ts';

export class Written {
  readonly found: Found[] = [];
  files = 0;
  bytes = 0;
  tookMs = 0;
  readonly #folder: string;

  constructor() {
    // Short: the path of a Unix socket has to fit in beneath it.
    this.#folder = mkdtempSync(join(tmpdir(), 'rr-'));
    mkdirSync(this.#temporary);
    mkdirSync(this.#aside);
    process.once('exit', () => rmSync(this.#folder, { recursive: true, force: true }));
  }

  get #temporary(): string {
    return join(this.#folder, 't');
  }

  get #aside(): string {
    return join(this.#folder, 'w');
  }

  /** For the processes of the run. */
  get env(): Readonly<Record<string, string>> {
    return { TMPDIR: this.#temporary, REACH_TEST_WRITTEN: this.#aside };
  }

  /** What a test file said, and what has been put aside since the last time. */
  look(source: string, said: readonly string[]): void {
    const began = performance.now();
    for (const text of said) for (const { what, at } of credentialsOf(text)) this.found.push({ file: `what ${source} said`, what, at });
    for (const name of readdirSync(this.#aside)) {
      if (name.startsWith('.')) continue;
      const path = join(this.#aside, name);
      this.#through(path);
      rmSync(path, { recursive: true, force: true });
    }
    this.tookMs += performance.now() - began;
  }

  /** With what is left at the end. */
  end(): readonly Found[] {
    this.look('', []);
    const began = performance.now();
    this.#through(this.#temporary);
    this.tookMs += performance.now() - began;
    return this.found;
  }

  #through(path: string): void {
    const { found, files, bytes } = findCredentials(path);
    this.found.push(...found);
    this.files += files;
    this.bytes += bytes;
  }
}

let count = 0;

/** Puts aside what a program of a test said; nothing outside of a whole run. */
export function putAside(name: string, text: string): void {
  const folder = process.env['REACH_TEST_WRITTEN'];
  if (folder === undefined || text === '') return;
  const own = `${name.replace(/[^\w.-]+/g, '-').slice(0, 120)}`;
  const unfinished = join(folder, `.${process.pid}-${++count}`);
  writeFileSync(unfinished, text);
  renameSync(unfinished, join(folder, `${process.pid}-${count}.${own}`));
}
