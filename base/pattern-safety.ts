/**
 * Whether a regular expression may be run on other people's text. JavaScript's engine tries one way after another, so a
 * pattern that can match the same text in many ways can be driven into minutes of work by a short text. Such a pattern
 * is refused where it is written; one whose time grows with a power of the length is taken with a short `maxLength`.
 */
import { type Ambiguity, ambiguityOf } from './ambiguity.ts';
import { parsePattern, type Tree } from './regex-tree.ts';

export const MAX_PATTERN = 512;
/** Steps that one check may take at the worst, about 50 ms. */
const MAX_STEPS = 25_000_000;
/** Ways to match that need no closer look: all of them can be tried. */
const FEW_WAYS = 100_000;
const FEW_WAYS_ANYWHERE = 100;

interface Judgement {
  readonly problem: string | null;
  /** Longest text that it may be run on; Infinity when its time grows with the length only. */
  readonly maxLength: number;
}

/**
 * Words to put after the pattern, or null when it may be used.
 * @param maxLength of the text, as far as the schema bounds it; null = not bounded.
 */
export function patternProblem(pattern: string, maxLength: number | null): string | null {
  const judgement = judge(pattern);
  if (judgement.problem !== null) return judgement.problem;
  if (maxLength !== null ? maxLength <= judgement.maxLength : judgement.maxLength === Number.POSITIVE_INFINITY) return null;
  return `can take time that grows with a power of the text's length: put "maxLength" of at most ${judgement.maxLength} beside it, anchor it with ^, or let neighbouring parts begin with different characters`;
}

function judge(pattern: string): Judgement {
  const refuse = (problem: string): Judgement => ({ problem, maxLength: 0 });
  if (pattern.length > MAX_PATTERN) return refuse(`is longer than ${MAX_PATTERN} characters`);
  try {
    new RegExp(pattern, 'u');
  } catch (error) {
    return refuse(`is not a regular expression (${(error as Error).message.split(': ').at(-1) ?? 'malformed'})`);
  }
  const parsed = parsePattern(pattern);
  if (parsed.hasBackreference) return refuse('refers back to a group, which can take time without bound');
  if (parsed.hasRepeatedLook) return refuse('looks ahead or behind inside a repetition, which is done again at every round');
  let maxLength = Number.POSITIVE_INFINITY;
  for (const [i, tree] of [parsed.tree, ...parsed.looks].entries()) {
    // a lookaround is tried from one place at a time, but from every place that the pattern comes to
    const isAnywhere = i === 0 ? !beginsAtStart(tree) : !beginsAtStart(parsed.tree);
    const judgement = judgeTree(tree, isAnywhere, i === 0);
    if (judgement.problem !== null) return judgement;
    maxLength = Math.min(maxLength, judgement.maxLength);
  }
  return { problem: null, maxLength };
}

function judgeTree(tree: Tree, isAnywhere: boolean, isWhole: boolean): Judgement {
  if (waysOf(tree) <= (isAnywhere ? FEW_WAYS_ANYWHERE : FEW_WAYS)) return { problem: null, maxLength: Number.POSITIVE_INFINITY };
  const whole = ambiguityOf(tree, false);
  const bad = refusal(whole) ?? manyWays(tree);
  if (bad !== null) return { problem: bad, maxLength: 0 };
  // what follows the last part that must match cannot make it fail
  const needed = isWhole ? withoutTail(tree) : tree;
  const ambiguity = ambiguityOf(needed, isAnywhere);
  const worse = refusal(ambiguity);
  if (worse !== null) return { problem: worse, maxLength: 0 };
  if (ambiguity.growth === 'linear') return { problem: null, maxLength: Number.POSITIVE_INFINITY };
  return { problem: null, maxLength: Math.max(1, Math.floor((MAX_STEPS / ambiguity.ways) ** (1 / ambiguity.degree))) };
}

function refusal(ambiguity: Ambiguity): string | null {
  if (ambiguity.growth === 'unknown') return 'is too large to be judged: shorten it';
  if (ambiguity.growth === 'exponential')
    return 'can take exponential time: a repeated part can match the same text in more than one way (such as (a+)+ or (a|a)*)';
  if (ambiguity.ways > FEW_WAYS) return 'can match the same text in too many ways';
  return null;
}

