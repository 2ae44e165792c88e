/**
 * What is under way on one connection of a caller, so that it can be stopped when the caller leaves. Leaving means that
 * the *socket* closed before the answer was complete: the request's own end says nothing, since it comes after every body
 * that was read to its end. One listener a connection, none a call.
 */
import type { Socket } from 'node:net';
import type { PeerCertificate } from '../call/peer.ts';

/** A call, or a streamed answer. */
export interface Stoppable {
  /** The caller is gone; harmless when it is too late. */
  cancel(): void;
  /** The sidecar stops, and its time is over: ends it with words, as far as it has any. Absent = `cancel`. */
  goAway?(): void;
}

const LINE = Symbol('line');
/** Clients that pipeline at all have a handful of requests under way on a connection. */
export const MAX_PIPELINED = 64;

export class Line {
  #one: Stoppable | null = null;
  /** Pipelined requests are under way at once; the usual case is one. */
  #more: Set<Stoppable> | null = null;
  /** Requests whose answers are not out. */
  #open = 0;
  /** A request on this connection was refused for its framing: what follows on it is not to be believed. */
  doomed = false;
  /** Who is at the other end, as TLS has proved; null = it has not. */
  peer: PeerCertificate | null = null;

  get isIdle(): boolean {
    return this.#one === null && (this.#more === null || this.#more.size === 0);
  }

  /** False when this connection has asked for too much ahead of its answers: they all wait in memory for the first one. */
  opens(): boolean {
    return ++this.#open <= MAX_PIPELINED;
  }

  /** An answer is out, or nobody is there to take it. */
  answered(): void {
    this.#open--;
  }

  add(work: Stoppable): void {
    if (this.#one === null) this.#one = work;
    else (this.#more ??= new Set()).add(work);
  }

  remove(work: Stoppable): void {
    if (this.#one === work) this.#one = null;
    else this.#more?.delete(work);
  }

  /** The connection lives, and what is under way on it has to end. */
  goAway(): void {
    if (this.#one !== null) letGo(this.#one);
    if (this.#more !== null) for (const work of this.#more) letGo(work);
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

function letGo(work: Stoppable): void {
  if (work.goAway === undefined) work.cancel();
  else work.goAway();
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
