/** What a pattern in a policy or an override covers. Patterns are validated where they are read; here they are only compared. */

/** `crm.order.query`, `crm.order.*`, `crm.*` or `*`; null covers everything. */
export function coversName(pattern: string | null, name: string): boolean {
  if (pattern === null || pattern === '*' || pattern === name) return true;
  return pattern.endsWith('.*') && name.startsWith(pattern.slice(0, -1));
}

/** `team.role.id` with `*` for any part (missing parts at the end are any), `team:x`, `role:x` or `agent:a.b.c`; null covers everybody. */
export function coversAgent(pattern: string | null, agentId: string): boolean {
  if (pattern === null) return true;
  const [team, role, ...rest] = agentId.split('.');
  if (pattern.startsWith('team:')) return pattern.slice(5) === team;
  if (pattern.startsWith('role:')) return pattern.slice(5) === role;
  const [wantTeam, wantRole, ...wantRest] = (pattern.startsWith('agent:') ? pattern.slice(6) : pattern).split('.');
  const wantId = wantRest.length === 0 ? '*' : wantRest.join('.');
  return (
    (wantTeam === '*' || wantTeam === team) &&
    (wantRole === undefined || wantRole === '*' || wantRole === role) &&
    (wantId === '*' || wantId === rest.join('.'))
  );
}