/** A part that may match nothing, repeated a fixed number of times, as in (a?){30}: every copy may be the one that matches. */
function manyWays(tree: Tree): string | null {
  if (tree.kind === 'sequence' || tree.kind === 'choice') {
    for (const part of tree.parts) {
      const problem = manyWays(part);
      if (problem !== null) return problem;
    }
    return null;
  }
  if (tree.kind !== 'repeat') return null;
  if (tree.max > 1 && tree.max !== Number.POSITIVE_INFINITY && canBeEmpty(tree.body) && waysOf(tree) > FEW_WAYS_ANYWHERE)
    return 'repeats a part that can match nothing';
  return manyWays(tree.body);
}

function canBeEmpty(tree: Tree): boolean {
  switch (tree.kind) {
    case 'set':
      return false;
    case 'sequence':
      return tree.parts.every(canBeEmpty);
    case 'choice':
      return tree.parts.some(canBeEmpty);
    case 'repeat':
      return tree.min === 0 || canBeEmpty(tree.body);
    default:
      return true;
  }
}

/** In how many ways the pattern can be walked through, whatever the text; Infinity with an endless loop. */
function waysOf(tree: Tree): number {
  switch (tree.kind) {
    case 'sequence':
      return tree.parts.reduce((ways, part) => ways * waysOf(part), 1);
    case 'choice':
      return tree.parts.reduce((ways, part) => ways + waysOf(part), 0);
    case 'repeat': {
      if (tree.max === Number.POSITIVE_INFINITY) return Number.POSITIVE_INFINITY;
      const ways = waysOf(tree.body);
      return (tree.max - tree.min + 1) * ways ** tree.max;
    }
    default:
      return 1;
  }
}

function beginsAtStart(tree: Tree): boolean {
  switch (tree.kind) {
    case 'start':
      return true;
    case 'choice':
      return tree.parts.every(beginsAtStart);
    case 'sequence':
      return (
        tree.parts.length > 0 &&
        (beginsAtStart(tree.parts[0] as Tree) ||
          (tree.parts[0]?.kind === 'empty' && beginsAtStart({ kind: 'sequence', parts: tree.parts.slice(1) })))
      );
    case 'repeat':
      return tree.min > 0 && beginsAtStart(tree.body);
    default:
      return false;
  }
}

/** The tree without what may follow once everything that must match has matched. */
function withoutTail(tree: Tree): Tree {
  if (tree.kind === 'repeat')
    return tree.min === 0 ? { kind: 'empty' } : { ...tree, max: tree.min, ...(tree.min === 1 ? { body: withoutTail(tree.body) } : {}) };
  if (tree.kind === 'choice') return { kind: 'choice', parts: tree.parts.map(withoutTail) };
  if (tree.kind !== 'sequence') return tree;
  const parts = [...tree.parts];
  while (parts.length > 0) {
    const last = withoutTail(parts.pop() as Tree);
    if (last.kind !== 'empty') return { kind: 'sequence', parts: [...parts, last] };
  }
  return { kind: 'empty' };
}

/** A pattern with a longest text. */
interface TextTest {
  test(text: string): boolean;
  toString(): string;
}

class BoundedTest implements TextTest {
  readonly #pattern: RegExp;
  readonly #maxLength: number;

  constructor(pattern: RegExp, maxLength: number) {
    this.#pattern = pattern;
    this.#maxLength = maxLength;
  }

  test(text: string): boolean {
    return text.length <= this.#maxLength && this.#pattern.test(text);
  }

  toString(): string {
    return String(this.#pattern);
  }
}

/**
 * For the schema engine. A pattern that needs a short text is not run on a longer one, whatever else the schema says:
 * the engine may look at `pattern` although `maxLength` has failed already.
 */
export const guardedRegExp = Object.assign(
  (pattern: string, flags: string): RegExp => {
    const compiled = new RegExp(pattern, flags);
    const { maxLength } = judge(pattern);
    return maxLength === Number.POSITIVE_INFINITY ? compiled : (new BoundedTest(compiled, maxLength) as TextTest as RegExp);
  },
  { code: 'new RegExp' },
);
