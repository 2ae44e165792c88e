/**
 * Tasks that their senders have called off, for those that wait in the queue: whoever pulls one later must know. Everybody
 * hears of every one, so the list is bounded and the oldest go first; a task that is forgotten here is merely carried out.
 */
const KEEP = 50_000;

export class Cancelled {
  /** Task → the agent that may call it off. */
  readonly #by = new Map<string, string>();

  add(taskId: string, source: string): void {
    if (this.#by.size >= KEEP && !this.#by.has(taskId)) this.#by.delete(this.#by.keys().next().value as string);
    this.#by.set(taskId, source);
  }

  /** Called off by the one who sent it: a stranger's word does not count. */
  has(taskId: string, source: string): boolean {
    return this.#by.size !== 0 && this.#by.get(taskId) === source;
  }

  forget(taskId: string): void {
    if (this.#by.size !== 0) this.#by.delete(taskId);
  }
}
