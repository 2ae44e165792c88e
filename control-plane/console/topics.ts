/** What each page has to be told of: the topics of `/v1/live`. */
export const TOPICS = {
  overview: ['traffic', 'alerts', 'registry', 'fleet', 'tasks', 'overrides'],
  topology: ['traffic'],
  capability: ['traffic', 'registry', 'overrides', 'quotas', 'policies', 'shifts'],
  capabilities: ['registry', 'policies'],
  agents: ['registry'],
  traces: ['traces'],
  fleet: ['fleet', 'registry', 'overrides', 'policies'],
  rules: ['policies', 'fleet'],
  messages: ['tasks'],
  quotas: ['quotas'],
  shifts: ['shifts', 'traffic'],
  alerts: ['alerts'],
  audit: ['audit'],
  overrides: ['overrides'],
} as const;
