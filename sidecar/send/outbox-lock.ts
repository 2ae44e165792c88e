/**
 * One process to a folder. Two that drained the same outbox would mix up the order and delete each other's files, so the second
 * one is refused by name. The lock is a file that names its holder; Node has no lock of the system's that ends with the process,
 * so whether the holder is alive is asked: the same process id with the same time of its start (an id alone is given out again,
 * and in a container it is always 1). A holder on another machine, on a shared disk, cannot be asked: it touches the file.
 */
import { closeSync, fsyncSync, linkSync, openSync, readFileSync, statSync, unlinkSync, utimesSync, writeSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import type { Clock, Timer } from '../../base/clock.ts';

const TOUCH_MS = 10_000;
/** Several touches may be late; a holder elsewhere that was silent for so long is gone. */
const SILENT_MS = 60_000;
const TRIES = 5;

interface Holder {
  readonly pid: number;
  readonly host: string;
  /** When the process started, in the system's own words; '' = the system does not tell. */
  readonly started: string;
}

/** Folders that this process holds: its own id does not tell it from itself. */
const heldHere = new Set<string>();

export class FolderLock {
  readonly #folder: string;
  readonly #file: string;
  readonly #clock: Clock;
  #timer: Timer | null = null;

  private constructor(folder: string, file: string, clock: Clock) {
    this.#folder = folder;
    this.#file = file;
    this.#clock = clock;
    this.#touchLater();
  }

  /** The lock, or in words why it cannot be had. Throws when the folder cannot be written. */
  static take(folder: string, clock: Clock): FolderLock | string {
    const file = join(folder, 'lock');
    if (heldHere.has(folder)) return `the outbox ${folder} is in use by this process already`;
    const own = `${file}.${process.pid}`;
    const me: Holder = { pid: process.pid, host: hostname(), started: startOf(process.pid) };
    write(own, JSON.stringify(me));
    try {
      for (let i = 0; i < TRIES; i++) {
        if (linked(own, file)) {
          heldHere.add(folder);
          return new FolderLock(folder, file, clock);
        }
        const problem = heldBecause(file, folder, me, clock);
        if (problem !== null) return problem;
        removeStale(file, own, folder, me, clock);
      }
      return `the outbox ${folder} is being taken by another process`;
    } finally {
      remove(own);
    }
  }

  release(): void {
    this.#timer?.cancel();
    this.#timer = null;
    heldHere.delete(this.#folder);
    remove(this.#file);
  }

  #touchLater(): void {
    this.#timer = this.#clock.after(TOUCH_MS, () => {
      const now = this.#clock.wallMs() / 1_000;
      try {
        utimesSync(this.#file, now, now);
      } catch {
        // The folder is gone or read only; writes say so.
      }
      this.#touchLater();
    });
  }
}

/** Why the lock is in force; null = it is not, or not any more. */
function heldBecause(file: string, folder: string, me: Holder, clock: Clock): string | null {
  const holder = read(file);
  if (holder === null) return null;
  if (holder.host !== me.host) {
    const silentMs = clock.wallMs() - touchedAt(file);
    if (silentMs > SILENT_MS) return null;
    return `the outbox ${folder} is in use by process ${holder.pid} on ${holder.host}: each sidecar needs a state_dir of its own`;
  }
  if (holder.pid === me.pid && holder.started !== '') return null; // an earlier process with our id: we know what we hold
  if (!isAlive(holder)) return null;
  return `the outbox ${folder} is in use by process ${holder.pid}: each sidecar needs a state_dir, or a name, of its own`;
}

/** One of several that find a dead holder takes its lock away; the others see the new one. */
function removeStale(file: string, own: string, folder: string, me: Holder, clock: Clock): void {
  const guard = `${file}.taking`;
  if (!linked(own, guard)) {
    const taker = read(guard);
    if (taker !== null && taker.host === me.host && !isAlive(taker)) remove(guard);
    return;
  }
  if (heldBecause(file, folder, me, clock) === null) remove(file);
  remove(guard);
}

function isAlive({ pid, started }: Holder): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false;
  }
  const now = startOf(pid);
  return started === '' || now === '' || now === started;
}

/** Linux: the boot, and the ticks since then; '' elsewhere. */
function startOf(pid: number): string {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The second field is the program's name, in brackets, which may hold anything; the start is the 22nd.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (fields[0] === 'Z') return 'ended';
    return `${readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim()} ${fields[19] ?? ''}`;
  } catch {
    return '';
  }
}

function read(file: string): Holder | null {
  try {
    const held = JSON.parse(readFileSync(file, 'utf8')) as Partial<Holder> | null;
    if (typeof held?.pid !== 'number' || !Number.isSafeInteger(held.pid) || held.pid < 1) return null;
    return { pid: held.pid, host: String(held.host), started: String(held.started ?? '') };
  } catch {
    return null; // gone, or not a lock of ours
  }
}

function touchedAt(file: string): number {
  try {
    return statSync(file).mtimeMs;
  } catch {
    return 0;
  }
}

/** Written whole before it has its name: nobody reads half a lock. */
function write(file: string, text: string): void {
  const handle = openSync(file, 'w', 0o600);
  try {
    writeSync(handle, text);
    fsyncSync(handle);
  } finally {
    closeSync(handle);
  }
}

function linked(from: string, to: string): boolean {
  try {
    linkSync(from, to);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

function remove(file: string): void {
  try {
    unlinkSync(file);
  } catch {
    // It is gone.
  }
}
