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
import { isSandbox } from '../call/sandbox.ts';
import { notPlain } from './not-plain.ts';

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

/** The words are those of spans (proto/wire/spans.ts), so that what is found in one can be looked for in the other. */
interface AccessLine {
  trace_id: string;
  /** '' = no traces are made. */
  span_id: string;
  stage: 'outbound' | 'inbound';
  way: string;
  outcome: 'ok' | 'error' | 'cancelled';
  code: number;
  name: string;
  caller: string | null;
  /** Only when the name is nobody's: otherwise `capability` says it. */
  asked?: string;
  capability: string | null;
  version: string | null;
  provider: string | null;
  status: number;
  elapsed_ms: number;
  attempts: number;
  degraded?: true;
  replay?: true;
  /** A mock answered, and no agent. */
  sandbox?: true;
  /** What was not the plain path. */
  why?: string;
  /** Of what failed. */
  detail?: string;
}

function lineOf(call: Call, elapsedMs: number): AccessLine {
  const last = call.attempts[call.attempts.length - 1];
  const served = call.staticBody === null ? (call.chosen ?? last?.candidate ?? null) : null;
  const { replay } = call;
  const line: AccessLine = {
    trace_id: call.traceId,
    span_id: call.spanId,
    stage: call.isInbound ? 'inbound' : 'outbound',
    way: call.way,
    outcome: call.code === 0 ? 'ok' : call.code === Code.cancelled ? 'cancelled' : 'error',
    code: call.code,
    name: codeEntry(call.code).name,
    caller: call.principal === null ? null : printableId(call.principal.agent),
    capability: call.capability === null ? null : printableId(call.capability.name),
    version: served === null ? (replay?.version ?? null) : served.version.text,
    provider: served === null ? (replay === null ? null : printableId(replay.provider)) : printableId(served.provider.agentId),
    status: call.status,
    elapsed_ms: Math.round(elapsedMs * 1_000) / 1_000,
    attempts: call.attempts.length,
  };
  if (call.capability === null) line.asked = printable(call.asked, MAX_ASKED_CHARS);
  if (call.degraded) line.degraded = true;
  if (replay !== null) line.replay = true;
  if (isSandbox(call)) line.sandbox = true;
  const why = notPlain(call);
  if (why !== '') line.why = why;
  // What others have said stands in quotes, and goes: a provider may repeat in its error what it was asked with.
  if (call.code !== 0) line.detail = printable(scrubbed(detailOf(call)));
  return line;
}
