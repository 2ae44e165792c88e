/** The calls that an agent is being asked on one connection: in a list, since most have one or none, and lists leave nothing behind. */
import type { Asked } from './asked.ts';

export class CallsOut {
  #first: Asked | null = null;
  #count = 0;
  #lastId = 0;

  get count(): number {
    return this.#count;
  }

  /** Ids are a counter of the connection: no caller has a say in them, and none comes twice. */
  nextId(): number {
    return ++this.#lastId;
  }

  add(asked: Asked): void {
    asked.next = this.#first;
    this.#first = asked;
    this.#count++;
  }

  find(id: number): Asked | null {
    let one = this.#first;
    while (one !== null && one.id !== id) one = one.next;
    return one;
  }

  /** Harmless for one that is not there. */
  remove(asked: Asked): void {
    let before: Asked | null = null;
    for (let one = this.#first; one !== null; before = one, one = one.next) {
      if (one !== asked) continue;
      if (before === null) this.#first = one.next;
      else before.next = one.next;
      one.next = null;
      this.#count--;
      return;
    }
  }

  /** All of them; the list may be changed meanwhile. */
  all(): Asked[] {
    const all: Asked[] = [];
    for (let one = this.#first; one !== null; one = one.next) all.push(one);
    return all;
  }
}
