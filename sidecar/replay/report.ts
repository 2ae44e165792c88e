/** What a replay came to, for people and as JSON. */
import type { Decision } from '../record/shapes.ts';
import { DIFFERENCES } from './comparison.ts';
import type { CallOutcome, ReplayReport } from './replay.ts';
import type { SendReport } from './send.ts';
import { REPLAY_MISS } from '../transports/recorded-mock.ts';

/** Calls that are listed one by one; the sums count all. */
const LISTED = 50;
export const BREAKERS = 'breakers are judged from the recorded contents of their windows';

export function linesOf(report: ReplayReport): string[] {
  const { sums } = report;
  const lines: string[] = [];
  const broken = report.calls.find((one) => one.broken !== null);
  if (broken !== undefined)
    lines.push(
      `NOT IDENTICAL: ${sums.broken} of ${sums.calls} calls are not decided as they were recorded, though nothing is changed.`,
      `  the first, call ${broken.number}: ${broken.broken}`,
      '  What a changed setting would do cannot be told for these; nothing about them is counted below.',
      '',
    );
  lines.push(
    `${sums.calls} calls: ${sums.identical} are decided as they were recorded, bit by bit${sums.unfit > 0 ? `; ${sums.unfit} cannot be decided anew` : ''}`,
  );
  for (const [why, count] of report.unfit) lines.push(`  ${count}: ${why}`);
  for (const remark of report.remarks) lines.push(`  ${remark}`);
  if (report.changes.words.length === 0) return lines;
  lines.push('', `With ${report.changes.words.join(' ')} (${BREAKERS}):`);
  for (const words of report.withoutEffect) lines.push(`  ${words}`);
  lines.push(`  ${sums.same} the same, ${sums.different} different, ${sums.undecided} undecided (${REPLAY_MISS})`);
  for (const kind of DIFFERENCES)
    if (sums.by[kind] > 0)
      lines.push(
        `  ${String(sums.by[kind]).padStart(7)} with other ${kind === 'code' ? 'codes' : kind === 'provider' ? 'providers' : kind === 'version' ? 'capabilities or versions' : kind}`,
      );
  const listed = report.calls.filter((one) => one.differences.length > 0 || one.miss !== null);
  for (const one of listed.slice(0, LISTED)) lines.push(wordsOf(one));
  if (listed.length > LISTED) lines.push(`  and ${listed.length - LISTED} more (--json lists all, --call N shows one)`);
  return lines;
}

function wordsOf({ number, record, changed, differences, miss, moved }: CallOutcome): string {
  const head = `  call ${number} ${record.asked}${record.caller === null ? '' : ` by ${record.caller.agent}`}:`;
  if (miss !== null) return `${head} ${REPLAY_MISS}: ${miss.what}: asked ${miss.asked}; recorded: ${miss.recorded}`;
  const aside = moved === 0 ? '' : ` (with ${moved === 1 ? 'an answer' : `${moved} answers`} recorded in another attempt)`;
  return `${head} ${briefly(record.decision)} → ${changed === null ? '-' : briefly(changed)}${aside} [${differences.join(', ')}]`;
}

function briefly({ code, provider, attempts }: Decision): string {
  const tried = attempts.map((each) => each.provider).join(', ');
  if (code === 0)
    return provider === null
      ? 'a fallback text'
      : `${provider}${attempts.length > 1 ? ` after ${attempts.length} attempts (${tried})` : ''}`;
  return `code ${code}${tried === '' ? '' : ` after ${tried}`}`;
}

/** Both decisions of one call, side by side. */
export function sideBySide(one: CallOutcome, columns: number): string[] {
  const now = one.changed ?? one.soFar ?? one.record.decision;
  const half = Math.max(30, Math.floor((columns - 3) / 2));
  const lines = [`call ${one.number}, trace ${one.record.trace_id}: ${one.record.asked}`, ''];
  const left = ['recorded', ...traceWords(one.record.decision)];
  const right = [one.changed === null && one.soFar !== null ? 'now, as far as it could be decided' : 'now', ...traceWords(now)];
  for (let i = 0; i < Math.max(left.length, right.length); i++) {
    const [a, b] = [wrapped(left[i] ?? '', half), wrapped(right[i] ?? '', half)];
    const isSame = withoutTime(left[i]) === withoutTime(right[i]);
    for (let row = 0; row < Math.max(a.length, b.length); row++)
      lines.push(`${(a[row] ?? '').padEnd(half)} ${row === 0 && !isSame && i > 0 ? '≠' : ' '} ${b[row] ?? ''}`.trimEnd());
  }
  if (one.broken !== null) lines.push('', `NOT IDENTICAL although nothing is changed: ${one.broken}`);
  if (one.miss !== null) lines.push('', `${REPLAY_MISS}: ${one.miss.what}: asked ${one.miss.asked}; recorded: ${one.miss.recorded}`);
  return lines;
}

