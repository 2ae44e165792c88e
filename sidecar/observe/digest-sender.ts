/**
 * Tells the control plane each ten seconds what was counted (digest.ts), on core NATS. A period without traffic is told as well:
 * so silence is told apart from absence. What cannot be sent is gone; the numbers go on, so that the gap is seen. A period that is
 * too large for one message, in rows or in bytes, goes in several, each with its own number: all of it adds up.
 *
 * The first one comes after a part of a period that chance sets, so that a fleet that starts together does not speak together.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Random } from '../../base/random.ts';
import { type Digest, DIGEST_EVERY_MS, DIGEST_WIRE, MAX_DIGEST_BYTES, MAX_DIGEST_ROWS } from '../../proto/wire/digests.ts';
import type { Counted, DigestCounts } from './digest.ts';

export interface DigestSenderParts {
  readonly counts: DigestCounts;
  readonly clock: Clock;
  readonly random: Random;
  readonly sidecar: string;
  readonly instance: string;
  readonly bus: { readonly connected: boolean; publish(subject: string, data: Uint8Array): boolean };
  readonly subject: string;
}

export class DigestSender {
  readonly #parts: DigestSenderParts;
  #seq = 0;
  #fromMs: number;
  #timer: Timer | null = null;
  #sent = 0;
  #dropped = 0;

  constructor(parts: DigestSenderParts) {
    this.#parts = parts;
    this.#fromMs = parts.clock.wallMs();
  }

  /** Messages that were sent, and those that could not be, since the start. */
  get figures(): { readonly sent: number; readonly dropped: number } {
    return { sent: this.#sent, dropped: this.#dropped };
  }

  start(): void {
    const { counts, clock, random } = this.#parts;
    counts.begin();
    this.#timer = clock.after(random.next() * DIGEST_EVERY_MS, () => this.#tell());
  }

  /** Tells what is left. */
  stop(): void {
    if (this.#timer === null) return;
    this.#timer.cancel();
    this.#timer = null;
    this.#send();
  }

  #tell(): void {
    this.#timer = this.#parts.clock.after(DIGEST_EVERY_MS, () => this.#tell());
    this.#send();
  }

  #send(): void {
    const { counts, clock, sidecar, instance, bus, subject } = this.#parts;
    const from = this.#fromMs;
    // A wall clock may be set back.
    const to = Math.max(from, clock.wallMs());
    this.#fromMs = to;
    for (const part of inParts(counts.take())) {
      const head: Omit<Digest, keyof Counted> = { wire: DIGEST_WIRE, sidecar, instance, seq: ++this.#seq, from_ms: from, to_ms: to };
      if (bus.connected && bus.publish(subject, Buffer.from(`${JSON.stringify(head).slice(0, -1)},${part}}`, 'utf8'))) this.#sent++;
      else this.#dropped++;
    }
  }
}

const LISTS: readonly (keyof Counted)[] = ['edges', 'providers', 'breakers'];

/** The lists of each message as JSON, without the braces around them. At least one, so that the period is told. */
function inParts(counted: Counted): string[] {
  const parts: string[] = [];
  const at = { edges: 0, providers: 0, breakers: 0 };
  do {
    let bytes = 0;
    const lists = LISTS.map((list) => {
      const rows = counted[list];
      const texts: string[] = [];
      while (at[list] < rows.length && texts.length < MAX_DIGEST_ROWS && bytes < MAX_DIGEST_BYTES) {
        const text = JSON.stringify(rows[at[list]++]);
        bytes += Buffer.byteLength(text, 'utf8') + 1;
        texts.push(text);
      }
      return `"${list}":[${texts.join(',')}]`;
    });
    parts.push(lists.join(','));
  } while (LISTS.some((list) => at[list] < counted[list].length));
  return parts;
}
