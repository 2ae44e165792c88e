/** What was decided about a call, in the form that is written down and compared. */
import { scrubbed } from '../../base/redact.ts';
import type { TraceLine } from '../../proto/wire/trace-line.ts';
import type { Attempt } from '../call/attempt-record.ts';
import type { Call } from '../call/call.ts';
import { PACKED_WIDTH, type PackedLine } from '../call/trace.ts';
import { type Arg, type Reason, Verdict, wordsOf } from '../call/verdict.ts';
import { askedName, keptWords } from './kept.ts';
import type { AttemptRecord, Decision } from './shapes.ts';

/** Lines of a trace that are kept. */
const MAX_LINES = 200;

const cells: PackedLine[] = [];

export function verdictsOf(call: Call): Verdict[] {
  const count = call.trace.pack(cells, MAX_LINES);
  const verdicts: Verdict[] = [];
  for (let i = 0, at = 0; i < count; i++, at += PACKED_WIDTH) verdicts.push(verdictAt(at, cells[at + 1] as Reason));
  return verdicts;
}

/** @param scrubs words are rid of what may be quoted in them; not so where they were rid of it before (replay) */
export function decisionOf(call: Call, scrubs: boolean): Decision {
  const isAnswered = call.code === 0 && call.staticBody === null;
  const chosen = isAnswered ? call.chosen : null;
  return {
    code: call.code,
    status: call.status,
    capability: call.capability?.name ?? null,
    provider: call.replay?.provider ?? chosen?.provider.agentId ?? null,
    version: call.replay?.version ?? chosen?.version.text ?? null,
    degraded: call.degraded,
    retry_after_ms: call.retryAfterMs,
    attempts: call.attempts.map((attempt) => attemptOf(attempt, scrubs)),
    trace: traceOf(call, scrubs),
  };
}

function attemptOf(attempt: Attempt, scrubs: boolean): AttemptRecord {
  const { candidate, atMs, elapsedMs, code, status, started, detail } = attempt;
  return {
    provider: candidate.provider.agentId,
    capability: candidate.version.capability.name,
    version: candidate.version.text,
    at_ms: atMs,
    elapsed_ms: elapsedMs,
    code,
    status,
    started,
    detail: scrubs && detail !== '' ? scrubbed(detail) : detail,
  };
}

function traceOf(call: Call, scrubs: boolean): TraceLine[] {
  const isNameKept = !scrubs || askedName(call.asked, call.capability !== null) !== null;
  const count = call.trace.pack(cells, MAX_LINES);
  const lines: TraceLine[] = [];
  for (let i = 0, at = 0; i < count; i++, at += PACKED_WIDTH) {
    const reason = cells[at + 1] as Reason;
    lines.push({
      at_ms: Math.round((cells[at] as number) * 1000) / 1000,
      stage: reason.stage,
      reason: reason.name,
      code: reason.code,
      words: scrubs
        ? keptWords(verdictAt(at, reason), isNameKept)
        : wordsOf(reason, cells[at + 2] as Arg, cells[at + 3] as Arg, cells[at + 4] as Arg),
    });
  }
  return lines;
}

function verdictAt(at: number, reason: Reason): Verdict {
  return new Verdict(reason, cells[at + 2] as Arg, cells[at + 3] as Arg, cells[at + 4] as Arg);
}
