/**
 * `reach-sidecar replay REC`: 0 = every call is decided as it was recorded, and nothing that was changed or sent anew came out
 * otherwise; 1 = something did, or is undecided; 2 = it cannot be read; 3 = a recording does not replay identically to itself.
 */
import { readFileSync } from 'node:fs';
import { openRecording } from '../record/reading.ts';
import { NO_CHANGES, readChanges } from './changes.ts';
import { replay } from './replay.ts';
import { callJson, jsonOf, linesOf, sendJson, sendLines, sideBySide } from './report.ts';
import { sendToSandbox } from './send.ts';
import { sendToUrl } from './send-url.ts';

export interface ReplayCommand {
  readonly withFile: string | null;
  readonly sets: readonly string[];
  readonly json: boolean;
  /** Of `--limit`; null = all. */
  readonly limit: string | null;
  /** Of `--call`: one call, with both traces side by side. */
  readonly call: string | null;
  /** `sandbox`, or the address of one. */
  readonly send: string | null;
  /** What is shown at that address. */
  readonly token: string | null;
  readonly columns: number;
  readonly write: (line: string) => void;
}

const UNUSABLE = 2;
const NOT_IDENTICAL = 3;

/** The exit code. */
export async function runReplay(path: string, command: ReplayCommand): Promise<number> {
  const { write } = command;
  const limit = command.limit === null ? Number.POSITIVE_INFINITY : Number(command.limit);
  const call = command.call === null ? null : Number(command.call);
  const isCount = (number: number): boolean => Number.isInteger(number) && number >= 1;
  if ((command.limit !== null && !isCount(limit)) || (call !== null && !isCount(call)))
    return told(write, ['--limit and --call take a whole number above 0']);
  const idle = withoutUse(command);
  if (idle !== null) return told(write, [idle]);
  let text: string | null = null;
  if (command.withFile !== null) {
    try {
      text = readFileSync(command.withFile, 'utf8');
    } catch (error) {
      return told(write, [`${command.withFile}: cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})`]);
    }
  }
  const nothing = text === null && command.sets.length === 0;
  const changes = nothing ? NO_CHANGES : readChanges(text === null ? null : { text, file: command.withFile as string }, command.sets);
  if (!('words' in changes)) return told(write, changes);
  const recording = openRecording(path);
  if (typeof recording === 'string') return told(write, [recording]);
  if (command.send !== null) {
    const report =
      command.send === 'sandbox'
        ? await sendToSandbox(recording, changes, limit)
        : await sendToUrl(recording, command.send, command.token, limit);
    if (typeof report === 'string') return told(write, [report]);
    if (recording.problems.length > 0) return told(write, recording.problems);
    if (command.json) write(JSON.stringify(sendJson(report)));
    else for (const line of sendLines(report)) write(line);
    return report.sent.every(({ diff, miss }) => diff.length === 0 && miss === null) ? 0 : 1;
  }
  const report = await replay(recording, { changes, limit, only: call });
  if (recording.problems.length > 0) return told(write, recording.problems);
  const one = call === null ? null : (report.calls.find(({ number }) => number === call) ?? null);
  if (call !== null && one === null)
    return told(write, [`--call ${call}: there are ${report.sums.identical + report.sums.broken} calls that can be decided anew`]);
  if (one !== null && command.json) write(JSON.stringify(callJson(one)));
  else if (one !== null) for (const line of sideBySide(one, command.columns)) write(line);
  else if (command.json) write(JSON.stringify(jsonOf(report)));
  else for (const line of linesOf(report)) write(line);
  const { sums } = report;
  if (sums.broken > 0) return NOT_IDENTICAL;
  return sums.different + sums.undecided > 0 ? 1 : 0;
}

/** What would be given in vain: who asks for a trial is not to believe that it took place. */
function withoutUse({ send, call, sets, withFile }: ReplayCommand): string | null {
  if (send === null) return null;
  if (call !== null) return '--call shows how a call is decided, and --send decides none: leave one of them out';
  if (send !== 'sandbox' && (sets.length > 0 || withFile !== null))
    return '--set and --with change nothing at another sidecar: it has policies of its own; leave them out, or send to the sandbox inside (--send sandbox)';
  return null;
}

function told(write: (line: string) => void, lines: readonly string[]): number {
  for (const line of lines) write(line);
  return UNUSABLE;
}
