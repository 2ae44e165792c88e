/** Names a pool by what it is, so that two sidecars that never spoke mean the same one. */
import { createHash } from 'node:crypto';
import { hash32 } from '../../base/rendezvous.ts';
import { PARTITIONS, type Pool } from './messages.ts';

const ALPHABET = 'abcdefghijklmnopqrstuvwxyz234567';
const CHARS = 20;

/** `p` and 20 of a-z2-7: one subject token, and a name for consumers. */
export function poolId(pool: Omit<Pool, 'id'>): string {
  const tags = Object.keys(pool.tags).sort();
  const parts = [pool.capability, pool.version ?? '', pool.role ?? '', pool.agent ?? '', pool.sticky ? 'sticky' : ''];
  for (const name of tags) parts.push(name, pool.tags[name] as string);
  const digest = createHash('sha256').update(parts.join('\0')).digest();
  let id = 'p';
  for (let i = 0; i < CHARS; i++) id += ALPHABET[(digest[i] as number) & 31];
  return id;
}

const PARTITION_SEED = 0x3c6ef372;

/** The partition of a sticky pool in which everything of one key goes, whoever sends it. */
export function partitionOf(key: string): number {
  return hash32(key, PARTITION_SEED) % PARTITIONS;
}

/** In words, for people: `crm.order.query@2.1.0`, `role retriever`. */
export function poolWords(pool: Pool): string {
  const what = pool.version === null ? pool.capability : `${pool.capability}@${pool.version}`;
  const who = pool.agent !== null ? ` at ${pool.agent}` : pool.role !== null ? ` by role ${pool.role}` : '';
  const tags = Object.entries(pool.tags).map(([name, value]) => `${name}=${value}`);
  return `${what}${who}${tags.length === 0 ? '' : ` with ${tags.join(', ')}`}${pool.sticky ? ', sticky' : ''}`;
}
