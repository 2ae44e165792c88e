/**
 * A socket in the file system in the place of a port on localhost: who may open it is a question of the file's mode, which no web
 * page, no other user and no other container gets past.
 *
 * It is made in a folder that nobody else may enter, given its mode there, and then moved to its place: it is never to be had with
 * another mode than the one that was asked for. One that stands there already is taken away only when nobody listens on it; a
 * file that is no socket never is.
 */
import { chmodSync, lstatSync, mkdtempSync, renameSync, rmSync, type Stats, unlinkSync } from 'node:fs';
import { connect } from 'node:net';
import { dirname, join } from 'node:path';
import type { SocketPlace } from '../config.ts';

export class UnixSocket {
  readonly #place: SocketPlace;
  #inode = -1;

  constructor(place: SocketPlace) {
    this.#place = place;
  }

  /** @param listen binds to the path that it is given. Rejects with one sentence when the place cannot be had. */
  async open(listen: (path: string) => Promise<unknown>): Promise<void> {
    const { path, mode } = this.#place;
    const standing = statOf(path);
    if (standing !== null) {
      if (!standing.isSocket()) throw new Error(`${path} is there already and is no socket: remove it, or name another place`);
      if (await isListenedTo(path)) throw new Error(`somebody listens on the socket ${path} already`);
    }
    let folder = '';
    try {
      folder = mkdtempSync(join(dirname(path), '.reach-'));
      const made = join(folder, 's');
      await listen(made);
      chmodSync(made, mode);
      this.#inode = lstatSync(made).ino;
      renameSync(made, path);
    } catch (error) {
      throw new Error(`the socket ${path} cannot be made (${(error as NodeJS.ErrnoException).code ?? (error as Error).message})`);
    } finally {
      if (folder !== '') rmSync(folder, { recursive: true, force: true });
    }
  }

  /** Takes it away, unless another process has put its own there meanwhile. */
  close(): void {
    const { path } = this.#place;
    if (this.#inode === -1 || statOf(path)?.ino !== this.#inode) return;
    this.#inode = -1;
    try {
      unlinkSync(path);
    } catch {
      // gone already
    }
  }
}

function statOf(path: string): Stats | null {
  try {
    return lstatSync(path);
  } catch {
    return null;
  }
}

/** Only a socket that refuses is one that nobody listens on: of any other we do not know. */
function isListenedTo(path: string): Promise<boolean> {
  return new Promise((done) => {
    const socket = connect(path);
    socket.once('connect', () => {
      socket.destroy();
      done(true);
    });
    socket.once('error', (error: NodeJS.ErrnoException) => done(error.code !== 'ECONNREFUSED' && error.code !== 'ENOENT'));
  });
}
