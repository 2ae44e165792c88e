/**
 * What a stage answers. A Reason is defined once, at module load, beside the rule that gives it; a Verdict is a Reason
 * with up to three values. Words are made only when somebody reads the trace, so that a success costs no text.
 */
import type { Code } from '../../proto/wire/codes.ts';

export type Stage =
  | 'identify'
  | 'name'
  | 'acl'
  | 'overrides'
  | 'limits'
  | 'quotas'
  | 'resolve'
  | 'contract'
  | 'deadline'
  | 'choose'
  | 'loops'
  | 'claim'
  | 'slots'
  | 'attempt'
  | 'retry'
  | 'fallback';

/** A value that a reason's words mention. */
export type Arg = string | number | null | readonly string[];

export interface Reason {
  readonly stage: Stage;
  /** Short, stable, snake_case: what programs and tests compare. */
  readonly name: string;
  /** For people: `{a}`, `{b}`, `{c}` are the verdict's values. */
  readonly words: string;
  /** The stage lets the call pass. */
  readonly passes: boolean;
  /** What the caller sees when this refuses the call; 0 when it passes, or only ends a loop (no more retries, say). */
  readonly code: Code;
}

export class Verdict {
  readonly reason: Reason;
  readonly a: Arg;
  readonly b: Arg;
  readonly c: Arg;
  constructor(reason: Reason, a: Arg = null, b: Arg = null, c: Arg = null) {
    this.reason = reason;
    this.a = a;
    this.b = b;
    this.c = c;
  }
}

/** A reason to let the call pass. */
export function passing(stage: Stage, name: string, words: string): Reason {
  return Object.freeze({ stage, name, words, passes: true, code: 0 });
}

/** A reason to refuse it, with the code that the caller will see. */
export function refusing(stage: Stage, name: string, code: Code, words: string): Reason {
  return Object.freeze({ stage, name, words, passes: false, code });
}

/** A reason to go no further on this way, without a code of its own: what the call has so far stands. */
export function ending(stage: Stage, name: string, words: string): Reason {
  return Object.freeze({ stage, name, words, passes: false, code: 0 });
}

export function wordsOf(reason: Reason, a: Arg, b: Arg, c: Arg): string {
  const { words } = reason;
  let text = '';
  let from = 0;
  for (let at = words.indexOf('{'); at >= 0; at = words.indexOf('{', at + 1)) {
    const key = words.charCodeAt(at + 1);
    if (key < KEY_A || key > KEY_C || words.charCodeAt(at + 2) !== CLOSE) continue;
    text += words.slice(from, at) + shown(key === KEY_A ? a : key === KEY_C ? c : b);
    from = at + 3;
  }
  return from === 0 ? words : text + words.slice(from);
}

const KEY_A = 0x61;
const KEY_C = 0x63;
const CLOSE = 0x7d;

function shown(value: Arg): string {
  if (value === null) return '-';
  if (typeof value === 'number') return Number.isInteger(value) ? String(value) : value.toFixed(2);
  if (typeof value === 'string') return value;
  return value.join(', ');
}
