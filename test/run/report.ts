/** What one test file said, as a tree, read from its TAP output. Nothing is counted here. */
import { type FinalResults, Parser, type Result } from 'tap-parser';

/** One line of TAP: an assertion, or a subtest with what was in it. */
export interface Point {
  readonly name: string;
  readonly ok: boolean;
  /** Marked skip or todo, with or without a reason. */
  readonly skipped: boolean;
  /** What tap knows about a failure (place, difference, stack), or null. */
  readonly diagnosis: Readonly<Record<string, unknown>> | null;
  /** Empty for an assertion, and for a subtest that asserted nothing. */
  readonly children: readonly Point[];
  readonly isSubtest: boolean;
}

export interface Report {
  readonly points: readonly Point[];
  /** The stream was whole, kept its plan, and said that all was well. */
  readonly ok: boolean;
  /** Why the file gave up, or null. */
  readonly bailedOut: string | null;
}

export function readReport(tap: string): Report {
  const points: Point[] = [];
  let final: FinalResults | null = null;
  let bailedOut: string | null = null;
  const parser = new Parser((results) => {
    final = results;
  });
  parser.on('bailout', (reason: string) => {
    bailedOut = reason === '' ? 'no reason given' : reason;
  });
  collect(parser, points);
  parser.end(tap);
  return { points, ok: (final as FinalResults | null)?.ok === true && bailedOut === null, bailedOut };
}

function collect(parser: Parser, into: Point[]): void {
  // A subtest's own lines come before the line that closes it.
  let open: Point[] | null = null;
  parser.on('child', (child: Parser) => {
    open = [];
    collect(child, open);
  });
  parser.on('assert', (result: Result) => {
    into.push({
      name: result.name,
      ok: result.ok,
      skipped: result.skip !== false || result.todo !== false,
      diagnosis: isRecord(result.diag) ? result.diag : null,
      children: open ?? [],
      isSubtest: open !== null,
    });
    open = null;
  });
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
