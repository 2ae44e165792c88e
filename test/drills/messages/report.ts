/** What a drill says in the end: a table for people, one line of JSON for programs, and its evidence under `build/drill-<name>`. */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { REPO } from '../../support/paths.ts';
import type { KindFigures } from './judge.ts';
import type { Told } from './plan.ts';
import type { Stage } from './stage.ts';
import { KINDS } from './team.ts';

type Line = Readonly<Record<string, unknown>>;

/** @param told null = it did not come so far */
export function lineOf(stage: Stage, told: Told | null, more: Line): Line {
  return {
    drill: stage.name,
    ...told?.verdict.figures,
    ...(told === null
      ? null
      : { unanswered: told.submitter.unanswered, untold: told.untold, left: told.left?.messages ?? null, ghosts: ghostsOf(told) }),
    ...more,
    nats: stage.team.natsVersion,
  };
}

function ghostsOf({ left }: Told): number | null {
  return left === null ? null : Math.max(0, left.counted - left.messages);
}

const COLUMNS: readonly (readonly [string, keyof KindFigures])[] = [
  ['accepted', 'accepted'],
  ['done', 'done'],
  ['dead', 'dead'],
  ['in doubt', 'inDoubt'],
  ['failed', 'failed'],
  ['lost', 'lost'],
  ['replayed', 'replayed'],
  ['restarted', 'restarted'],
  ['interrupted', 'interrupted'],
];

export function tableOf({ verdict, submitter, settleMs }: Told): string {
  const rows = [
    ['kind', ...COLUMNS.map(([head]) => head)],
    ...KINDS.map((kind) => [kind, ...COLUMNS.map(([, field]) => String(verdict.kinds[kind][field]))]),
  ];
  const widths = (rows[0] as string[]).map((_, i) => Math.max(...rows.map((row) => (row[i] as string).length)));
  const table = rows.map((row) =>
    row.map((cell, i) => (i === 0 ? cell.padEnd(widths[i] as number) : cell.padStart(widths[i] as number))).join('  '),
  );
  const onDisk = submitter.accepted.filter(({ durable }) => durable === 'local-disk').length;
  const refusals = Object.entries(submitter.refusals).map(([code, count]) => `${count} × ${code}`);
  return [
    ...table,
    '',
    `${onDisk} were accepted onto a sender's disk; refused: ${refusals.join(', ') || 'none'}; not answered: ${submitter.unanswered}; settled after ${(settleMs / 1_000).toFixed(1)} s`,
    `${verdict.figures.under_way} were under way at ${verdict.strikes} faults, none at ${verdict.figures.idle_strikes} of them`,
  ].join('\n');
}

const SHORTENED = ['DRILL_COUNT', 'DRILL_ROLL'] as const;

/** Where its evidence is put, from the top of the tree. A drill that was made shorter leaves that of whole ones alone. */
export function evidenceOf(stage: Stage): string {
  return join('build', `drill-${stage.name}${SHORTENED.some((name) => process.env[name] !== undefined) ? '-short' : ''}`);
}

export function keep(stage: Stage, told: Told | null, problems: readonly string[], text: string, line: Line): void {
  const folder = join(REPO, evidenceOf(stage));
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  for (const [i, { name, pid, said }] of stage.team.logs().entries())
    writeFileSync(join(folder, `${String(i).padStart(2, '0')}-${name.replace(/[^a-z0-9.-]+/gi, '-')}-${pid}.log`), said);
  writeFileSync(join(folder, 'nats-server.log'), stage.team.registryLog());
  writeFileSync(join(folder, 'report.txt'), `${text}\n${JSON.stringify(line)}\n`);
  const facts = {
    faults: stage.faultsSeen,
    problems,
    verdict: told?.verdict ?? null,
    refusals: told?.submitter.refusals ?? null,
    left: told?.left ?? null,
  };
  writeFileSync(join(folder, 'facts.json'), JSON.stringify(facts, null, 2));
  if (told === null) return;
  writeFileSync(join(folder, 'accepted.jsonl'), lines(told.accepted));
  writeFileSync(join(folder, 'ends.jsonl'), lines(told.outcomes));
  writeFileSync(join(folder, 'written-by-workers.json'), JSON.stringify(told.counted));
}

function lines(all: readonly unknown[]): string {
  return all.map((one) => JSON.stringify(one)).join('\n');
}
