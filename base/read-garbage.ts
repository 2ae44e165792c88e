/**
 * Keeps the garbage of streams small. Every read of a socket allocates up to 64 KiB outside of V8's heap. V8 lets such
 * blocks go in a cheap young collection, but decides when to make one by what stands *inside* its heap, where a read leaves
 * next to nothing: so the blocks pile up to some 32 MB, until a full collection is forced, every 50 ms in a fast stream.
 * Asked for a young collection every 4 MiB instead, the process stays small, the blocks are the ones that were just used
 * (and still in the processor's cache), and a stream runs up to twice as fast: measured, see docs/decisions.md.
 *
 * One count a process, since the heap is the process's. Where the collector cannot be asked, nothing is done.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

const EVERY_BYTES = 4_194_304;

type Collector = (options: { readonly type: 'minor' }) => void;

const YOUNG = Object.freeze({ type: 'minor' } as const);
let collect: Collector | null | undefined;
let sinceBytes = 0;

/** So many bytes of somebody's stream have been read and passed on. */
export function bytesPassed(bytes: number): void {
  sinceBytes += bytes;
  if (sinceBytes < EVERY_BYTES) return;
  sinceBytes = 0;
  if (collect === undefined) collect = collector();
  if (collect !== null) collect(YOUNG);
}

/** Looked for when the first stream needs it: a process without big streams does not pay for the second context. */
function collector(): Collector | null {
  try {
    setFlagsFromString('--expose-gc');
    const found: unknown = runInNewContext('gc');
    setFlagsFromString('--no-expose-gc');
    return typeof found === 'function' ? (found as Collector) : null;
  } catch {
    return null;
  }
}
