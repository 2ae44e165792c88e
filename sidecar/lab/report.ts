/** How a run is told: a table for people, one plain object for programs. Nothing in it depends on the machine it ran on. */
import { formatDuration } from '../../base/duration.ts';
import { codeEntry } from '../../proto/wire/codes.ts';
import type { Failure, RunReport, StepReport } from './run.ts';
import type { CallStep } from './scenario.ts';
import type { Tally } from './tally.ts';
import type { Move } from './world.ts';

const TIME_WIDTH = 9;
const NUMBER_WIDTH = 4;
const WHAT_WIDTH = 58;

/** Lines for a terminal. */
export function tableOf(report: RunReport): string[] {
  const { scenario, tally } = report;
  const lines = [`${scenario.name}   (${scenario.file}, seed ${scenario.seed})`];
  if (scenario.description !== '') for (const line of scenario.description.trim().split('\n')) lines.push(`  ${line}`);
  lines.push(`${'time'.padStart(TIME_WIDTH)} ${'step'.padStart(NUMBER_WIDTH)}  ${'what'.padEnd(WHAT_WIDTH)}  outcome`);
  let move = 0;
  const tellMoves = (until: number): void => {
    for (; move < report.moves.length && (report.moves[move] as Move).atMs < until; move++)
      lines.push(moveLine(report.moves[move] as Move));
  };
  for (const step of report.steps) {
    tellMoves(step.beganAtMs);
    lines.push(stepLine(step));
    if (step.step.note !== '') lines.push(`${' '.repeat(TIME_WIDTH + NUMBER_WIDTH + 3)}${step.step.note}`);
  }
  tellMoves(Number.POSITIVE_INFINITY);
  report.failures.forEach((failure, i) => {
    // One decision is told once, after everything that is wrong with its call.
    const next = report.failures[i + 1];
    lines.push(...failureLines(failure, scenario.file, next === undefined || next.step !== failure.step || next.call !== failure.call));
  });
  const served = [...report.executions].map(([agent, n]) => `${agent} ${n}`).join(', ');
  lines.push(
    `  ${tally.calls} calls in ${clockText(report.virtualMs)} of virtual time: ${codesText(tally)}; ${tally.attempts} attempts, ${tally.retries} retries, ${tally.fallbacks} fallbacks; executions: ${served === '' ? 'none' : served}`,
  );
  lines.push(
    report.ok
      ? '  PASS: every expectation holds'
      : `  FAIL: ${report.failures.length} expectation${report.failures.length === 1 ? ' does' : 's do'} not hold`,
  );
  return lines;
}

function moveLine(move: Move): string {
  return `${clockText(move.atMs).padStart(TIME_WIDTH)} ${''.padStart(NUMBER_WIDTH)}  ${`· breaker ${move.cell}: ${move.from} → ${move.to}`.padEnd(WHAT_WIDTH)}  ${move.why}`;
}

function stepLine(report: StepReport): string {
  const { step, tally } = report;
  const label = step.label === null ? '' : ` [${step.label}]`;
  return `${clockText(report.beganAtMs).padStart(TIME_WIDTH)} ${String(step.number).padStart(NUMBER_WIDTH)}  ${(whatOf(report) + label).padEnd(WHAT_WIDTH)}  ${tally === null ? (report.isGood ? '' : 'FAILED') : `${codesText(tally)}${timesText(tally)}${report.isGood ? '' : '  FAILED'}`}`.trimEnd();
}

function whatOf(report: StepReport): string {
  const { step } = report;
  switch (step.kind) {
    case 'call':
      return callWords(step);
    case 'table':
      return step.words;
    case 'wait':
      return `wait ${formatDuration(step.ms)}`;
    case 'check':
      return 'check';
  }
}

function callWords(step: CallStep): string {
  const how =
    step.everyMs === null
      ? step.parallel > 1
        ? `, ${Math.min(step.parallel, step.times)} at a time`
        : ''
      : `, ${step.parallel > 1 ? `${step.parallel} ` : ''}every ${formatDuration(step.everyMs)}`;
  return `${step.stream ? 'stream' : 'call'} ${step.asked}${step.times > 1 ? ` × ${step.times}` : ''}${step.times > 1 ? how : ''} as ${step.caller}`;
}

