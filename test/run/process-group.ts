/**
 * Whether a process group still has members that run. A dead one that nobody has collected (in a container whose first
 * process collects none, it stays for ever) can still be signalled, so asking by signal is not enough where `/proc` tells more.
 */
import { readdirSync, readFileSync } from 'node:fs';

export function livesOn(group: number): boolean {
  try {
    process.kill(-group, 0);
  } catch {
    return false;
  }
  const members = membersOf(group);
  return members === null || members.some((state) => state !== 'Z' && state !== 'X');
}

/** The states of the members as the system names them, or null where it does not tell. */
function membersOf(group: number): string[] | null {
  let pids: string[];
  try {
    pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  } catch {
    return null;
  }
  if (pids.length === 0) return null;
  const states: string[] = [];
  for (const pid of pids) {
    const [state, , itsGroup] = statOf(pid);
    if (state !== undefined && Number(itsGroup) === group) states.push(state);
  }
  return states;
}

/** State, parent, group: the fields that follow the program's name, which is in brackets and may itself hold some. */
function statOf(pid: string): string[] {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return text.slice(text.lastIndexOf(')') + 2).split(' ');
  } catch {
    return []; // it ended while we looked
  }
}
