/**
 * Who may call, as written in a contract: `public`, or a list of patterns over agent ids. Matching itself is done where
 * calls are, on the compiled form.
 */
import { quote } from '../../base/duration.ts';
import { agentIdProblem, isAgentId, isAgentSegment, isAgentShortId } from './names.ts';
import { mapped, object, optional, required, type Shape } from './reader.ts';
import { choice, isPlainMap, isText, list, oneOf, text } from './shapes.ts';
import type { Acl, AclPattern } from './types.ts';

const FORM = 'write team.role.id with * for any part, or team:crm, role:planner, agent:crm.planner.a1';

/** `team.role.id` with `*` parts, `team:x`, `role:x` or `agent:team.role.id`; else what is wrong with it. */
export function parseAgentPattern(source: string): AclPattern | { readonly problem: string } {
  const colon = source.indexOf(':');
  if (colon >= 0) {
    const kind = source.slice(0, colon);
    const value = source.slice(colon + 1);
    if (kind === 'agent') return isAgentId(value) ? exact(source, value) : { problem: agentIdProblem(value) as string };
    if (kind !== 'team' && kind !== 'role') return { problem: `${quote(source)} is not a pattern of agents: ${FORM}` };
    if (!isAgentSegment(value))
      return { problem: `${quote(value)} is not a ${kind}: lower-case letters, digits, _ and -, beginning with a letter` };
    return { text: source, team: kind === 'team' ? value : null, role: kind === 'role' ? value : null, id: null };
  }
  const parts = source.split('.');
  const [team, role, id] = parts;
  if (parts.length !== 3 || team === undefined || role === undefined || id === undefined)
    return { problem: `${quote(source)} is not a pattern of agents: ${FORM}` };
  if (!(isStar(team) || isAgentSegment(team)) || !(isStar(role) || isAgentSegment(role)) || !(isStar(id) || isAgentShortId(id)))
    return { problem: `${quote(source)} is not a pattern of agents: ${FORM}` };
  return { text: source, team: isStar(team) ? null : team, role: isStar(role) ? null : role, id: isStar(id) ? null : id };
}

function exact(source: string, agent: string): AclPattern {
  const [team, role, id] = agent.split('.') as [string, string, string];
  return { text: source, team, role, id };
}

const isStar = (part: string): boolean => part === '*';

export const agentPattern: Shape<AclPattern> = mapped(text('a pattern of agents'), (source, place) => {
  if (source === 'public') return place.bad('public stands alone, not in a list: write acl: public');
  const pattern = parseAgentPattern(source);
  return 'problem' in pattern ? place.bad(pattern.problem) : pattern;
});

const allow = list(agentPattern, 1_000, 1);

const withMode = object('map', {
  allow: required(allow, 'who may call: a list such as ["role:planner", "crm.*.*"]'),
  mode: optional(
    oneOf(['enforce', 'audit']),
    '`audit`: who is not named is let in, logged and counted, to see before it is enforced who would be refused.',
    'enforce' as const,
    'enforce',
  ),
});

export const acl: Shape<Acl> = choice<Acl>('public, or a list of patterns of agents (team.role.id with *, team:crm, role:planner)', [
  {
    accepts: isText,
    shape: mapped(text('public or a list'), (word, place) =>
      word === 'public'
        ? { isPublic: true, patterns: Object.freeze([]) }
        : place.bad(`acl must be the word public or a list of patterns, not ${quote(word)}`),
    ),
  },
  // an empty list would be a capability that nobody can call: a slip
  { accepts: Array.isArray, shape: mapped(allow, (patterns) => ({ isPublic: false, patterns })) },
  {
    accepts: isPlainMap,
    shape: mapped(
      withMode,
      (read): Acl => ({ isPublic: false, patterns: read.allow, ...(read.mode === 'audit' ? { mode: read.mode } : {}) }),
    ),
  },
]);
