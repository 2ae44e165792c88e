/** A refusal of the API as RFC 9457 describes it, with a code of the closed table. */
import { Code, codeEntry } from '../../proto/wire/codes.ts';
import type { Problem } from '../../proto/language/types.ts';

export const PROBLEM_TYPE = 'application/problem+json';

/** What a handler gives instead of an answer. */
export class Refused {
  readonly status: number;
  readonly code: Code;
  readonly detail: string;
  /** Mistakes in a file, with their places. */
  readonly problems: readonly Problem[];
  /** Things that stand beside the detail, such as the versions that exist. */
  readonly extra: Readonly<Record<string, unknown>>;
  /** Beside those that every refusal has. */
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    status: number,
    code: Code,
    detail: string,
    problems: readonly Problem[] = [],
    extra: Readonly<Record<string, unknown>> = {},
    headers: Readonly<Record<string, string>> = {},
  ) {
    this.status = status;
    this.code = code;
    this.detail = detail;
    this.problems = problems;
    this.extra = extra;
    this.headers = headers;
  }

  body(): string {
    const entry = codeEntry(this.code);
    return JSON.stringify({
      type: `urn:agent-reach:error:${entry.code}`,
      title: entry.meaning,
      status: this.status,
      detail: this.detail,
      code: this.code,
      name: entry.name,
      retryable: entry.retryable,
      ambiguous: false,
      ...(this.problems.length > 0 ? { problems: this.problems } : {}),
      ...this.extra,
    });
  }
}

export const invalid = (detail: string, problems: readonly Problem[] = []): Refused =>
  new Refused(problems.length > 0 ? 422 : 400, Code.invalid_request, detail, problems);
export const absent = (detail: string): Refused => new Refused(404, Code.invalid_request, detail);
export const conflict = (detail: string): Refused => new Refused(409, Code.invalid_request, detail);
export const unavailable = (detail: string): Refused => new Refused(503, Code.delivery_unavailable, detail);
