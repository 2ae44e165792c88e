/**
 * Every metric of the sidecar, declared here and nowhere else, in the order of the page. Labels come only from the table, from the
 * closed code table and from fixed words; how many combinations there may be is bounded in series.ts.
 */
import type { Metric, MetricUnit } from '../../base/metric.ts';

/** What the labels mean. */
export const SIDECAR_LABELS = {
  action: 'what an override does: `block`, `drain`, `reroute`, `degrade`',
  capability: 'canonical name; `unknown` when what was asked for is nobody’s name, `other` beyond the bound',
  code: 'code of [errors.md](errors.md), 0 = it went well',
  event: 'what happened, one of a few fixed words',
  how: 'how an override refused: `blocked`, `drained`, `degraded`',
  kind: 'kind of a quota, as `reachctl quota list` shows it',
  outcome: 'what became of it, one of a few fixed words',
  override: 'id of an override',
  provider: 'agent id of who serves',
  reason: 'why, one of a few fixed words',
  result: 'what a fallback came to: `served` by another, `static`, `failed`',
  rule: 'name of a rule for messages; empty: by no rule',
  state: 'of an agent at the registry, one of a few fixed words',
  target: 'whom a quota is for',
  stage: '`outbound`: at the sidecar of the caller; `inbound`: at that of the provider, calls of the mesh and messages',
  from: 'the state a breaker came from: as `to`',
  to: 'the state a breaker went to: `closed`, `open`, `half_open`, `ramping`',
  version: 'version that served; empty: nobody did',
  way: 'way in: `http`, `proxy`, `json_rpc`, `grpc`, `channel`, `local`, `mesh` (from another sidecar), `message`',
} as const;
type Label = keyof typeof SIDECAR_LABELS;

interface Declared extends Metric {
  readonly labels: readonly Label[];
}

function counted(
  type: 'counter' | 'gauge' | 'histogram',
  name: string,
  help: string,
  labels: readonly Label[] = [],
  unit: MetricUnit = '',
): Declared {
  return { name, type, help, labels, unit, isRead: false };
}

function read(type: 'counter' | 'gauge', name: string, help: string, labels: readonly Label[] = [], unit: MetricUnit = ''): Declared {
  return { name, type, help, labels, unit, isRead: true };
}

