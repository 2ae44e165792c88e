/**
 * What is under way on one connection of a caller, so that it can be stopped when the caller leaves. Leaving means that
 * the *socket* closed before the answer was complete: the request's own end says nothing, since it comes after every body
 * that was read to its end. One listener a connection, none a call.
 */
import type { Socket } from 'node:net';

/** A call, or a streamed answer. */
export interface Stoppable {
  /** The caller is gone; harmless when it is too late. */
  cancel(): void;
}

const LINE = Symbol('line');

export class Line {
  #one: Stoppable | null = null;
  /** Pipelined requests are under way at once; the usual case is one. */
  #more: Set<Stoppable> | null = null;
  /** A request on this connection was refused for its framing: what follows on it is not to be believed. */
  doomed = false;

  get isIdle(): boolean {
    return this.#one === null && (this.#more === null || this.#more.size === 0);
  }

  add(work: Stoppable): void {
    if (this.#one === null) this.#one = work;
    else (this.#more ??= new Set()).add(work);
  }

  remove(work: Stoppable): void {
    if (this.#one === work) this.#one = null;
    else this.#more?.delete(work);
  }

  closed(): void {
    const one = this.#one;
    const more = this.#more;
    this.#one = null;
    this.#more = null;
    one?.cancel();
    if (more !== null) for (const work of more) work.cancel();
  }
}

type Lined = Socket & { [LINE]?: Line };

/** Called once for every new connection. */
export function openLine(socket: Socket): void {
  const line = new Line();
  (socket as Lined)[LINE] = line;
  socket.once('close', () => line.closed());
}

/** A socket that was made elsewhere (an injected request) has a line of its own that nobody closes. */
export function lineOf(socket: Socket): Line {
  return ((socket as Lined)[LINE] ??= new Line());
}
