/**
 * The last table that was good, on disk: what a restarted sidecar starts from when its source is broken or away. Written
 * to a temporary file, flushed, then renamed, so that a kill at any byte leaves either the old copy or the new one.
 */
import { closeSync, fsyncSync, mkdirSync, openSync, readFileSync, renameSync, writeSync } from 'node:fs';
import { dirname, join } from 'node:path';

export class LastGood {
  readonly #file: string;

  /** @param folder made when it is missing. @param name of the sidecar, so that several can share a folder. */
  constructor(folder: string, name: string) {
    this.#file = join(folder, `${name}.last-good.yaml`);
  }

  get file(): string {
    return this.#file;
  }

  /** Keeps `text`; returns what went wrong in words, or null. */
  keep(text: string): string | null {
    try {
      mkdirSync(dirname(this.#file), { recursive: true, mode: 0o700 });
      const temporary = `${this.#file}.${process.pid}.tmp`;
      const handle = openSync(temporary, 'w', 0o600);
      try {
        writeSync(handle, text);
        fsyncSync(handle);
      } finally {
        closeSync(handle);
      }
      renameSync(temporary, this.#file);
      return null;
    } catch (error) {
      return `the last good table cannot be kept in ${this.#file}: ${(error as NodeJS.ErrnoException).code ?? 'error'}`;
    }
  }

  /** The kept text, or null when there is none. */
  read(): string | null {
    try {
      return readFileSync(this.#file, 'utf8');
    } catch {
      return null;
    }
  }
}