function codesText(tally: Tally): string {
  if (tally.calls === 0) return 'no calls';
  return [...tally.byCode]
    .sort(([a], [b]) => a - b)
    .map(([code, n]) => `${n} ${codeEntry(code).name}`)
    .join(', ');
}

function timesText(tally: Tally): string {
  if (tally.calls === 0) return '';
  const mean = round(tally.elapsedMs / tally.calls);
  return tally.calls === 1 ? ` in ${mean} ms` : `; ${mean} ms each, at most ${round(tally.longestMs)} ms`;
}

function failureLines(failure: Failure, file: string, withDecision: boolean): string[] {
  const where = failure.step === null ? 'the whole run' : `step ${failure.step} (${file}:${failure.line})`;
  const which = failure.call === null ? '' : `, call ${failure.call}${failure.times > 1 ? ` and ${failure.times - 1} more` : ''}`;
  const lines = [`  ✗ ${where}${which}: ${failure.what}`];
  if (failure.decision !== null && withDecision) {
    lines.push(`      what was decided about call ${failure.call ?? 0}:`);
    for (const line of failure.decision)
      lines.push(`      ${`${round(line.at_ms)} ms`.padStart(TIME_WIDTH)}  ${`${line.stage}.${line.reason}`.padEnd(26)}  ${line.words}`);
  }
  return lines;
}

function round(ms: number): number {
  return Math.round(ms * 10) / 10;
}

/** `850ms`, `12.5s`, `2m 05s`, `1h 00m`. */
function clockText(ms: number): string {
  if (ms < 1_000) return `${round(ms)}ms`;
  if (ms < 60_000) return `${Number((ms / 1_000).toFixed(2))}s`;
  const seconds = Math.floor(ms / 1_000);
  if (seconds < 3_600) return `${Math.floor(seconds / 60)}m ${pad(seconds % 60)}s`;
  return `${Math.floor(seconds / 3_600)}h ${pad(Math.floor((seconds % 3_600) / 60))}m`;
}

function pad(value: number): string {
  return String(value).padStart(2, '0');
}

/** For `--json`. */
export function jsonOf(report: RunReport): Record<string, unknown> {
  const { scenario, tally } = report;
  return {
    scenario: scenario.name,
    file: scenario.file,
    seed: scenario.seed,
    ok: report.ok,
    virtual_ms: round(report.virtualMs),
    ...talliedJson(tally),
    executions: Object.fromEntries(report.executions),
    steps: report.steps.map((step) => ({
      step: step.step.number,
      line: step.step.line,
      label: step.step.label,
      at_ms: round(step.beganAtMs),
      ended_ms: round(step.endedAtMs),
      what: whatOf(step),
      ok: step.isGood,
      ...(step.tally === null
        ? {}
        : {
            ...talliedJson(step.tally),
            providers: Object.fromEntries(step.tally.byProvider),
            versions: Object.fromEntries(step.tally.byVersion),
            longest_ms: round(step.tally.longestMs),
          }),
    })),
    breakers: report.moves.map((move) => ({ at_ms: round(move.atMs), of: move.cell, from: move.from, to: move.to, why: move.why })),
    failures: report.failures.map((failure) => ({
      step: failure.step,
      line: failure.line,
      what: failure.what,
      times: failure.times,
      call: failure.call,
      decision:
        failure.decision === null
          ? null
          : failure.decision.map((line) => ({
              at_ms: line.at_ms,
              stage: line.stage,
              reason: line.reason,
              code: line.code,
              words: line.words,
            })),
    })),
  };
}

function talliedJson(tally: Tally): Record<string, unknown> {
  return {
    calls: tally.calls,
    succeeded: tally.succeeded,
    codes: Object.fromEntries(tally.byCode),
    attempts: tally.attempts,
    retries: tally.retries,
    fallbacks: tally.fallbacks,
  };
}
