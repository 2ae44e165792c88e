/** How a run is told: a table for people, one plain object for programs. Nothing in it depends on the machine it ran on. */
import { formatDuration } from '../../base/duration.ts';
import { codeEntry } from '../../proto/wire/codes.ts';
import { type Durations, QUANTILES } from './durations.ts';
import type { Failure, RunReport } from './run.ts';
import type { CallStep, Fate, Scenario, SendStep } from './scenario.ts';
import type { StepReport } from './step-runs.ts';
import type { Tally } from './tally.ts';
import type { Move } from './world.ts';

const TIME_WIDTH = 9;
const NUMBER_WIDTH = 4;
const WHAT_WIDTH = 58;

/** Lines for a terminal. @param withSteps false = only what does not hold */
export function tableOf(report: RunReport, withSteps = true): string[] {
  const { scenario, tally } = report;
  const lines = [`${titleOf(scenario)}   (${scenario.file}, seed ${scenario.seed})`];
  if (scenario.description !== '') for (const line of scenario.description.trim().split('\n')) lines.push(`  ${line}`);
  if (!withSteps) {
    lines.push(...failuresOf(report), endLine(report));
    return lines;
  }
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
  lines.push(...failuresOf(report));
  if (report.messages.size > 0) lines.push(`  messages: ${fatesText(report.messages)}`);
  for (const [name, ms] of report.figures) lines.push(`  ${name}: ${formatDuration(ms)}`);
  const served = [...report.executions].map(([agent, n]) => `${agent} ${n}`).join(', ');
  lines.push(
    `  ${tally.calls} calls in ${clockText(report.virtualMs)} of virtual time: ${codesText(tally)}; ${tally.attempts} attempts, ${tally.retries} retries, ${tally.fallbacks} fallbacks${report.agentCalls === 0 ? '' : `; ${report.agentCalls} calls of agents`}; executions: ${served === '' ? 'none' : served}`,
  );
  lines.push(endLine(report));
  return lines;
}

function failuresOf({ failures, scenario }: RunReport): string[] {
  return failures.flatMap((failure, i) => {
    // One decision is told once, after everything that is wrong with its call.
    const next = failures[i + 1];
    return failureLines(
      failure,
      scenario.file,
      next === undefined || next.step !== failure.step || next.call !== failure.call || next.callOf !== failure.callOf,
    );
  });
}

function endLine({ ok, failures }: RunReport): string {
  return ok
    ? '  PASS: every expectation holds'
    : `  FAIL: ${failures.length} expectation${failures.length === 1 ? ' does' : 's do'} not hold`;
}

function moveLine(move: Move): string {
  return `${clockText(move.atMs).padStart(TIME_WIDTH)} ${''.padStart(NUMBER_WIDTH)}  ${`· breaker ${move.cell}: ${move.from} → ${move.to}`.padEnd(WHAT_WIDTH)}  ${move.why}`;
}

/** The name of a scenario, with that of its variant. */
export function titleOf({ name, variant }: Scenario): string {
  return variant === null ? name : `${name} [${variant}]`;
}

function stepLine(report: StepReport): string {
  const { step } = report;
  const label = step.label === null ? '' : ` [${step.label}]`;
  const outcome = outcomeText(report);
  const failed = report.isGood ? '' : outcome === '' ? 'FAILED' : '  FAILED';
  return `${clockText(report.beganAtMs).padStart(TIME_WIDTH)} ${String(step.number).padStart(NUMBER_WIDTH)}  ${(whatOf(report) + label).padEnd(WHAT_WIDTH)}  ${outcome}${failed}`.trimEnd();
}

function outcomeText({ tally, fates, times }: StepReport): string {
  if (tally !== null) return `${codesText(tally)}${tally.calls === 0 ? '' : timesText(tally.times)}`;
  if (fates !== null && times !== null) return `${fatesText(fates)}${times.count === 0 ? '' : timesText(times)}`;
  return '';
}

export function fatesText(fates: ReadonlyMap<Fate, number>): string {
  return fates.size === 0 ? 'no messages' : [...fates].map(([fate, n]) => `${n} ${fate}`).join(', ');
}

