/**
 * How much time there is. One total per task, handed on as what is left of it, so that no two clocks are ever compared:
 * the caller's `Reach-Deadline-Ms`, else the contract's deadline, else the shipped default. With step budgets a step may
 * use what is left minus the budgets of the later steps. A call that an agent makes for work under way here never gets more
 * than that work has left, whatever the agent says. Nothing that is over is sent to anybody.
 */
import { allowanceFrom } from '../../proto/wire/budget.ts';
import { parseDeadlineMs } from '../../proto/wire/deadline.ts';
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import type { Call } from '../call/call.ts';
import { passing, refusing, Verdict } from '../call/verdict.ts';
import type { Version } from '../table/snapshot.ts';

const given = passing('deadline', 'given', '{a} ms left of {b}, said by the caller');
const byContract = passing('deadline', 'by_contract', '{a} ms in all, by contract or policy');
const byWork = passing('deadline', 'by_work', '{a} ms left of the work that {b} is doing');
const step = passing('deadline', 'step', 'step {a} may use {b} of the {c} ms left');
const malformed = refusing('deadline', 'malformed', Code.invalid_request, '{a}');
const over = refusing(
  'deadline',
  'over',
  Code.deadline_exceeded,
  'no time was left when the call arrived ({a} ms); the provider was not contacted',
);
const noShare = refusing('deadline', 'no_share', Code.deadline_too_short, 'step {a} has no time: the {b} ms left belong to later steps');

export function deadline(call: Call, version: Version, maxMs: number): Verdict {
  const left = parseDeadlineMs('Reach-Deadline-Ms', call.headers[Header.deadlineMs], maxMs);
  if (typeof left === 'string') return new Verdict(malformed, left);
  const total = parseDeadlineMs('Reach-Deadline-Total-Ms', call.headers[Header.deadlineTotalMs], maxMs);
  if (typeof total === 'string') return new Verdict(malformed, total);
  // What was given first holds for the whole task: a fallback or another version brings no time of its own.
  const asked = left ?? total ?? (call.totalMs > 0 ? call.totalMs : Math.min(version.settings.deadlineMs, maxMs));
  const { work } = call;
  const byWorkMs = work === null ? Number.POSITIVE_INFINITY : Math.max(0, work.endsAt - call.startedAt);
  const remaining = Math.min(asked, total ?? asked, byWorkMs);
  const isByWork = work !== null && remaining < asked;
  call.totalMs = Math.max(total ?? (isByWork ? work.totalMs : remaining), remaining);
  call.deadlineAt = call.startedAt + remaining;
  call.stepEndsAt = call.deadlineAt;
  const now = call.clock.now();
  if (now >= call.deadlineAt) return new Verdict(over, remaining);
  const allowance = allowanceFrom(call.headers[Header.budget], call.headers[Header.step], call.deadlineAt - now, maxMs);
  if (typeof allowance === 'string') return new Verdict(malformed, allowance);
  if (allowance !== null) {
    const name = String(call.headers[Header.step]);
    if (allowance <= 0) return new Verdict(noShare, name, call.deadlineAt - now);
    call.stepEndsAt = Math.min(call.deadlineAt, now + allowance);
    return new Verdict(step, name, allowance, call.deadlineAt - now);
  }
  if (isByWork) return new Verdict(byWork, remaining, work.agentId);
  return left === null && total === null ? new Verdict(byContract, remaining) : new Verdict(given, remaining, call.totalMs);
}
