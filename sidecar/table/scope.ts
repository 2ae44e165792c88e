/** What one sidecar is to know: the capabilities that its callers may use, and those that it hosts. Pure. */
import { Tail } from '../../proto/wire/subjects.ts';
import { isCapabilityName } from '../../proto/language/names.ts';

export interface ScopeChange {
  readonly added: readonly string[];
  readonly removed: readonly string[];
}

export function scopeChange(before: ReadonlySet<string>, after: ReadonlySet<string>): ScopeChange {
  const added: string[] = [];
  const removed: string[] = [];
  for (const name of after) if (!before.has(name)) added.push(name);
  for (const name of before) if (!after.has(name)) removed.push(name);
  return { added, removed };
}

/** A subject of one capability: whose, and which part of it. */
export interface CapabilityTail {
  readonly name: string;
  readonly shard: number;
}

const PREFIX = 'cap.';
/** Providers of one capability that are believed at all: 64 a shard. */
export const MAX_SHARDS = 10_000;

/** Null when the tail is not one of a capability. */
export function capabilityTail(tail: string): CapabilityTail | null {
  if (!tail.startsWith(PREFIX)) return null;
  const rest = tail.slice(PREFIX.length);
  if (isCapabilityName(rest)) return { name: rest, shard: 0 };
  const dot = rest.lastIndexOf('.');
  const name = rest.slice(0, dot);
  const number = rest.slice(dot + 1);
  const shard = Number(number);
  if (!isCapabilityName(name) || String(shard) !== number || shard < 1 || shard >= MAX_SHARDS) return null;
  return { name, shard };
}

export function tailsOf(name: string, shards: number): string[] {
  const tails: string[] = [];
  for (let shard = 0; shard < Math.max(1, shards); shard++) tails.push(Tail.shard(name, shard));
  return tails;
}
