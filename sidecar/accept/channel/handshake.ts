/** The opening handshake of a WebSocket (RFC 6455 section 4.2), server side: what is wrong with a request, and the answer to a right one. */
import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';

const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
/** Sixteen bytes in base64. */
const KEY = /^[+/0-9A-Za-z]{22}==$/;
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}$/;

export interface HandshakeProblem {
  /** 426 = another version of the protocol is asked for. */
  readonly status: 400 | 426;
  readonly words: string;
}

/** Null = it can be answered. */
export function handshakeProblem(request: IncomingMessage): HandshakeProblem | null {
  const words = wordsOf(request);
  if (words !== null) return { status: 400, words };
  return request.headers['sec-websocket-version'] === '13' ? null : { status: 426, words: 'sec-websocket-version must be 13' };
}

function wordsOf(request: IncomingMessage): string | null {
  const { headers } = request;
  if (request.method !== 'GET') return 'a WebSocket is opened by GET';
  if (request.httpVersionMinor < 1) return 'a WebSocket needs HTTP/1.1';
  if (!KEY.test(headers['sec-websocket-key'] ?? '')) return 'sec-websocket-key must be 16 bytes in base64';
  if (headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined)
    return 'the request for a WebSocket has no body';
  return null;
}

export function handshakeAnswer(headers: IncomingHttpHeaders): string {
  const accept = createHash('sha1')
    .update(`${headers['sec-websocket-key'] ?? ''}${GUID}`)
    .digest('base64');
  // Extensions are not taken up. A client that names protocols takes no connection without one of them.
  const protocol = headers['sec-websocket-protocol']?.split(',', 1)[0]?.trim() ?? '';
  const extra = TOKEN.test(protocol) ? `Sec-WebSocket-Protocol: ${protocol}\r\n` : '';
  return `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n${extra}\r\n`;
}
