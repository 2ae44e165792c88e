/** What a transport gives back: a head and a body, or a failure as a value. Never thrown, never both. */
import type { Code } from '../../proto/wire/codes.ts';
import type { Started } from './attempt-record.ts';

/** Where the chunks of a streamed body go. The reader decides the pace. */
export interface BodySink {
  /** False asks the source to pause until the sink calls `source.resume()`. */
  chunk(data: Buffer): boolean;
  /** The body came to its proper end. */
  end(): void;
  /** The body was cut; `code` says how (1006, 1002, 5001 …). */
  /** @param goesAway a sidecar on the way stops: nothing is wrong with the provider. */
  cut(code: Code, detail: string, goesAway?: boolean): void;
}

/** A body that is still coming. Exactly one of `end` and `cut` of the sink is called, once, also after `cancel`. */
export interface BodySource {
  pipe(sink: BodySink): void;
  resume(): void;
  /** Stops the transfer and frees its connection; the sink then gets `cut`. */
  cancel(code: Code, detail: string): void;
  /** True: nothing but the end of its connection tells the end of the body, so that a clean cut looks the same. Absent = false. */
  readonly endsByClose?: boolean;
}

/**
 * What tells that a whole body is whole: `told` = its framing; `by_close` = nothing but the end of its connection, so that a clean cut
 * looks the same; `known` = it was looked into before, and need not be again.
 */
export type BodyEnd = 'told' | 'by_close' | 'known';

export type ReplyHeaders = Readonly<Record<string, string | string[] | undefined>>;

export class Reply {
  /** 0 when a head (and, unless streaming, the whole body) came, whatever its status. */
  readonly code: Code;
  readonly started: Started;
  readonly status: number;
  readonly headers: ReplyHeaders;
  readonly body: Buffer;
  readonly stream: BodySource | null;
  /** For people, without secrets. */
  readonly detail: string;
  /** The failure struck a connection that had served before (it may have been closed under us). */
  readonly reusedConnection: boolean;
  /** For refusals that say when to come back; 0 = unknown. */
  readonly retryAfterMs: number;
  /** Set by an adapter that has seen already that the body is one well-formed JSON text: nobody need look again. */
  isJson = false;
  /** Of a body that does not stream. */
  end: BodyEnd = 'told';

  constructor(
    code: Code,
    started: Started,
    status: number,
    headers: ReplyHeaders,
    body: Buffer,
    stream: BodySource | null,
    detail: string,
    reusedConnection: boolean,
    retryAfterMs: number,
  ) {
    this.code = code;
    this.started = started;
    this.status = status;
    this.headers = headers;
    this.body = body;
    this.stream = stream;
    this.detail = detail;
    this.reusedConnection = reusedConnection;
    this.retryAfterMs = retryAfterMs;
  }

  /** The same in other words. */
  withDetail(detail: string): Reply {
    return new Reply(
      this.code,
      this.started,
      this.status,
      this.headers,
      this.body,
      this.stream,
      detail,
      this.reusedConnection,
      this.retryAfterMs,
    );
  }

  /** The same with other headers. */
  withHeaders(headers: ReplyHeaders): Reply {
    const reply = new Reply(
      this.code,
      this.started,
      this.status,
      headers,
      this.body,
      this.stream,
      this.detail,
      this.reusedConnection,
      this.retryAfterMs,
    );
    reply.isJson = this.isJson;
    reply.end = this.end;
    return reply;
  }

  /** The same head with another body source around the first. */
  withStream(stream: BodySource): Reply {
    return new Reply(
      this.code,
      this.started,
      this.status,
      this.headers,
      NO_BODY,
      stream,
      this.detail,
      this.reusedConnection,
      this.retryAfterMs,
    );
  }
}

export const NO_BODY: Buffer = Buffer.alloc(0);
const NONE: ReplyHeaders = Object.freeze({});

export function answered(status: number, headers: ReplyHeaders, body: Buffer): Reply {
  return new Reply(0, 'done', status, headers, body, null, '', false, 0);
}

export function streaming(status: number, headers: ReplyHeaders, stream: BodySource): Reply {
  return new Reply(0, 'started', status, headers, NO_BODY, stream, '', false, 0);
}

export function failed(code: Code, started: Started, detail: string, reusedConnection = false, retryAfterMs = 0): Reply {
  return new Reply(code, started, 0, NONE, NO_BODY, null, detail, reusedConnection, retryAfterMs);
}
