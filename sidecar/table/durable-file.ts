/**
 * A file of lines that survives a kill at any byte: written beside, flushed, renamed into place, with a checksum of the
 * whole as its last line, and the one before it kept under another name. Whatever is on disk after a crash, reading gives
 * one of the last two contents as a whole, or nothing; never a part of one. What the lines mean is left to others.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { type FileHandle, mkdir, open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';

const SEAL = '#sha256 ';
/** Written in pieces of about this size, so that a large table does not hold up calls. */
const PIECE_CHARS = 65_536;

export class DurableFile {
  readonly file: string;
  readonly #before: string;

  constructor(file: string) {
    this.file = file;
    this.#before = `${file}.before`;
  }

  /** The lines last written, or those before them; null when neither is whole. */
  read(): readonly string[] | null {
    return unsealed(this.file) ?? unsealed(this.#before);
  }

  /** One at a time. Returns what went wrong in words, or null. `lines` is read piece by piece and must not change meanwhile. */
  async write(lines: Iterable<string>): Promise<string | null> {
    const fresh = `${this.file}.new`;
    try {
      await mkdir(dirname(this.file), { recursive: true, mode: 0o700 });
      const handle = await open(fresh, 'w', 0o600);
      try {
        await writeSealed(handle, lines);
        await handle.sync();
      } finally {
        await handle.close();
      }
      await rename(this.file, this.#before).catch(ignoreMissing);
      await rename(fresh, this.file);
      await syncFolder(dirname(this.file));
      return null;
    } catch (error) {
      await rm(fresh, { force: true }).catch(() => {});
      return `${this.file} cannot be written: ${(error as NodeJS.ErrnoException).code ?? 'error'}`;
    }
  }
}

async function writeSealed(handle: FileHandle, lines: Iterable<string>): Promise<void> {
  const hash = createHash('sha256');
  let piece = '';
  const put = async (): Promise<void> => {
    hash.update(piece);
    await handle.write(piece);
    piece = '';
  };
  for (const line of lines) {
    piece += `${line}\n`;
    if (piece.length >= PIECE_CHARS) await put();
  }
  await put();
  await handle.write(`${SEAL}${hash.digest('hex')}\n`);
}

function unsealed(file: string): readonly string[] | null {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch {
    return null;
  }
  const at = text.lastIndexOf(`\n${SEAL}`);
  if (at < 0) return null;
  const content = text.slice(0, at + 1);
  if (text.slice(at + 1) !== `${SEAL}${createHash('sha256').update(content).digest('hex')}\n`) return null;
  return content.slice(0, -1).split('\n');
}

function ignoreMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ENOENT') throw error;
}

/** So that the names outlive a power cut too; where the system cannot do it the rename has to do. */
async function syncFolder(folder: string): Promise<void> {
  try {
    const handle = await open(folder, 'r');
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
  } catch {
    // Not every file system lets a folder be flushed.
  }
}