export const SIDECAR_METRICS = {
  // Calls and attempts.
  calls: counted('counter', 'reach_calls_total', 'Calls ended, by canonical capability, version that served, code and way in.', [
    'capability',
    'version',
    'code',
    'way',
  ]),
  callSeconds: counted(
    'histogram',
    'reach_call_duration_seconds',
    'From acceptance to the end of the answer.',
    ['capability', 'stage'],
    'seconds',
  ),
  attempts: counted('counter', 'reach_attempts_total', 'Attempts ended, by provider and code.', ['capability', 'provider', 'code']),
  attemptSeconds: counted(
    'histogram',
    'reach_attempt_duration_seconds',
    'One attempt, to the end of its answer.',
    ['capability', 'provider'],
    'seconds',
  ),
  inFlight: counted('gauge', 'reach_in_flight', 'Calls under way, by way in.', ['way']),
  retries: counted('counter', 'reach_retries_total', 'Attempts that followed a failed one.', ['capability']),
  fallbacks: counted(
    'counter',
    'reach_fallbacks_total',
    'Calls whose fallback was used: served by another, answered statically, or failed all the same.',
    ['capability', 'result'],
  ),
  panics: counted('counter', 'reach_panic_total', 'Calls sent to a provider although none was healthy (panic: true).', ['capability']),
  transitions: counted(
    'counter',
    'reach_breaker_transitions_total',
    'Changes of a breaker, by the state it came from and the state it went to; from closed to open from its beginning on, with 0.',
    ['provider', 'capability', 'from', 'to'],
  ),
  breakers: read('gauge', 'reach_breaker_state', '0 closed, 1 ramping up, 2 half-open, 3 open.', ['provider', 'capability']),
  providerInFlight: read('gauge', 'reach_provider_in_flight', 'Calls under way at a provider, as far as this sidecar sees them.', [
    'provider',
  ]),
  refused: counted(
    'counter',
    'reach_refused_requests_total',
    'Requests that never became a call: wrong host or origin, bad framing, unknown path, too large.',
    ['reason'],
  ),
  // What operators steer by.
  overrideRefusals: counted(
    'counter',
    'reach_override_refusals_total',
    'Calls that an override of the operators refused here, by its id and how: blocked, draining, degraded.',
    ['override', 'how'],
  ),
  overridesInForce: read('gauge', 'reach_overrides_in_force', 'Overrides of the operators in force here, by action.', ['action']),
  overridesCut: read('counter', 'reach_overrides_cut_total', 'Calls and streams under way that a block with cut has ended.'),
  quotas: read(
    'counter',
    'reach_quota_requests_total',
    'Calls and messages that a quota of the operators let through here (taken) or refused.',
    ['kind', 'target', 'outcome'],
  ),
  policy: read(
    'counter',
    'reach_policy_refusals_total',
    'Calls and messages that policy refused here (who may, overrides, quotas), and those that a list in audit let in although it does not name the caller.',
    ['outcome'],
  ),
  // Messages.
  submitted: counted(
    'counter',
    'reach_messages_submitted_total',
    'Messages that agents here have submitted, by where they became durable, or the code with which they were refused.',
    ['outcome'],
  ),
  ruled: read(
    'counter',
    'reach_rule_messages_total',
    'Messages that a rule decided, since these rules came into force here; by no rule: "".',
    ['rule'],
  ),
  outbox: read('gauge', 'reach_outbox_messages', 'Messages of agents here that wait on the disk of this machine until NATS is back.'),
  messagesInHand: read('gauge', 'reach_messages_in_hand', 'Messages at work at agents here, or waiting here for a slot.'),
  messages: read(
    'counter',
    'reach_messages_total',
    'Messages for agents here: hand-overs started, and what became of them. dead_lettered and in_doubt want a person to look.',
    ['outcome'],
  ),
  // The table and the registry.
  table: read('gauge', 'reach_table_version', 'Version of the route table in force.'),
  tableAge: read('gauge', 'reach_table_age_seconds', 'Since the table in force was last confirmed.', [], 'seconds'),
  rejected: read('counter', 'reach_rejected_pushes_total', 'Tables that were refused because of a mistake in them.'),
  stale: read('gauge', 'reach_table_stale', '1 while the table in force may not be the newest.'),
  connected: read('gauge', 'reach_registry_connected', '1 while there is a connection to NATS.'),
  reconnects: read('counter', 'reach_registry_reconnects_total', 'Connections to NATS after the first one.'),
  applied: read('gauge', 'reach_registry_applied_sequence', 'Newest sequence of the registry that is in force here.'),
  beacon: read('gauge', 'reach_registry_beacon_age_seconds', 'Since the control plane was last heard.', [], 'seconds'),
  registryEvents: read(
    'counter',
    'reach_registry_events_total',
    'What came of the registry: deltas taken, gaps seen, subjects repaired, comparisons of everything, epochs begun.',
    ['event'],
  ),
  ownAgents: read('gauge', 'reach_registered_agents', 'Agents that this sidecar registers, by what became of it.', ['state']),
  // Identities.
  identity: read(
    'counter',
    'reach_identity_events_total',
    'Tokens and statements that were verified or refused, calls of peers that were not believed, and those let in all the same (identity.mode: audit).',
    ['event'],
  ),
  trustedKeys: read('gauge', 'reach_identity_trusted_keys', 'Keys whose signatures count here.'),
  certificate: read(
    'gauge',
    'reach_mesh_certificate_end_timestamp_seconds',
    "When this sidecar's certificate ends, seconds since 1970.",
    [],
    'Unix time, seconds',
  ),
  // Agents that dial in.
  channels: read('gauge', 'reach_channels', 'Channels that are open: agents that have dialled in.'),
  channelsServing: read('gauge', 'reach_channels_serving', 'Channels on which an agent takes calls.'),
  channelBytes: read(
    'gauge',
    'reach_channel_waiting_bytes',
    'Bytes that wait for agents which do not read, over all channels.',
    [],
    'bytes',
  ),
  // What is seen.
  digests: read(
    'counter',
    'reach_digests_total',
    'Messages that tell the control plane of the traffic here, each ten seconds: sent, or dropped since there was no connection.',
    ['outcome'],
  ),
  spans: read(
    'counter',
    'reach_spans_total',
    'Spans of traces: `made`; `told` the control plane; `dropped` for want of room; and at a collector `exported`, `export_rejected`, `export_dropped`; `export_retries` counts requests.',
    ['outcome'],
  ),
  recorded: read(
    'counter',
    'reach_recorded_calls_total',
    'Calls that were to be recorded: `recorded`, or left out because of the `disk`, of the `cpu` it may take, of a file that was full (`rotated`), or of a `fault` of ours.',
    ['outcome'],
  ),
  accessLines: read('counter', 'reach_access_lines_total', 'Lines of calls in the log.'),
  // The process.
  cpu: read('counter', 'process_cpu_seconds_total', 'User and system time of the process.', [], 'seconds'),
  rss: read('gauge', 'process_resident_memory_bytes', 'Resident memory.', [], 'bytes'),
  heap: read('gauge', 'process_heap_bytes', 'JavaScript heap in use.', [], 'bytes'),
  uptime: read('gauge', 'process_uptime_seconds', 'Since the process started.', [], 'seconds'),
} as const satisfies Readonly<Record<string, Declared>>;

/** Seconds. Sub-millisecond ones first: that is what the sidecar itself costs. */
export const CALL_BOUNDS: readonly number[] = [
  0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
];

/** Combinations of labels a counter or gauge may have; beyond it `other`. */
export const MAX_SERIES = 2_000;
/** A histogram writes some twenty lines a series, so it may have fewer. */
export const MAX_HISTOGRAM_SERIES = 500;