function traceWords({ trace, code, provider }: Decision): string[] {
  return [
    ...trace.map((line) => `${String(line.at_ms).padStart(9)} ${line.stage}.${line.reason}: ${line.words}`),
    `          → ${code === 0 ? `ok, by ${provider ?? 'nobody'}` : `code ${code}`}`,
  ];
}

function withoutTime(line: string | undefined): string {
  return (line ?? '').slice(10);
}

function wrapped(text: string, width: number): string[] {
  const rows: string[] = [];
  for (let at = 0; at < text.length || rows.length === 0; at += width) rows.push(text.slice(at, at + width));
  return rows;
}

export function jsonOf(report: ReplayReport): object {
  return {
    ...report.sums,
    changes: report.changes.words,
    breakers: BREAKERS,
    not_replayed: Object.fromEntries(report.unfit),
    remarks: report.remarks,
    without_effect: report.withoutEffect,
    first_not_identical: report.calls.find((one) => one.broken !== null)?.broken ?? null,
    listed: report.calls.filter((one) => one.broken !== null || one.differences.length > 0 || one.miss !== null).map(callJson),
  };
}

export function callJson({ number, record, broken, changed, differences, miss, moved }: CallOutcome): object {
  return {
    call: number,
    trace_id: record.trace_id,
    asked: record.asked,
    caller: record.caller?.agent ?? null,
    broken,
    differences,
    miss: miss === null ? null : { kind: REPLAY_MISS, ...miss },
    moved,
    recorded: record.decision,
    now: changed,
  };
}

export function sendLines({ target, sent, notSent, left, remarks }: SendReport): string[] {
  const misses = sent.filter(({ miss }) => miss !== null);
  const different = sent.filter(({ diff }) => diff.length > 0);
  const partly = sent.filter(({ notCompared }) => notCompared.length > 0);
  const lines = [
    `${sent.length} requests sent to ${target}: ${sent.length - misses.length - different.length} answered as they were recorded, ${different.length} otherwise, ${misses.length} ${REPLAY_MISS}`,
  ];
  if (notSent > 0) lines.push(`  ${notSent} not sent: nobody had been asked, or what is needed for it is not kept`);
  if (left > 0) lines.push(`  ${left} recorded answers were not asked for`);
  if (partly.length > 0) {
    const places = new Map<string, number>();
    for (const { notCompared } of partly) for (const place of notCompared) places.set(place, (places.get(place) ?? 0) + 1);
    lines.push(
      `  ${partly.length} were compared in part only, since these are not kept: ${[...places]
        .slice(0, 10)
        .map(([place, count]) => `${place} (${count})`)
        .join(', ')}`,
    );
  }
  for (const remark of remarks) lines.push(`  ${remark}`);
  for (const { number, asked, miss, diff } of [...misses, ...different].slice(0, LISTED))
    lines.push(`  call ${number} ${asked}: ${miss === null ? diff.join('; ') : `${REPLAY_MISS}: ${miss}`}`);
  return lines;
}

export function sendJson({ target, sent, notSent, left, remarks }: SendReport): object {
  return {
    target,
    sent: sent.length,
    same: sent.filter(({ diff, miss }) => diff.length === 0 && miss === null).length,
    different: sent.filter(({ diff }) => diff.length > 0).length,
    misses: sent.filter(({ miss }) => miss !== null).length,
    not_sent: notSent,
    not_asked_for: left,
    remarks,
    listed: sent
      .filter(({ diff, miss, notCompared }) => diff.length > 0 || miss !== null || notCompared.length > 0)
      .map(({ number, asked, traceId, code, diff, miss, notCompared }) => ({
        call: number,
        trace_id: traceId,
        asked,
        code,
        diff,
        miss: miss === null ? null : { kind: REPLAY_MISS, why: miss },
        not_compared: notCompared,
      })),
  };
}
