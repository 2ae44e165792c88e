/** Digests, from bytes that somebody sent to what the book takes. One that is not right in every part is not taken at all: counts cannot be half believed. */
import {
  type BreakerDigest,
  type Digest,
  DIGEST_NAME,
  DIGEST_WIRE,
  type EdgeDigest,
  MAX_DIGEST_ROWS,
  MAX_EXAMPLE_FAILURES,
  type ProviderDigest,
} from '../../proto/wire/digests.ts';
import { SKETCH_BUCKETS } from '../../base/sketch.ts';
import type { Example } from './figures.ts';

type Loose = Readonly<Record<string, unknown>>;

const SIDECAR = /^[a-z0-9][a-z0-9_-]{0,62}$/;
const INSTANCE = /^[A-Za-z0-9_-]{1,64}$/;
const TRACE_ID = /^[0-9a-f]{32}$/;
const STATES: ReadonlySet<unknown> = new Set<BreakerDigest['to']>(['closed', 'open', 'half_open', 'ramping']);
/** Far above what a period can hold, and far below where sums would lose their last digit. */
const MOST = 1e9;
const MAX_CODES = 128;
const MAX_EXAMPLES = MAX_EXAMPLE_FAILURES + 1;
const MAX_WORDS = 500;

/** null = it is nothing of the kind. */
export function readDigest(json: unknown): Digest | null {
  const map = mapOf(json);
  if (map === null || map['wire'] !== DIGEST_WIRE) return null;
  const { sidecar, instance, seq, from_ms: from, to_ms: to } = map;
  if (!isText(sidecar, SIDECAR) || !isText(instance, INSTANCE)) return null;
  if (!isCount(seq) || seq < 1 || !isAtLeastZero(from) || !isAtLeastZero(to)) return null;
  const edges = rows(map['edges'], readEdge);
  const providers = rows(map['providers'], readProvider);
  const breakers = rows(map['breakers'], readBreaker);
  if (edges === null || providers === null || breakers === null) return null;
  return { wire: DIGEST_WIRE, sidecar, instance, seq, from_ms: from, to_ms: to, edges, providers, breakers };
}

function readEdge(map: Loose): EdgeDigest | null {
  const { caller, capability, version, provider, calls, codes, retries, degraded, times } = map;
  if (!isText(caller, DIGEST_NAME) || !isText(capability, DIGEST_NAME) || !isText(version, DIGEST_NAME) || !isText(provider, DIGEST_NAME))
    return null;
  if (!isCount(calls) || !isCount(retries) || !isCount(degraded) || !areTimes(times)) return null;
  if (!Array.isArray(codes) || codes.length % 2 !== 0 || codes.length > MAX_CODES || !codes.every(isCount)) return null;
  const examples = rows(map['examples'], readExample);
  if (examples === null || examples.length > MAX_EXAMPLES) return null;
  return { caller, capability, version, provider, calls, codes, retries, degraded, times, examples };
}

function readExample(map: Loose): Example | null {
  const { trace_id: id, code, elapsed_ms: elapsed } = map;
  return isText(id, TRACE_ID) && isCount(code) && isAtLeastZero(elapsed) ? { trace_id: id, code, elapsed_ms: elapsed } : null;
}

function readProvider(map: Loose): ProviderDigest | null {
  const { capability, version, provider, attempts, failures, times } = map;
  if (!isText(capability, DIGEST_NAME) || !isText(version, DIGEST_NAME) || !isText(provider, DIGEST_NAME)) return null;
  if (!isCount(attempts) || !isCount(failures) || failures > attempts || !areTimes(times)) return null;
  return { capability, version, provider, attempts, failures, times };
}

function readBreaker(map: Loose): BreakerDigest | null {
  const { provider, capability, from, to, why, at_ms: at } = map;
  if (!isText(provider, DIGEST_NAME) || !isText(capability, DIGEST_NAME) || !STATES.has(to)) return null;
  if (from !== undefined && !STATES.has(from)) return null;
  if (typeof why !== 'string' || !isAtLeastZero(at)) return null;
  const told = { provider, capability, to: to as BreakerDigest['to'], why: why.slice(0, MAX_WORDS), at_ms: at };
  return from === undefined ? told : { ...told, from: from as BreakerDigest['to'] };
}

function rows<T>(value: unknown, read: (map: Loose) => T | null): T[] | null {
  if (!Array.isArray(value) || value.length > MAX_DIGEST_ROWS) return null;
  const all: T[] = [];
  for (const each of value as readonly unknown[]) {
    const map = mapOf(each);
    const one = map === null ? null : read(map);
    if (one === null) return null;
    all.push(one);
  }
  return all;
}

/** Bucket and count in turn, rising. */
function areTimes(value: unknown): value is number[] {
  if (!Array.isArray(value) || value.length % 2 !== 0 || value.length > 2 * SKETCH_BUCKETS) return false;
  let before = -1;
  for (let i = 0; i < value.length; i += 2) {
    const bucket: unknown = value[i];
    if (!isCount(bucket) || bucket <= before || bucket >= SKETCH_BUCKETS || !isCount(value[i + 1])) return false;
    before = bucket;
  }
  return true;
}

function mapOf(value: unknown): Loose | null {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Loose) : null;
}

function isText(value: unknown, shape: RegExp): value is string {
  return typeof value === 'string' && shape.test(value);
}

function isCount(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) <= MOST;
}

function isAtLeastZero(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}
