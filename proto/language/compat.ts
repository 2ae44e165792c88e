/**
 * The compatibility guard (SPEC R2.3): within one major version a later contract must take what the earlier one took and
 * answer what it answered. A new major is free. Below 1.0.0 the minor counts as the major, as `^` reads it; what comes
 * after a pre-release owes it nothing.
 */
import type { SemVer } from 'semver';
import { parseVersion } from './range.ts';
import { schemaBreaks } from './schema-compat.ts';
import type { Contract } from './types.ts';

/** What in `later` breaks `earlier`, one sentence each; empty when nothing does or when they owe each other nothing. */
export function breaks(earlier: Contract, later: Contract): string[] {
  if (!owes(parseVersion(earlier.version), parseVersion(later.version))) return [];
  const found = [...schemaBreaks('input', earlier.input, later.input), ...schemaBreaks('output', earlier.output, later.output)];
  if (earlier.execution !== 'once' && later.execution === 'once')
    found.push(`execution was ${earlier.execution} and is once: callers that count on retries lose them`);
  if (later.affinity?.required === true && earlier.affinity?.required !== true)
    found.push('affinity is newly required: callers without the key are refused');
  if (earlier.streaming !== null && later.streaming === null) found.push('streaming is no longer offered');
  if (
    earlier.streaming !== null &&
    later.streaming !== null &&
    earlier.streaming.done !== null &&
    later.streaming.done !== earlier.streaming.done
  )
    found.push(
      `the end of the stream was told by ${JSON.stringify(earlier.streaming.done)} and no longer is: callers that wait for it hang`,
    );
  return found;
}

function owes(earlier: SemVer, later: SemVer): boolean {
  if (earlier.prerelease.length > 0 || earlier.compare(later) >= 0 || earlier.major !== later.major) return false;
  return earlier.major > 0 || earlier.minor === later.minor;
}
