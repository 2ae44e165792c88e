/**
 * What went wrong on an HTTP connection, as a Reply: the one place where the client library's errors are read. Decides
 * the code and how far the provider got, from the error and from what had happened before it.
 */
import { Code } from '../../proto/wire/codes.ts';
import { failed, type Reply } from '../call/reply.ts';
import { ConnectFailure, RESET_IN_USE } from './pool.ts';

/** What is known of the exchange when the error strikes. */
export interface Progress {
  /** The request was handed to a connection: from here on the provider may have acted. */
  readonly sent: boolean;
  /** Bytes of the answer have been seen. */
  readonly begun: boolean;
  /** The provider's status; 0 before the head. */
  readonly status: number;
  readonly receivedBytes: number;
  /** The connection had carried a whole answer before this request. */
  readonly reused: boolean;
  readonly host: string;
  readonly maxHeaderBytes: number;
}

interface LibraryError extends Error {
  readonly code?: string;
}

/** Never 0: the code under which a failed exchange is reported. For a stream that has begun, only the words are used. */
export function failureOf(error: LibraryError, at: Progress): Reply {
  const code = error.code ?? '';
  if (!at.sent) {
    if (error instanceof ConnectFailure) return failed(error.reachCode, 'not_started', error.message);
    if (code === 'UND_ERR_INVALID_ARG' || code === 'UND_ERR_NOT_SUPPORTED')
      return failed(Code.invalid_request, 'not_started', `the request cannot be sent over HTTP: ${error.message}`);
    return failed(Code.connect_timeout, 'not_started', `no connection to ${at.host}: ${code || error.message}`);
  }
  // With TLS 1.3 a server looks at our certificate when we have begun to send; it reads nothing of a connection that it refuses.
  if (!at.reused && !at.begun && /^ERR_SSL_.*ALERT/.test(code))
    return failed(Code.tls_failed, 'not_started', `the TLS handshake with ${at.host} failed: the other side refused it (${code})`);
  if (code === 'UND_ERR_HEADERS_OVERFLOW')
    return failed(Code.bad_response, 'started', `the answer's headers are larger than the limit of ${at.maxHeaderBytes} bytes`);
  if (isMalformed(error)) return failed(Code.bad_response, 'started', `the answer is not well-formed HTTP/1.1 (${error.message})`);
  if (code === 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH' && at.status === 0)
    return failed(
      Code.bad_response,
      'started',
      'the answer is not well-formed HTTP/1.1 (its headers contradict one another about the length)',
    );
  if (at.status !== 0) return failed(Code.bad_response, 'started', cutWords(error, at.receivedBytes));
  return failed(Code.connection_lost, 'started', lostWords(error, code, at), at.reused && !at.begun);
}

/** Words for a body that did not come to its end. */
export function cutWords(error: LibraryError, receivedBytes: number): string {
  if (error instanceof ConnectFailure) return `${error.message}; ${receivedBytes} bytes of the body had come`;
  const how = error.code === 'ECONNRESET' || error.code === RESET_IN_USE ? 'the connection was reset' : 'the connection was closed';
  return `the body is cut: ${how} after ${receivedBytes} bytes, before its end`;
}

function lostWords(error: LibraryError, code: string, at: Progress): string {
  if (error instanceof ConnectFailure) return error.message;
  const how =
    code === 'ECONNRESET' || code === RESET_IN_USE ? 'reset' : code === 'EPIPE' ? 'closed while the request was being sent' : 'closed';
  const where = at.begun ? "in the middle of the answer's head" : 'before an answer';
  return `the connection to ${at.host} was ${how} ${where}${at.reused ? ', on a kept-alive connection' : ''}`;
}

/** Errors of the parser, but for the one that only says that the connection ended too early. (It sets no usable code.) */
function isMalformed(error: LibraryError): boolean {
  if (error.name === 'HTTPParserError') return !error.message.includes('EOF');
  return error.code === 'UND_ERR_SOCKET' && (error.message === 'bad response' || error.message === 'bad upgrade');
}
