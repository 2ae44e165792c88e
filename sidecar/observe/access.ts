/**
 * The access record: exactly one JSON line a call, written when the call is accounted for. Decides which calls are
 * written and that nothing in a line can be mistaken for another line: names come from the table, ids are checked, text
 * of others is cut and made printable. Never a header value, never a payload.
 */
import type { Logger } from '../../base/log.ts';
import { printable, printableId } from '../../base/log.ts';
import { scrubbed } from '../../base/redact.ts';
import { Code, codeEntry } from '../../proto/wire/codes.ts';
import type { Call } from '../call/call.ts';
import { detailOf } from '../call/result.ts';

export type AccessMode = 'all' | 'errors' | 'off';

/** What a caller wrote as a name, when it is not the name of anything. */
const MAX_ASKED_CHARS = 256;

export class AccessLog {
  readonly #logger: Logger;
  readonly #mode: AccessMode;

  constructor(logger: Logger, mode: AccessMode) {
    this.#logger = logger;
    this.#mode = mode;
  }

  /** True when a line was written. */
  write(call: Call, elapsedMs: number): boolean {
    if (this.#mode === 'off' || (this.#mode === 'errors' && call.code === 0)) return false;
    const line = lineOf(call, elapsedMs);
    if (call.code === Code.internal) this.#logger.error(line, 'call');
    else this.#logger.info(line, 'call');
    return true;
  }
}

interface AccessLine {
  trace_id: string;
  way: string;
  outcome: 'ok' | 'error' | 'cancelled';
  code: number;
  name: string;
  agent: string | null;
  /** Only when the name is nobody's: otherwise `capability` says it. */
  asked?: string;
  capability: string | null;
  version: string | null;
  provider: string | null;
  status: number;
  elapsed_ms: number;
  attempts: number;
  degraded?: true;
  detail?: string;
}

function lineOf(call: Call, elapsedMs: number): AccessLine {
  const last = call.attempts[call.attempts.length - 1];
  const served = call.staticBody === null ? (call.chosen ?? last?.candidate ?? null) : null;
  const line: AccessLine = {
    trace_id: call.traceId,
    way: call.way,
    outcome: call.code === 0 ? 'ok' : call.code === Code.cancelled ? 'cancelled' : 'error',
    code: call.code,
    name: codeEntry(call.code).name,
    agent: call.principal === null ? null : printableId(call.principal.agent),
    capability: call.capability === null ? null : printableId(call.capability.name),
    version: served === null ? null : served.version.text,
    provider: served === null ? null : printableId(served.provider.agentId),
    status: call.status,
    elapsed_ms: Math.round(elapsedMs * 1_000) / 1_000,
    attempts: call.attempts.length,
  };
  if (call.capability === null) line.asked = printable(call.asked, MAX_ASKED_CHARS);
  if (call.degraded) line.degraded = true;
  // What others have said stands in quotes, and goes: a provider may repeat in its error what it was asked with.
  if (call.code !== 0) line.detail = printable(scrubbed(detailOf(call)));
  return line;
}
