/**
 * `100 Continue` that nobody asked for. A server may send it before any answer (RFC 9110 section 15.2) and some do so for
 * every POST; undici takes it for a broken answer and drops the connection. So it is taken out of what is read before the
 * parser sees it. Other interim answers (102, 103) are left to the parser, which skips them.
 */
const INTERIM = Buffer.from('HTTP/1.1 100', 'latin1');
const HEAD_END = Buffer.from('\r\n\r\n', 'latin1');
/** Of an interim answer that does not end; beyond it the parser may refuse it. */
const MAX_HELD_BYTES = 4_096;

/** One connection's; asked only while the head of an answer is awaited. */
export class ContinueFilter {
  #held: Buffer | null = null;

  /** What the parser may see; null = nothing yet. The usual answer costs one comparison of twelve bytes. */
  pass(chunk: Buffer): Buffer | null {
    let bytes = this.#held === null ? chunk : Buffer.concat([this.#held, chunk]);
    this.#held = null;
    while (bytes.length > 0) {
      const compared = Math.min(bytes.length, INTERIM.length);
      if (bytes.compare(INTERIM, 0, compared, 0, compared) !== 0) return bytes;
      const end = bytes.indexOf(HEAD_END);
      if (end < 0) {
        if (bytes.length > MAX_HELD_BYTES) return bytes;
        this.#held = bytes;
        return null;
      }
      bytes = bytes.subarray(end + HEAD_END.length);
    }
    return null;
  }
}
