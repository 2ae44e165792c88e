/**
 * A request that offers another protocol (`Upgrade`). Only a WebSocket's is taken up. Any other, such as the `h2c` that some
 * clients offer with every request, is passed over as RFC 9110 allows; since the platform stops reading a connection at such
 * a request once anybody listens for them, its head is given back without the offer and read again.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Code } from '../../proto/wire/codes.ts';
import { plainProblem } from '../call/result.ts';
import { PROBLEM_TYPE } from './answer.ts';

export function isForWebSocket(request: IncomingMessage): boolean {
  return (
    request.headers.upgrade
      ?.toLowerCase()
      .split(',')
      .some((each) => each.trim() === 'websocket') ?? false
  );
}

type Answering = Socket & { readonly _httpMessage?: ServerResponse | null };

/**
 * Goes on when what was asked before on this connection has been answered: an answer that is still under way would come
 * behind the new protocol's first bytes, or find nobody that sends it. Until then nothing more is read.
 */
export function whenAnswered(socket: Socket, goOn: () => void): void {
  const answer = (socket as Answering)._httpMessage ?? null;
  if (answer === null) {
    if (socket.writable) goOn();
    else socket.destroy();
    return;
  }
  // The platform has taken its own listener off, and a long answer waits for room.
  const drained = (): void => void answer.emit('drain');
  socket.on('drain', drained);
  answer.once('finish', () => {
    socket.off('drain', drained);
    whenAnswered(socket, goOn);
  });
}

/** Lets the server read the request once more, without the offer; whatever stands behind it follows. */
export function readAgainWithout(server: Server, request: IncomingMessage, socket: Socket, head: Buffer): void {
  const { rawHeaders } = request;
  let text = `${request.method} ${request.url} HTTP/${request.httpVersion}\r\n`;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] as string;
    const lower = name.toLowerCase();
    if (lower === 'upgrade' || lower === 'http2-settings') continue;
    const value = lower === 'connection' ? withoutOffer(rawHeaders[i + 1] as string) : (rawHeaders[i + 1] as string);
    if (value !== null) text += `${name}: ${value}\r\n`;
  }
  socket.unshift(Buffer.concat([Buffer.from(`${text}\r\n`, 'latin1'), head]));
  server.emit('connection', socket);
}

/** The other names of a `Connection` header; null = there are none. */
function withoutOffer(value: string): string | null {
  const names = value.split(',').map((each) => each.trim());
  const kept = names.filter((each) => !['upgrade', 'http2-settings'].includes(each.toLowerCase()));
  return kept.length === 0 ? null : kept.join(', ');
}

const REASONS: Readonly<Record<number, string>> = {
  400: 'Bad Request',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'Not Found',
  409: 'Conflict',
  426: 'Upgrade Required',
  503: 'Service Unavailable',
};

const EXTRA: Readonly<Record<number, string>> = {
  401: 'www-authenticate: Bearer\r\n',
  // The only version that is spoken here (RFC 6455, 4.2.2).
  426: 'upgrade: websocket\r\nsec-websocket-version: 13\r\n',
  503: 'retry-after: 1\r\n',
};

/** A problem document instead of a WebSocket. */
export function refuseUpgrade(socket: Socket, code: Code, status: number, detail: string): void {
  const body = plainProblem(code, status, detail);
  const extra = EXTRA[status] ?? '';
  socket.end(
    `HTTP/1.1 ${status} ${REASONS[status] ?? 'Bad Request'}\r\nconnection: close\r\n${extra}content-type: ${PROBLEM_TYPE}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
    () => socket.destroy(),
  );
}
