/**
 * Version ranges, as npm reads them, minus its generosity: a blank range, a dangling `||` and words like `undefined` all
 * mean "any version" or nothing to node-semver, and a missing value must never call a major that nobody asked for.
 * Pre-releases match only when the range names one of the same major.minor.patch (npm's own rule).
 */
import { Range as SemverRange, SemVer, valid } from 'semver';

/** An expected failure: a sentence for the person who wrote the text. */
export interface Refusal {
  readonly problem: string;
}

const RANGE_MAX = 256;
const VERSION_MAX = 128;

const PARTIAL = String.raw`v?(?:0|[1-9]\d{0,14}|[xX*])(?:\.(?:0|[1-9]\d{0,14}|[xX*])){0,2}(?:-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?`;
const COMPARATOR = new RegExp(`^(?:\\^|~>?|[<>]=?|=)?${PARTIAL}$`);
const HYPHEN = new RegExp(`^${PARTIAL} - ${PARTIAL}$`);
/** An operator, the spaces after it, and what follows: npm lets `>= 1.2` stand for `>=1.2`. */
const SPACED_OPERATOR = /(\^|~>?|[<>]=?|=) +(?=\S)/g;

/** A compiled range. */
export class Range {
  /** As written, trimmed. */
  readonly text: string;
  readonly #range: SemverRange;

  constructor(text: string, range: SemverRange) {
    this.text = text;
    this.#range = range;
  }

  satisfiedBy(version: SemVer): boolean {
    return this.#range.test(version);
  }
}

/** Compiles a range or says what is wrong with it. */
export function compileRange(text: string): Range | Refusal {
  const trimmed = text.trim();
  if (trimmed.length > RANGE_MAX) return { problem: `the range is longer than ${RANGE_MAX} characters` };
  if (trimmed === '') return { problem: 'the range is empty: write one such as ^2.0, or leave it out' };
  for (const alternative of trimmed.split('||')) {
    const problem = alternativeProblem(alternative.trim().replace(/\s+/g, ' '), trimmed);
    if (problem !== null) return { problem };
  }
  try {
    return new Range(trimmed, new SemverRange(trimmed));
  } catch {
    return { problem: junk(trimmed) };
  }
}

function alternativeProblem(alternative: string, whole: string): string | null {
  if (alternative === '') return `the range ${quoted(whole)} has an empty alternative beside ||, which would mean any version`;
  if (HYPHEN.test(alternative)) return null;
  for (const part of alternative.replace(SPACED_OPERATOR, '$1').split(' ')) {
    if (!COMPARATOR.test(part)) return junk(whole);
    if (!/\d/.test(part) && !/^[xX*]$/.test(part)) return junk(whole);
  }
  return null;
}

function junk(text: string): string {
  return `${quoted(text)} is not a version range: write one as npm does, such as ^2.0, ~1.4.2, >=1.6 <2 or ^1.8 || ^2.0`;
}

function quoted(text: string): string {
  return JSON.stringify(text);
}

/** Why `text` is not an exact version; null when it is one (three numbers, perhaps a pre-release; no `v`, no build part). */
export function exactVersionProblem(text: string): string | null {
  if (text.length <= VERSION_MAX && valid(text) === text) return null;
  const shownText = quoted(text.length > 60 ? `${text.slice(0, 57)}...` : text);
  return `${shownText} is not an exact version: write three numbers such as "2.0.0", with a pre-release if there is one ("2.1.0-rc.1")`;
}

/** For versions that have been checked already. */
export function parseVersion(text: string): SemVer {
  return new SemVer(text);
}
