/**
 * What the peers of the conformance suite do, whatever protocol they speak: a fixture turns its protocol's request into an
 * `Asked` and gives an `Answering` to answer with, and the behaviour is the same everywhere. Each behaviour is a capability
 * of its own, `peer.<behaviour>.do`.
 */
import { setTimeout as sleep } from 'node:timers/promises';

export const BEHAVIOURS = [
  'echo',
  'value',
  'exact',
  'nothing',
  'empty',
  'refuses',
  'breaks',
  'sure',
  'hears',
  'slow',
  'hangs',
  'dies',
  'halves',
  'large',
  'malformed',
  'flows',
  'steps',
  'pours',
  'snaps',
  'drips',
  'silent',
] as const;
export type Behaviour = (typeof BEHAVIOURS)[number];

export function capabilityOf(behaviour: Behaviour | 'gone'): string {
  return `peer.${behaviour}.do`;
}

/** Null for a name that is none of ours. */
export function behaviourOf(capability: string): Behaviour | null {
  const word = capability.split('.')[1];
  return BEHAVIOURS.find((each) => each === word) ?? null;
}

/** Letters, an emoji, `null` within, and thirty levels: what a text format must carry. */
export const VALUE: unknown = { text: 'grüße ☕ \u2028 "\\"', none: null, list: [1, 2.5, false, []], deep: nested(30) };
/** Numbers that a double does not hold, and spellings that a parser would tidy. */
export const EXACT = '{"id":12345678901234567890,"price":1.10,"zero":-0,"word":"é"}';
export const REFUSED = { why: 'not like this' };
export const BROKEN = { why: 'my own fault' };
export const LINES: readonly string[] = Array.from({ length: 50 }, (_, n) => JSON.stringify({ n, word: `wort-${n} ☕` }));
export const CUT_AFTER = 3;
/** A line of what is poured, and how many of them. */
export const POUR_LINE_BYTES = 65_536;
export const POUR_LINES = 512;
/** Above the contract's limit on answers (64 KiB). */
export const LARGE = JSON.stringify('x'.repeat(100_000));
/** Longer than the contract of `slow` waits. */
const SLOW_MS = 3_000;
const DRIP_EVERY_MS = 10;

function nested(levels: number): unknown {
  let value: unknown = 'bottom';
  for (let i = 0; i < levels; i++) value = { down: value };
  return value;
}

/** A request as a peer sees it. */
export interface Asked {
  /** JSON. */
  readonly body: Buffer;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** What the protocol itself says of the time that is left, or the header; null = nothing. */
  readonly deadlineMs: number | null;
}

/** How a peer answers; each fixture has its protocol's way. What a protocol cannot do throws `CannotDo`. */
export interface Answering {
  answer(json: string): void;
  /** A proper answer without a body. */
  empty(): void;
  /** The agent's own error, the asker's fault or its own. */
  fail(whose: 'theirs' | 'ours', detail: unknown): void;
  /** An empty list that the agent stands by. */
  sure(): void;
  /** The connection breaks before the answer. */
  die(): void;
  /** The connection breaks in the middle of a whole answer. */
  halve(): void;
  malformed(): void;
  /** One line of a stream; resolves when the next may be sent. */
  write(line: string): Promise<void>;
  end(): void;
  /** The connection breaks in the middle of a stream. */
  snap(): void;
  readonly isGone: boolean;
}

/** What a peer has seen, and what the test lets it do. */
export class Seen {
  readonly asked: Asked[] = [];
  /** Requests whose caller went away, or took back the request, before the end. */
  gone = 0;
  /** Bytes that the protocol's library has taken from the peer, while it pours. */
  pouredBytes = 0;
  #release: (() => void) | null = null;

  /** A peer that streams step by step waits here after its first line. */
  step(): Promise<void> {
    return new Promise((done) => {
      this.#release = done;
    });
  }

  get isWaiting(): boolean {
    return this.#release !== null;
  }

  release(): void {
    this.#release?.();
    this.#release = null;
  }
}

export class CannotDo extends Error {}

export async function act(seen: Seen, behaviour: Behaviour, asked: Asked, answering: Answering): Promise<void> {
  seen.asked.push(asked);
  switch (behaviour) {
    case 'echo':
      // Answers overtake one another.
      await sleep((seen.asked.length % 5) * 3);
      return answering.answer(asked.body.toString('utf8'));
    case 'value':
      return answering.answer(JSON.stringify(VALUE));
    case 'exact':
      return answering.answer(EXACT);
    case 'nothing':
      return answering.answer('null');
    case 'empty':
      return answering.empty();
    case 'refuses':
      return answering.fail('theirs', REFUSED);
    case 'breaks':
      return answering.fail('ours', BROKEN);
    case 'sure':
      return answering.sure();
    case 'hears':
      return answering.answer(JSON.stringify({ headers: asked.headers, deadline_ms: asked.deadlineMs }));
    case 'slow':
      await sleep(SLOW_MS, undefined, { ref: false });
      if (!answering.isGone) answering.answer('"late"');
      return;
    case 'hangs':
      return;
    case 'dies':
      return answering.die();
    case 'halves':
      return answering.halve();
    case 'large':
      return answering.answer(LARGE);
    case 'malformed':
      return answering.malformed();
    case 'flows':
      for (const line of LINES) await answering.write(line);
      return answering.end();
    case 'steps':
      await answering.write(LINES[0] as string);
      await seen.step();
      await answering.write(LINES[1] as string);
      return answering.end();
    case 'pours': {
      const line = JSON.stringify({ y: 'y'.repeat(POUR_LINE_BYTES - 9) });
      for (let n = 0; n < POUR_LINES && !answering.isGone; n++) {
        await answering.write(line);
        seen.pouredBytes += POUR_LINE_BYTES;
      }
      return answering.end();
    }
    case 'snaps':
      for (const line of LINES.slice(0, CUT_AFTER)) await answering.write(line);
      // What was written leaves first: the cut is in the middle, not at the start.
      await sleep(30);
      return answering.snap();
    case 'drips':
      for (let n = 0; !answering.isGone; n++) {
        await answering.write(LINES[n % LINES.length] as string);
        await sleep(DRIP_EVERY_MS);
      }
      return;
    case 'silent':
      return answering.end();
  }
}