function whatOf(report: StepReport): string {
  const { step } = report;
  switch (step.kind) {
    case 'call':
      return callWords(step);
    case 'send':
      return sendWords(step);
    case 'table':
      return step.words;
    case 'wait':
      return `wait ${formatDuration(step.ms)}`;
    case 'check':
      return 'check';
  }
}

function callWords(step: CallStep): string {
  return `${step.stream ? 'stream' : 'call'} ${step.asked.join(' | ')}${trafficWords(step)}`;
}

function sendWords(step: SendStep): string {
  const whom = step.asked ?? (step.role === null ? step.agent : `role ${step.role}`);
  return `send ${whom}${step.copies > 1 ? ` (${step.copies} copies each)` : ''}${trafficWords(step)}`;
}

function trafficWords({ load, times, everyMs, parallel, callers }: CallStep | SendStep): string {
  const who = callers.length === 1 ? ` as ${callers[0]}` : ` as ${callers.length} callers`;
  if (load !== null) return ` × about ${times} in ${formatDuration(load.totalMs)}, ${load.spread}${who}`;
  if (times === 1) return who;
  const how =
    everyMs === null
      ? parallel > 1
        ? `, ${Math.min(parallel, times)} at a time`
        : ''
      : `, ${parallel > 1 ? `${parallel} ` : ''}every ${formatDuration(everyMs)}`;
  return ` × ${times}${how}${who}`;
}

export function codesText(tally: Tally): string {
  if (tally.calls === 0) return 'no calls';
  return [...tally.byCode]
    .sort(([a], [b]) => a - b)
    .map(([code, n]) => `${n} ${codeEntry(code).name}`)
    .join(', ');
}

/** From this many calls on a percentile says something. */
const ENOUGH = 20;

function timesText(times: Durations): string {
  const mean = round(times.at('mean'));
  if (times.count === 1) return ` in ${mean} ms`;
  const p95 = times.count < ENOUGH ? '' : ` p95 ${round(times.at('p95'))} ms,`;
  return `;${p95} ${mean} ms each, at most ${round(times.mostMs)} ms`;
}

export function failureLines(failure: Failure, file: string, withDecision: boolean): string[] {
  const where = failure.step === null ? 'the whole run' : `step ${failure.step} (${file}:${failure.line})`;
  const isOwn = failure.call !== null && failure.callOf === null;
  const which = isOwn ? `, call ${failure.call}${failure.times > 1 ? ` and ${failure.times - 1} more` : ''}` : '';
  const lines = [`  ✗ ${where}${which}: ${failure.what}`];
  if (failure.decision !== null && withDecision) {
    const of = failure.callOf === null ? '' : ` of step ${failure.callOf}, for example`;
    lines.push(`      what was decided about call ${failure.call ?? 0}${of}:`);
    for (const line of failure.decision)
      lines.push(`      ${`${round(line.at_ms)} ms`.padStart(TIME_WIDTH)}  ${`${line.stage}.${line.reason}`.padEnd(26)}  ${line.words}`);
  }
  return lines;
}

function round(ms: number): number {
  return Math.round(ms * 10) / 10;
}

/** `850ms`, `12.5s`, `2m 05s`, `1h 00m`. */
export function clockText(ms: number): string {
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
    variant: scenario.variant,
    sandbox: true,
    file: scenario.file,
    seed: scenario.seed,
    ok: report.ok,
    virtual_ms: round(report.virtualMs),
    ...talliedJson(tally),
    executions: Object.fromEntries(report.executions),
    agent_calls: report.agentCalls,
    messages: Object.fromEntries(report.messages),
    figures: Object.fromEntries(report.figures),
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
            longest_ms: round(step.tally.times.mostMs),
          }),
      ...(step.fates === null ? {} : { messages: Object.fromEntries(step.fates) }),
      ...(step.times === null || step.times.count === 0 ? {} : { latency_ms: quantilesJson(step.times) }),
    })),
    breakers: report.moves.map((move) => ({ at_ms: round(move.atMs), of: move.cell, from: move.from, to: move.to, why: move.why })),
    failures: report.failures.map((failure) => ({
      step: failure.step,
      line: failure.line,
      what: failure.what,
      times: failure.times,
      call: failure.call,
      call_of: failure.callOf,
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

function quantilesJson(times: Durations): Record<string, number> {
  return Object.fromEntries(QUANTILES.map((quantile) => [quantile, round(times.at(quantile))]));
}
