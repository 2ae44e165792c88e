/**
 * What one sidecar holds of the registry in one epoch: the newest message of every subject in its scope, with its
 * sequence. It never goes back. A message that cannot be used counts as seen, so that it is not asked for again, while the
 * state that it would have replaced stays. Shards beyond the number in force are kept but not used: when the number grows
 * again, they may not be written anew. Nothing is decided here about when a state is put into force.
 */
import type { CapabilityState, ScopeState } from '../../proto/wire/registry.ts';
import { Tail } from '../../proto/wire/subjects.ts';
import { type Judgement, judge, NEVER } from './chain.ts';
import { type Opened, readCapability, readScope } from './readable.ts';
import { capabilityTail, tailsOf } from './scope.ts';
import { shared, untried } from './sharing.ts';

export interface Stored<T> {
  readonly seq: number;
  readonly state: T;
}

/** What became of a message. */
export type Taken = { readonly judgement: Exclude<Judgement, 'old'>; readonly problem: string | null } | { readonly judgement: 'old' };

export class Held {
  readonly epoch: string;
  /** Newest sequence that was looked at, of each subject; also of those that could not be used. */
  readonly #seen = new Map<string, number>();
  readonly #capabilities = new Map<string, Stored<CapabilityState>>();
  /** Subjects that were read and have no message. */
  readonly #absent = new Set<string>();
  #scope: Stored<ReadonlySet<string>> | null = null;
  #highestSeq = 0;

  constructor(epoch: string) {
    this.epoch = epoch;
  }

  /** Highest sequence that was taken. */
  get highestSeq(): number {
    return this.#highestSeq;
  }

  /** Null = not known yet. */
  get scope(): Stored<ReadonlySet<string>> | null {
    return this.#scope;
  }

  seen(tail: string): number {
    return this.#seen.get(tail) ?? NEVER;
  }

  /** @param before sequence of the message before it on the same subject; null = not said. */
  takeScope(tail: string, seq: number, before: number | null, opened: Opened): Taken {
    const judgement = this.#look(tail, seq, before);
    if (judgement === 'old') return { judgement };
    const state = readScope(opened);
    if ('problem' in state) return { judgement, problem: state.problem };
    this.putScope(tail, seq, state);
    return { judgement, problem: null };
  }

  takeCapability(tail: string, seq: number, before: number | null, opened: Opened, tryOut: TryOut): Taken {
    const at = capabilityTail(tail);
    if (at === null) return { judgement: 'old' };
    const judgement = this.#look(tail, seq, before);
    if (judgement === 'old') return { judgement };
    const read = readCapability(opened, at.name, at.shard);
    if ('problem' in read) return { judgement, problem: read.problem };
    const held = this.#capabilities.get(tail)?.state ?? null;
    const state = shared(read, held);
    const problem = tryOut(untried(state, held));
    if (problem !== null) return { judgement, problem };
    this.#capabilities.set(tail, { seq, state });
    this.#highestSeq = Math.max(this.#highestSeq, seq);
    return { judgement, problem: null };
  }

  #look(tail: string, seq: number, before: number | null): Judgement {
    const judgement = judge(this.seen(tail), seq, before);
    if (judgement !== 'old') {
      this.#seen.set(tail, seq);
      this.#absent.delete(tail);
    }
    return judgement;
  }

  putScope(tail: string, seq: number, state: ScopeState): void {
    this.#scope = { seq, state: new Set(state.capabilities) };
    this.#seen.set(tail, seq);
    this.#highestSeq = Math.max(this.#highestSeq, seq);
    for (const known of [...this.#seen.keys(), ...this.#absent]) {
      const at = capabilityTail(known);
      if (at !== null && !this.#scope.state.has(at.name)) this.#drop(known);
    }
  }

  /** As if it had never come. */
  forget(tail: string): void {
    this.#drop(tail);
  }

  /** A read found something that cannot even be opened. */
  putUnreadable(tail: string, seq: number): void {
    if (seq > this.seen(tail)) this.#seen.set(tail, seq);
  }

  /** A read found nothing there. */
  putAbsent(tail: string): void {
    if (this.seen(tail) === NEVER) this.#absent.add(tail);
  }

  /** Shards of a capability in force, the first one first; null while something of it is still to be read. */
  shardsOf(name: string): readonly CapabilityState[] | null {
    const first = this.#capabilities.get(Tail.capability(name));
    if (first === undefined) return this.missing(name).length === 0 ? [] : null;
    const shards: CapabilityState[] = [];
    for (const tail of tailsOf(name, first.state.shards)) {
      const shard = this.#capabilities.get(tail);
      if (shard !== undefined) shards.push(shard.state);
      else if (this.seen(tail) === NEVER && !this.#absent.has(tail)) return null;
    }
    return shards;
  }

  /** Newest sequence of a capability that is in force, over its shards; `NEVER` = none. */
  seqOf(name: string): number {
    const first = this.#capabilities.get(Tail.capability(name));
    let seq = NEVER;
    for (const tail of tailsOf(name, first?.state.shards ?? 1)) seq = Math.max(seq, this.#capabilities.get(tail)?.seq ?? NEVER);
    return seq;
  }

  /** All subjects of a capability, as far as they are known. */
  tails(name: string): string[] {
    return tailsOf(name, this.#capabilities.get(Tail.capability(name))?.state.shards ?? 1);
  }

  /** Those that nothing is known of yet. */
  missing(name: string): string[] {
    return this.tails(name).filter((tail) => this.seen(tail) === NEVER && !this.#absent.has(tail));
  }

  capabilities(): IterableIterator<[tail: string, Stored<CapabilityState>]> {
    return this.#capabilities.entries();
  }

  #drop(tail: string): void {
    this.#capabilities.delete(tail);
    this.#seen.delete(tail);
    this.#absent.delete(tail);
  }
}

/** Compiles it in a place apart: null, or why it cannot be. */
export type TryOut = (state: CapabilityState) => string | null;
