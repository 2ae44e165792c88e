/** A failed call as an exception: what `invoke` and streams reject with. `call` gives the same Result without throwing. */
import type { Failure } from './result.ts';

export class ReachError extends Error {
  /** Not shown with the error when it is printed: its words are in the message. */
  declare readonly result: Failure;

  constructor(result: Failure, options?: ErrorOptions) {
    super(`${result.error.detail || result.error.message} (${result.code})`, options);
    // The word of the code (`none_healthy`): one kind of error each, as `DOMException` has it.
    Object.defineProperty(this, 'name', { value: result.error.name, configurable: true, writable: true });
    Object.defineProperty(this, 'result', { value: result, configurable: true, writable: true });
  }

  /** The number of the code; the tables are in docs/errors.md. */
  get code(): number {
    return this.result.code;
  }

  /** The same request may succeed later or elsewhere. */
  get retryable(): boolean {
    return this.result.error.retryable;
  }

  /** The provider may have acted although no answer came. */
  get ambiguous(): boolean {
    return this.result.error.ambiguous;
  }

  /** The agent's own error, for code 6001; null otherwise. */
  get data(): unknown {
    return this.result.data;
  }
}
