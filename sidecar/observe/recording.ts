/**
 * Recordings of calls: what one keeps of a call, which is what its redaction rules let it keep and nothing besides. A recording is
 * begun with rules or not at all. What is recorded, how much of it, and where it goes, is decided by whoever begins one.
 */
import { redactedBody, redactedHeaders, redactedUrl, type RedactionRules, redactionRules } from '../../base/redact.ts';

/** One message of a call, in whatever protocol. */
export interface RecordedPart {
  /** Path and query, or the whole address; '' where the protocol has none. */
  readonly target: string;
  /** Headers or metadata. */
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly trailers: Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly contentType: string;
  readonly body: Uint8Array;
}

export interface RecordedCall {
  readonly traceId: string;
  readonly way: string;
  /** Canonical, out of the table. */
  readonly capability: string;
  readonly provider: string;
  readonly code: number;
  readonly request: RecordedPart;
  /** null = there was none. */
  readonly answer: RecordedPart | null;
  /** What went wrong; an object that may carry the request with it. */
  readonly error: unknown;
}

export class Recording {
  readonly #rules: RedactionRules;
  readonly #write: (line: string) => void;

  /** @internal */
  constructor(rules: RedactionRules, write: (line: string) => void) {
    this.#rules = rules;
    this.#write = write;
  }

  keep(call: RecordedCall): void {
    const { traceId, way, capability, provider, code, request, answer, error } = call;
    this.#write(
      JSON.stringify({
        trace_id: traceId,
        way,
        capability,
        provider,
        code,
        request: this.#part(request),
        answer: answer === null ? null : this.#part(answer),
        // The code table says what went wrong. Of the object, its type: message and members may quote the request.
        error: error instanceof Error ? error.name.slice(0, 64) : null,
      }),
    );
  }

  #part({ target, headers, trailers, contentType, body }: RecordedPart): object {
    return {
      target: redactedUrl(target, this.#rules.query),
      headers: redactedHeaders(headers, this.#rules.headers),
      trailers: redactedHeaders(trailers, this.#rules.headers),
      body: redactedBody(body, contentType, this.#rules),
    };
  }
}

/** @param rules as an operator wrote them. Words when there are none: nothing is recorded then. @param write takes a line without its end. */
export function startRecording(rules: unknown, write: (line: string) => void): Recording | string {
  const read = redactionRules(rules);
  return typeof read === 'string' ? read : new Recording(read, write);
}
