/**
 * What this sidecar remembers of messages that did not end at their first try: for how long they were worked on, and whether
 * they were handed over at all (a refusal for want of a slot is delivered once more, and is no try), and which agents sent them
 * away, so that others have them next. Bounded: what is forgotten costs a message a try too many in the count, never one too few.
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
  /** Its first delivery ended without a hand-over. */
  untried: boolean;
  /** By agent: how often it failed there, or was refused; null = nowhere yet. */
  #sentAway: Map<string, number> | null = null;

  constructor(untried: boolean) {
    this.untried = untried;
  }

  sentAway(agentId: string): void {
    this.#sentAway ??= new Map();
    this.#sentAway.set(agentId, this.timesAt(agentId) + 1);
  }

  timesAt(agentId: string): number {
    return this.#sentAway?.get(agentId) ?? 0;
  }
}

const KEEP = 20_000;
const KEEP_FAILED = 16;

export function addFailed(memory: Memory, failed: FailedTry): void {
  if (memory.failed.length >= KEEP_FAILED) memory.failed.shift();
  memory.failed.push(failed);
}

export class Tries {
  readonly #known = new Map<string, Memory>();
  /**
   * Given back before they were taken here: nothing else is known of them. Most end elsewhere, unheard of here, so they must not push
   * out the others.
   */
  readonly #unstarted = new Set<string>();

  of(taskId: string): Memory | null {
    return this.#known.get(taskId) ?? null;
  }

  remember(taskId: string): Memory {
    let memory = this.#known.get(taskId);
    if (memory !== undefined) return memory;
    if (this.#known.size >= KEEP) this.#known.delete(this.#known.keys().next().value as string);
    memory = new Memory(this.#unstarted.delete(taskId));
    this.#known.set(taskId, memory);
    return memory;
  }

  /** It goes back and was not taken: its next delivery is no second try. */
  unstarted(taskId: string): void {
    if (this.#known.has(taskId)) return;
    if (this.#unstarted.size >= KEEP) this.#unstarted.delete(this.#unstarted.values().next().value as string);
    this.#unstarted.add(taskId);
  }

  /** Its first delivery was no try. */
  isUntried(taskId: string): boolean {
    return this.#unstarted.has(taskId) || this.of(taskId)?.untried === true;
  }

  forget(taskId: string): void {
    if (this.#known.size !== 0) this.#known.delete(taskId);
    if (this.#unstarted.size !== 0) this.#unstarted.delete(taskId);
  }
}
