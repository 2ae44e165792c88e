/**
 * The standalone table: one file, read at start and again whenever it changes. A bad edit changes nothing: the table in
 * force stays, and the refusal is kept for health and log with file, line and column. The file is looked at a few times a
 * second rather than watched: renames, new inodes and network disks then need no special case. A file that is being
 * written is read when it has stood still for a moment, since the first half of a table is often a table too.
 */
import { readFileSync, statSync } from 'node:fs';
import type { Clock, Timer } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import { readTable } from '../../proto/language/document.ts';
import { lintRules } from '../../proto/language/rule-lint.ts';
import type { Rule } from '../../proto/language/rule.ts';
import type { Problem, TableDocument } from '../../proto/language/types.ts';
import type { LastGood } from './last-good.ts';

const LOOK_EVERY_MS = 200;
/** A changed file is read when it has not changed again for so long. */
const STILL_MS = 50;

/** How the table is read out of the text: the file may hold the sidecar's own settings too. */
export type TableReader = (text: string, fileName: string) => { document: TableDocument } | { problems: readonly Problem[] };

/** Where what was read goes: the table itself, or whatever else is made of the file. */
export interface TableSink {
  /** Something was taken already. */
  readonly ready: boolean;
  staleBecause: string;
  problems: readonly Problem[];
  install(document: TableDocument, source: string): { readonly version: number };
  refuse(problems: readonly Problem[], why: string): void;
}

export class FileTable {
  readonly #file: string;
  readonly #shownName: string;
  readonly #table: TableSink;
  readonly #lastGood: LastGood | null;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #read: TableReader;
  readonly #fixedText: string | null;
  #seen = '';
  /** The stamp of a change that is not read yet; '' = none. */
  #fresh = '';
  #timer: Timer | null = null;

  /** @param fixedText what the file would hold, when there is none: it is read once. */
  constructor(
    file: string,
    shownName: string,
    table: TableSink,
    lastGood: LastGood | null,
    clock: Clock,
    log: Logger,
    read: TableReader = readTable,
    fixedText: string | null = null,
  ) {
    this.#file = file;
    this.#shownName = shownName;
    this.#table = table;
    this.#lastGood = lastGood;
    this.#clock = clock;
    this.#log = log;
    this.#read = read;
    this.#fixedText = fixedText;
  }

  /** Loads the file (or, when it is bad, the last good copy) and keeps looking at it until `stop`. */
  start(): void {
    this.#seen = this.#stamp();
    this.#load();
    if (!this.#table.ready) this.#startFromLastGood();
    if (this.#fixedText === null) this.#schedule();
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = null;
  }

  #schedule(): void {
    this.#timer = this.#clock.after(this.#fresh === '' ? LOOK_EVERY_MS : STILL_MS, () => {
      this.#look();
      this.#schedule();
    });
  }

  #look(): void {
    const stamp = this.#stamp();
    if (stamp !== this.#seen && stamp !== this.#fresh) {
      this.#fresh = stamp;
      return;
    }
    this.#fresh = '';
    if (stamp === this.#seen) return;
    this.#seen = stamp;
    this.#load();
  }

  #load(): void {
    let text: string;
    try {
      text = this.#fixedText ?? readFileSync(this.#file, 'utf8');
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code ?? 'error';
      this.#refuse([{ file: this.#shownName, line: 0, column: 0, path: '', message: `cannot be read (${code})` }]);
      return;
    }
    this.#take(text);
  }

  #take(text: string): void {
    const reading = this.#read(text, this.#shownName);
    if ('problems' in reading) {
      this.#refuse(reading.problems);
      return;
    }
    const { rules } = reading.document;
    if (rules !== undefined) this.#tellOfRules(rules);
    const snapshot = this.#table.install(reading.document, 'file');
    this.#log.info({ table: snapshot.version, file: this.#shownName }, 'table installed');
    const trouble = this.#lastGood?.keep(text) ?? null;
    if (trouble !== null) this.#log.warn(trouble);
  }

  /** Whoever writes rules here expects something of them. */
  #tellOfRules(rules: readonly Rule[]): void {
    this.#log.warn(
      { rules: rules.length, file: this.#shownName },
      'rules are for messages, which need NATS: in this file they are looked through and used for nothing; apply them with reachctl apply',
    );
    for (const { rule, kind, words } of lintRules(rules, null, null)) this.#log.warn({ rule, file: this.#shownName }, `${kind}: ${words}`);
  }

  #refuse(problems: readonly Problem[]): void {
    this.#table.refuse(
      problems,
      `the newest ${this.#shownName} was refused: ${problems.length} problem${problems.length === 1 ? '' : 's'}`,
    );
    this.#log.error({ problems: problems.slice(0, 10).map(wordsOfProblem) }, 'table refused; the one in force stays');
  }

  #startFromLastGood(): void {
    const text = this.#lastGood?.read() ?? null;
    if (text === null) return;
    const reading = this.#read(text, 'last good copy');
    if ('problems' in reading) return;
    const why = this.#table.staleBecause;
    const problems = this.#table.problems;
    this.#table.install(reading.document, 'last good copy');
    this.#table.staleBecause = why;
    this.#table.problems = problems;
    this.#log.warn({ file: this.#lastGood?.file }, 'started from the last good table');
  }

  /** Changes whenever the file's content may have changed; 'absent' when there is none. */
  #stamp(): string {
    try {
      const stat = statSync(this.#file, { bigint: true });
      return `${stat.ino} ${stat.size} ${stat.mtimeNs} ${stat.ctimeNs}`;
    } catch {
      return 'absent';
    }
  }
}

/** `team.yaml:12:5 /contracts/0/acl: …` */
export function wordsOfProblem(problem: Problem): string {
  const place = problem.line > 0 ? `:${problem.line}:${problem.column}` : '';
  return `${problem.file}${place} ${problem.path === '' ? '' : `${problem.path}: `}${problem.message}`;
}
