/**
 * What this sidecar remembers of messages that did not end at their first try: for how long they were worked on, and whether
 * they were handed over at all (a refusal for want of a slot is delivered once more, and is no try). Bounded: what is forgotten
 * costs a message a try too many in the count, never one too few.
 */
/** As it stands in what is kept for people. */
export interface FailedTry {
  readonly by: string;
  readonly at_ms: number;
  readonly code: number;
  readonly detail: string;
}

export class Memory {
  workedMs = 0;
  /** The latest ones. */
  readonly failed: FailedTry[] = [];
  /** It was delivered and given back without a hand-over. */
  untried = false;
}

const KEEP = 20_000;
const KEEP_FAILED = 16;

export function addFailed(memory: Memory, failed: FailedTry): void {
  if (memory.failed.length >= KEEP_FAILED) memory.failed.shift();
  memory.failed.push(failed);
}

export class Tries {
  readonly #known = new Map<string, Memory>();

  of(taskId: string): Memory | null {
    return this.#known.get(taskId) ?? null;
  }

  remember(taskId: string): Memory {
    let memory = this.#known.get(taskId);
    if (memory !== undefined) return memory;
    if (this.#known.size >= KEEP) this.#known.delete(this.#known.keys().next().value as string);
    memory = new Memory();
    this.#known.set(taskId, memory);
    return memory;
  }

  forget(taskId: string): void {
    if (this.#known.size !== 0) this.#known.delete(taskId);
  }
}
