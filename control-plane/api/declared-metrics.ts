/**
 * Every metric of the control plane, declared here and nowhere else, in the order of the page. Labels are fixed words and names out
 * of the registry; those that name single things (agents, pools) are bounded to the worst of them.
 */
import type { Metric, MetricUnit } from '../../base/metric.ts';

/** What the labels mean. */
export const CONTROL_LABELS = {
  agent: 'agent id',
  capability: 'canonical name',
  kind: 'kind of an alert: `p95_rise`, `breaker_flapping`, `backlog`, `agent_offline`',
  lane: 'lane of messages; `sticky` for pools that keep their order over lanes',
  outcome: 'what became of it, one of a few fixed words',
  pool: 'id of a pool, as `reachctl pools list` shows it',
  route: 'route of the API, as a template',
  sidecar: 'name of the sidecar that hosts it',
  standing: 'of a sidecar: `current`, `behind`, `stale`, `missing`',
  state: 'of an alert: `pending`, `firing`, `resolved`',
  status: 'of a provider: `online`, `offline`, `overdue`; of a request: HTTP status',
  stream: 'name of a stream of NATS',
} as const;
type Label = keyof typeof CONTROL_LABELS;

interface Declared extends Metric {
  readonly labels: readonly Label[];
}

function gauge(name: string, help: string, labels: readonly Label[] = [], unit: MetricUnit = ''): Declared {
  return { name, type: 'gauge', help, labels, unit, isRead: true };
}

function counter(name: string, help: string, labels: readonly Label[] = [], unit: MetricUnit = ''): Declared {
  return { name, type: 'counter', help, labels, unit, isRead: true };
}

export const CONTROL_METRICS = {
  // This replica.
  leading: gauge('reach_control_leading', '1 when this replica leads.'),
  term: gauge('reach_control_term', 'Number of the reign that this replica knows of; it rises with each change of the leader.'),
  connected: gauge('reach_control_nats_connected', '1 when there is a connection to NATS.'),
  warnings: gauge('reach_control_warnings', 'Things that an operator should know, as `/v1/health` names them.'),
  lastSequence: gauge('reach_control_last_sequence', 'Last sequence of the configuration stream that this replica has seen.'),
  // The registry and its pushes.
  subjects: gauge('reach_control_stored_subjects', 'Subjects of the configuration stream.'),
  pendingWrites: gauge('reach_control_pending_writes', 'Changes that wait to be written.'),
  held: gauge('reach_control_held', 'Losses that are held back until an operator confirms them.'),
  capabilities: gauge('reach_control_capabilities', 'Capabilities in the registry.'),
  providers: gauge('reach_control_providers', 'Providers by status.', ['status']),
  offline: gauge(
    'reach_control_agent_offline',
    '1 for each agent that is gone without a goodbye (200 at most); who has left, or was drained, is not there.',
    ['agent', 'sidecar'],
  ),
  shifts: gauge('reach_control_shifts_underway', 'Shifts of traffic that run or are paused.'),
  // The fleet.
  sidecars: gauge('reach_control_sidecars', 'Sidecars by standing.', ['standing']),
  refusing: gauge('reach_control_sidecars_refusing', 'Sidecars that refuse something that was pushed.'),
  behind: gauge('reach_control_sidecar_behind_most', 'Of all sidecars, the most messages of its scope that one has not applied yet.'),
  overrides: gauge('reach_control_overrides', 'Emergency overrides that last.'),
  overridesMissing: gauge('reach_control_overrides_missing', 'Sidecars at which the newest list of overrides is not in force.'),
  // Messages; of the leader alone.
  pools: gauge('reach_control_pools', 'Pools that tasks wait in.'),
  parkedPools: gauge('reach_control_pools_parked', 'Pools that hold tasks and have nobody who works on them.'),
  waiting: gauge('reach_control_tasks_waiting', 'Tasks that wait for a worker, by lane.', ['lane']),
  poolWaiting: gauge('reach_control_pool_tasks_waiting', 'Tasks that wait for a worker, by pool: the fullest 200.', ['pool', 'capability']),
  inHand: gauge('reach_control_tasks_in_hand', 'Tasks that are with workers, or wait for another try.'),
  kept: gauge('reach_control_tasks_kept', 'Tasks that are kept for people: dead, in doubt, to be reviewed; -1 when that is not known.'),
  ghosts: gauge(
    'reach_control_tasks_come_back_deleted',
    'Acknowledged tasks that had come back with a restart of NATS, and were deleted since this replica leads.',
  ),
  expired: gauge('reach_control_tasks_expired_untaken', 'Tasks that nobody took in time, ended since this replica leads.'),
  fill: gauge(
    'reach_control_stream_fill_ratio',
    'How full the streams of messages are, 0 to 1, by bytes or by messages.',
    ['stream'],
    'ratio',
  ),
  // Telling people.
  noticesFailing: gauge('reach_control_notices_failing', '1 while the webhook for notices does not take them.'),
  alerts: gauge('reach_control_alerts', 'Alerts by kind and state; of the leader alone.', ['kind', 'state']),
  alertsUntold: gauge(
    'reach_control_alerts_untold',
    'Alerts that were let go of before operators were told all of them, too many having waited for it, since this replica leads.',
  ),
  auditEntries: counter(
    'reach_control_audit_entries_total',
    'Entries of the audit log by this replica: what operators did, what was refused, and those that were lost.',
    ['outcome'],
  ),
  auditWaiting: gauge('reach_control_audit_waiting', 'Entries that wait for the audit log to take them.'),
  // What is seen.
  digests: counter('reach_control_digests_total', 'Digests of sidecars: heard, heard twice, missed (their numbers show a gap), refused.', [
    'outcome',
  ]),
  silent: gauge(
    'reach_control_sidecars_silent',
    'Sidecars whose digests were heard and are not heard any more: what they do is not known.',
  ),
  traces: gauge('reach_control_traces', 'Traces in the store of this replica.'),
  tracesBytes: gauge('reach_control_traces_bytes', 'Room that they take.', [], 'bytes'),
  spans: counter('reach_control_spans_total', 'Spans that came: kept, told twice, and those for which their trace had no room.', [
    'outcome',
  ]),
  tracesDropped: counter('reach_control_traces_dropped_total', 'Traces that were thrown out of the store: to make room, or by age.', [
    'outcome',
  ]),
  // The API and the process.
  requests: counter('reach_control_requests_total', 'Requests of the API, by route and status.', ['route', 'status']),
  cpu: counter('process_cpu_seconds_total', 'User and system time of the process.', [], 'seconds'),
  rss: gauge('process_resident_memory_bytes', 'Resident memory.', [], 'bytes'),
  heap: gauge('process_heap_bytes', 'JavaScript heap in use.', [], 'bytes'),
  uptime: gauge('process_uptime_seconds', 'Since the process started.', [], 'seconds'),
} as const satisfies Readonly<Record<string, Declared>>;
