/**
 * Tasks that their senders have called off, for those that wait in the queue: whoever pulls one later must know. Everybody
 * hears of every one, so the list is bounded and the oldest go first; a task that is forgotten here is merely carried out.
 */
const KEEP = 50_000;

interface Said {
  /** The agent that may call it off. */
  readonly source: string;
  /** The sidecar that says so; null = it was said without a name, by the version before. */
  readonly speaker: string | null;
}

export class Cancelled {
  readonly #by = new Map<string, Said>();

  add(taskId: string, source: string, speaker: string | null): void {
    if (this.#by.size >= KEEP && !this.#by.has(taskId)) this.#by.delete(this.#by.keys().next().value as string);
    this.#by.set(taskId, { source, speaker });
  }

  /** Called off by the one who sent it, and by where it is at home: a stranger's word does not count. */
  has(taskId: string, source: string, home: string): boolean {
    if (this.#by.size === 0) return false;
    const said = this.#by.get(taskId);
    return said !== undefined && said.source === source && (said.speaker === null || said.speaker === home);
  }

  forget(taskId: string): void {
    if (this.#by.size !== 0) this.#by.delete(taskId);
  }
}
