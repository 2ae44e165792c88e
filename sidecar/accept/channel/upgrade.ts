/**
 * Dialling in: who may, and what the answer is when not. Everything is judged on the request's head and answered as a
 * problem document, before the connection becomes a WebSocket: a client that is told why can do better, and one that is not
 * let in costs nothing.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { CHANNEL_PATH } from '../../../proto/wire/channel.ts';
import { Code } from '../../../proto/wire/codes.ts';
import type { Principal } from '../../call/principal.ts';
import { refuse } from '../answer.ts';
import { lineOf } from '../line.ts';
import { refuseUpgrade } from '../offer.ts';
import { json } from '../pages.ts';
import { queryParameter } from '../request.ts';
import type { UpgradeDoor } from '../server.ts';
import type { AllChannels } from './all-channels.ts';
import { handshakeAnswer, handshakeProblem } from './handshake.ts';

const STARTING_MS = 1_000;

/** `POST /v1/channel`: a ticket to dial in with. */
export function offerChannel(all: AllChannels, request: IncomingMessage, response: ServerResponse): void {
  const principal = all.front.engine.identities.caller(request.headers.authorization);
  if (principal === null) {
    refuse(response, Code.unauthenticated, 401, 'no known credential: send Authorization: Bearer <token>', 'keep');
    return;
  }
  const full = all.whyFull(principal.agent);
  if (full !== null) refuse(response, Code.caller_busy, 503, full, 'keep', STARTING_MS);
  else json(response, 201, all.offer(principal.agent, request, principal));
}

export class Upgrades implements UpgradeDoor {
  readonly #all: AllChannels;

  constructor(all: AllChannels) {
    this.#all = all;
  }

  /** Takes over a connection whose request asks for a WebSocket; the guard has let it in. */
  upgrade(request: IncomingMessage, socket: Socket, head: Buffer): void {
    const path = (request.url as string).split('?', 1)[0];
    if (path !== CHANNEL_PATH) {
      this.#refuse(socket, Code.invalid_request, 404, `there is no WebSocket at ${path?.slice(0, 200)}; channels are at ${CHANNEL_PATH}`);
      return;
    }
    const { front } = this.#all;
    if (front.draining || this.#all.isClosing) {
      this.#refuse(socket, Code.blocked_by_operator, 503, 'this sidecar is stopping and takes no new channels');
      return;
    }
    // Before the ticket is looked at, which would be used up by it.
    const wrong = handshakeProblem(request);
    if (wrong !== null) {
      this.#refuse(socket, Code.invalid_request, wrong.status, `this is no WebSocket handshake: ${wrong.words}`);
      return;
    }
    const principal = this.#who(request);
    if (typeof principal === 'string') {
      this.#refuse(socket, Code.unauthenticated, 401, principal);
      return;
    }
    const full = this.#all.whyFull(principal.agent);
    if (full !== null) {
      this.#refuse(socket, Code.caller_busy, 503, full);
      return;
    }
    socket.setTimeout(0);
    socket.setNoDelay(true);
    socket.write(handshakeAnswer(request.headers), 'latin1');
    const connection = this.#all.open(socket, principal);
    // Work under way, as far as the port is concerned: it is not cut as an idle connection is, and hears when it is gone.
    lineOf(socket).add(connection);
    // What came together with the handshake is read like everything else.
    if (head.length > 0) connection.received(Buffer.from(head));
  }

  close(graceMs: number): Promise<void> {
    return this.#all.close(graceMs);
  }

  #who(request: IncomingMessage): Principal | string {
    const ticket = queryParameter(request.url as string, 'ticket');
    if (ticket !== null)
      return this.#all.tickets.take(ticket) ?? 'the ticket is not known, has been used, or is too old: ask for another (POST /v1/channel)';
    return (
      this.#all.front.engine.identities.caller(request.headers.authorization) ??
      'no known credential: send Authorization: Bearer <token>, or ?ticket= from POST /v1/channel'
    );
  }

  #refuse(socket: Socket, code: Code, status: number, detail: string): void {
    this.#all.front.observation.metrics.requestRefused('channel');
    refuseUpgrade(socket, code, status, detail);
  }
}
