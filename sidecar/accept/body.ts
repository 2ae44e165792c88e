/**
 * A request's body as one Buffer, up to a limit. The usual body is one chunk, and that is passed on as it is: Node gives
 * every chunk memory of its own, so that nothing needs to be copied.
 */
import type { IncomingMessage } from 'node:http';
import { NO_BODY } from '../call/reply.ts';

/** For the error handler of the server; made once, since nobody reads its stack. */
const TOO_LARGE = Object.assign(new Error('the body is above the limit'), { statusCode: 413 });

export type BodyDone = (error: Error | null, body?: Buffer) => void;

export function readBody(request: IncomingMessage, maxBytes: number, done: BodyDone): void {
  const announced = request.headers['content-length'];
  if (announced !== undefined && Number(announced) > maxBytes) {
    done(TOO_LARGE);
    return;
  }
  let first: Buffer | null = null;
  let more: Buffer[] | null = null;
  let bytes = 0;
  let isOver = false;
  request.on('data', (chunk: Buffer) => {
    if (isOver) return;
    bytes += chunk.length;
    if (bytes > maxBytes) {
      isOver = true;
      done(TOO_LARGE);
    } else if (first === null) first = chunk;
    else if (more === null) more = [first, chunk];
    else more.push(chunk);
  });
  request.once('end', () => {
    if (isOver) return;
    isOver = true;
    done(null, more === null ? (first ?? NO_BODY) : Buffer.concat(more, bytes));
  });
  request.once('error', (error: Error) => {
    if (isOver) return;
    isOver = true;
    done(error);
  });
}
