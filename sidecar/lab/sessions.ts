/** Which provider each session of a step has met: whether a conversation stayed where it began. */
export class Sessions {
  readonly #met = new Map<string, string>();
  readonly #broken = new Set<string>();

  get count(): number {
    return this.#met.size;
  }

  get broken(): number {
    return this.#broken.size;
  }

  /** @param session '' = it belongs to none @param provider null = nobody served it, which breaks nothing */
  add(session: string, provider: string | null): void {
    if (session === '' || provider === null) return;
    const before = this.#met.get(session);
    if (before === undefined) this.#met.set(session, provider);
    else if (before !== provider) this.#broken.add(session);
  }
}
