/**
 * Whose inbox an agent may put a message into: that of any agent which it may ask for something. An inbox has no ACL of its own; who
 * is let in to an agent's work is let in to its inbox, and nobody else is. Asked by the sender's sidecar, where the message is
 * accepted, and again by the one that keeps the inbox.
 */
import { isAgentId } from '../../proto/language/names.ts';
import { isOpenTo, type Snapshot } from './snapshot.ts';

/** Who wants to. */
interface Sender {
  readonly agent: string;
  readonly team: string;
  readonly role: string;
  readonly id: string;
}

/** Agent ids are looked for among the providers of each capability; what was found out holds for the table. */
const known = new WeakMap<Snapshot, Map<string, string | null>>();
/** Senders choose names. */
const KEEP = 10_000;

/** The sidecar that keeps it; null = the agent is not known here, has no sidecar, or does not let this one in. */
export function inboxOf(table: Snapshot, who: Sender, agentId: string): string | null {
  const home = table.providers.get(agentId)?.record.via ?? null;
  if (home === null) return null;
  let found = known.get(table);
  if (found === undefined) {
    found = new Map();
    known.set(table, found);
  }
  const pair = `${who.agent} ${agentId}`;
  const before = found.get(pair);
  if (before !== undefined) return before;
  const answer = isLetIn(table, who, agentId) ? home : null;
  if (found.size >= KEEP) found.clear();
  found.set(pair, answer);
  return answer;
}

/** At the reader's end. Where nothing is known of the reader (the table is not there yet) the sender's end has decided. */
export function mayWriteTo(table: Snapshot, source: string, agentId: string): boolean {
  if (!isAgentId(source)) return false;
  if (!table.providers.has(agentId)) return true;
  const [team = '', role = '', id = ''] = source.split('.');
  return inboxOf(table, { agent: source, team, role, id }, agentId) !== null;
}

function isLetIn(table: Snapshot, { team, role, id }: Sender, agentId: string): boolean {
  for (const capability of table.capabilities.values()) {
    if (!capability.members.has(agentId)) continue;
    for (const version of capability.versions)
      if (version.candidates.some(({ provider }) => provider.agentId === agentId) && isOpenTo(version, team, role, id)) return true;
  }
  return false;
}
