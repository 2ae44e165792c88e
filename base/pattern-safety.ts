/** Signatures first. */
export function patternProblem(_pattern: string, _maxLength: number | null): string | null {
  return null;
}
export function guardedRegExp(pattern: string, flags: string): RegExp {
  return new RegExp(pattern, flags);
}
guardedRegExp.code = 'new RegExp';
