/**
 * The control plane's own settings: one file, read by the same kit as everything else that people write. Every default
 * stands here once, in the field that has it. Reading files and secrets is left to `main`.
 */
import type { AddressPolicy } from '../base/address-guard.ts';
import { describe, quote } from '../base/duration.ts';
import type { SecretSource } from '../base/secret.ts';
import { deepFreeze } from '../proto/language/document.ts';
import { addressProblem, tidyAddress } from '../proto/language/http-text.ts';
import {
  addressesShape,
  defaultsOf,
  environmentName,
  hostName,
  type Listen,
  listenAt,
  type LogLevel,
  logLevel,
  natsCredential,
  type NatsTls,
  natsTlsShape,
  natsUrl,
  secret,
} from '../proto/language/process-shapes.ts';
import {
  BAD,
  mapped,
  object,
  openSource,
  optional,
  Place,
  readPresent,
  refuseUnknown,
  required,
  type SchemaNode,
  type Shape,
} from '../proto/language/reader.ts';
import { count, duration, isPlainMap, list, oneOf, size, text } from '../proto/language/shapes.ts';
import type { Problem } from '../proto/language/types.ts';
import { type AlertsConfig, alertsShape, DEFAULT_ALERTS } from './alerts/config.ts';
import { type AuditConfig, auditShape, DEFAULT_AUDIT } from './audit/config.ts';
import { type IdentityConfig, identityShape } from './identity/config.ts';
import { DEFAULT_TRACES, type TracesConfig, tracesShape } from './traces/config.ts';
import { DEFAULT_MESSAGES, type MessagesConfig, messagesShape } from './messages/config.ts';
import { type ConsoleConfig, consoleShape, DEFAULT_CONSOLE } from './sessions/config.ts';

export type Role = 'viewer' | 'operator';

export interface OperatorToken {
  readonly name: string;
  readonly role: Role;
  readonly token: SecretSource;
}

export interface NatsCredential {
  readonly user: string | null;
  readonly password: SecretSource | null;
  readonly token: SecretSource | null;
  readonly credsFile: string | null;
  /** Seed. */
  readonly nkey: SecretSource | null;
}

/** Normalised: milliseconds, bytes, ratios 0-1, nothing missing. Frozen. */
export interface ControlPlaneConfig {
  readonly name: string;
  readonly env: string;
  readonly nats: {
    readonly url: string;
    readonly credential: NatsCredential;
    readonly tls: NatsTls | null;
    readonly replicas: number;
    readonly monitor: readonly string[];
  };
  readonly api: {
    readonly listen: Listen;
    /** Where the other replicas and reachctl reach this one; null = its own listening address. */
    readonly publicUrl: string | null;
    readonly allowedHosts: readonly string[];
    readonly operators: readonly OperatorToken[];
    readonly bodyBytes: number;
    readonly connections: number;
  };
  readonly leases: { readonly heartbeatMs: number; readonly offlineMs: number };
  readonly leader: { readonly ttlMs: number; readonly renewMs: number };
  readonly reportsMissingMs: number;
  readonly pendingMax: number;
  /** Where providers may stand beside public addresses. */
  readonly addresses: AddressPolicy;
  readonly messages: MessagesConfig;
  /** When operators are told that something is wrong. */
  readonly alerts: AlertsConfig;
  /** How long what operators do, and what is refused, is kept. */
  readonly audit: AuditConfig;
  /** The console, and those who have signed in to it. */
  readonly console: ConsoleConfig;
  /** What is held of what sidecars tell of single calls. */
  readonly traces: TracesConfig;
  /** Issued identities; null = there are none. */
  readonly identity: IdentityConfig | null;
  /** An export that is taken in when the stream had to be made anew. */
  readonly restore: string | null;
  readonly logLevel: LogLevel;
}

export type ControlPlaneReading = { readonly config: ControlPlaneConfig } | { readonly problems: readonly Problem[] };

const NAME = /^[a-z0-9][a-z0-9_-]{0,62}$/;

const replicaName: Shape<string> = text('the name of a replica', (value) =>
  NAME.test(value) ? null : `${quote(value)} is not a name: 1 to 63 of a-z, 0-9, _ and -, beginning with a letter or digit`,
);

const NO_CREDENTIAL: NatsCredential = Object.freeze({ user: null, password: null, token: null, credsFile: null, nkey: null });

const credential: Shape<NatsCredential> = mapped(natsCredential, (read, place) => {
  const { user, password, token, creds_file, nkey } = read;
  const ways = [user !== null || password !== null, token !== null, creds_file !== null, nkey !== null].filter(Boolean).length;
  if (ways > 1) return place.bad('give one of user and password, token, creds_file, or nkey');
  if ((read.user === null) !== (read.password === null)) return place.bad('user and password go together');
  return { user: read.user, password: read.password, token: read.token, credsFile: read.creds_file, nkey: read.nkey };
});

const address: Shape<string> = mapped(
  text('an http or https address', (value) => addressProblem(value, false)),
  tidyAddress,
);

const natsShape = object('map', {
  url: required(natsUrl, 'the address of NATS, such as nats://127.0.0.1:4222; several are joined by commas'),
  credential: optional<NatsCredential, NatsCredential>(credential, 'How this program proves itself to NATS.', NO_CREDENTIAL, 'none'),
  tls: optional<NatsTls, null>(natsTlsShape, 'Certificates towards NATS, read anew at each connect.', null, 'none'),
  replicas: optional(
    count(1, 5),
    'Copies of every stream in a cluster of NATS servers. 1 is all that a single server can have; 3 outlives the loss of one.',
    1,
    '1',
  ),
  monitor: optional(
    list(address, 16),
    'Monitors of the NATS servers (their `http` port), such as [http://127.0.0.1:8222]: `reachctl fleet` then shows when they flush to their disks what they have acknowledged (`sync_interval`).',
    [],
    'not asked',
  ),
});

const operators: Shape<readonly OperatorToken[]> = mapped(
  list(
    object('operator', {
      name: required(replicaName, 'who it is: stands in the audit log'),
      token: required(secret, 'the token: {env: NAME}, {file: path}, or the text itself'),
      role: optional(oneOf(['viewer', 'operator']), '`viewer` may look, `operator` may also change.', 'viewer' as const, 'viewer'),
    }),
    1_000,
  ),
  (read, place) => {
    const tokens = new Set<string>();
    const names = new Set<string>();
    for (const [i, operator] of read.entries()) {
      const key = JSON.stringify(operator.token);
      if (tokens.has(key)) return place.at(i, 'token').bad('this token stands here twice: each operator needs an own one');
      if (names.has(operator.name)) return place.at(i, 'name').bad(`${operator.name} stands here twice`);
      tokens.add(key);
      names.add(operator.name);
    }
    return read;
  },
);

const apiShape = object('map', {
  listen: optional(
    listenAt('127.0.0.1:7800'),
    'Host and port of the API.',
    Object.freeze({ host: '127.0.0.1', port: 7800 }) as Listen,
    '127.0.0.1:7800',
  ),
  public_url: optional(
    address,
    'Where reachctl and the other replicas reach this one: they are sent there when it leads. Absent: where it listens.',
    null,
    'where it listens',
  ),
  allowed_hosts: optional(
    list(hostName, 100),
    'Host names that requests may carry beside localhost, 127.0.0.1, [::1] and the one of public_url.',
    Object.freeze([]) as readonly string[],
    'none',
  ),
  operators: optional(
    operators,
    'Who may look and who may change, by token (`Authorization: Bearer ...`). Nobody else gets anything but health.',
    Object.freeze([]) as readonly OperatorToken[],
    'nobody',
  ),
  body: optional(size(65_536, 268_435_456), 'Largest request body: a document of policies, or a whole export.', 67_108_864, '64MiB'),
  connections: optional(count(1, 100_000), 'Open connections.', 1_000, '1000'),
});

const leasesShape = mapped(
  object('map', {
    heartbeat: optional(duration(100, 600_000), 'How often sidecars say that their agents live.', 45_000, '45s'),
    offline_after: optional(
      duration(300, 3_600_000),
      'Silence after which a provider gets no new calls: three missed beats, since one may be lost and two may be chance.',
      135_000,
      '135s',
    ),
  }),
  (read, place) =>
    read.offline_after < 2 * read.heartbeat
      ? place.at('offline_after').bad('offline_after must be at least two heartbeats: one that is late must not take a provider away')
      : { heartbeatMs: read.heartbeat, offlineMs: read.offline_after },
);

const leaderShape = mapped(
  object('map', {
    ttl: optional(
      duration(1_000, 60_000),
      'How long a leader that is not heard of still counts. Shorter: quicker take-over, and a slow disk may cost it.',
      4_000,
      '4s',
    ),
    renew: optional(duration(100, 20_000), 'How often a leader says that it leads.', 1_000, '1s'),
  }),
  (read, place) =>
    read.ttl < 2 * read.renew
      ? place.at('ttl').bad('ttl must be at least twice renew: one late renewal must not end a reign')
      : { ttlMs: read.ttl, renewMs: read.renew },
);

/** What stands under `control_plane`. */
export const controlPlaneFields = {
  name: required(replicaName, 'the name of this replica, unique among the replicas'),
  env: optional(environmentName, 'Name of the environment; several can share one NATS.', 'default', 'default'),
  nats: required(natsShape, 'where NATS is: {url: "nats://127.0.0.1:4222"}'),
  api: optional(apiShape, 'The HTTP API, which reachctl uses too.', defaultsOf(apiShape)),
  leases: optional(leasesShape, 'When a provider counts as gone.', defaultsOf(leasesShape)),
  leader: optional(leaderShape, 'How the replicas agree on who writes.', defaultsOf(leaderShape)),
  reports_missing_after: optional(
    duration(1_000, 600_000),
    'Silence of a sidecar after which the fleet says "missing": three of its reports, which come every 5 s.',
    15_000,
    '15s',
  ),
  pending: optional(
    count(100, 10_000_000),
    'Changes kept in memory while NATS is away; of each subject only the newest counts. Above it new registrations are refused.',
    100_000,
    '100000',
  ),
  addresses: optional(
    addressesShape,
    'Where providers and health checks may lead beside public addresses, whoever registers them (SSRF).',
    defaultsOf(addressesShape),
  ),
  messages: optional(messagesShape, 'Messages: what the streams hold, how long work waits, whom notices go to.', DEFAULT_MESSAGES),
  alerts: optional(
    alertsShape,
    'When operators are told that something is wrong: `reachctl alerts`, the console, and the webhook of `messages.notices`.',
    DEFAULT_ALERTS,
  ),
  audit: optional(
    auditShape,
    'The audit log: what operators do, and what is refused to them and by sidecars (`reachctl audit`).',
    DEFAULT_AUDIT,
  ),
  console: optional(consoleShape, 'The console: what is going on, and the red button, in a browser (docs/console.md).', DEFAULT_CONSOLE),
  traces: optional(
    tracesShape,
    'The timelines of single calls and messages (`reachctl trace`), in memory: what sidecars tell of them, at this replica.',
    DEFAULT_TRACES,
  ),
  identity: optional<IdentityConfig, null>(
    identityShape,
    'Tokens for agents and sidecars, and the word for other sidecars that an agent is at home at one (`reachctl identity`, `agent`, `sidecar`). Absent: none are issued, and sidecars know only the tokens of their own settings.',
    null,
    'none',
  ),
  restore: optional(
    text('a file name'),
    'An export (`reachctl export`), relative to this file: its operators’ state is taken in by itself when the stream had to be made anew.',
    null,
    'none',
  ),
  log: optional(
    object('map', { level: optional(logLevel, 'Least severe lines that are written.', 'info' as const, 'info') }),
    'What is written to the log.',
    Object.freeze({ level: 'info' as const }),
  ),
};

const section: Shape<ControlPlaneConfig> = mapped(object('control_plane', controlPlaneFields), (read, place) => {
  const { host } = read.api.listen;
  if ((host === '0.0.0.0' || host === '::') && read.api.public_url === null)
    return place.at('api', 'listen').bad(`${host} is every address of this machine: say in public_url under which one the others reach it`);
  return deepFreeze({
    name: read.name,
    env: read.env,
    nats: read.nats,
    api: {
      listen: read.api.listen,
      publicUrl: read.api.public_url,
      allowedHosts: read.api.allowed_hosts,
      operators: read.api.operators,
      bodyBytes: read.api.body,
      connections: read.api.connections,
    },
    leases: read.leases,
    leader: read.leader,
    reportsMissingMs: read.reports_missing_after,
    pendingMax: read.pending,
    addresses: read.addresses,
    messages: read.messages,
    alerts: read.alerts,
    audit: read.audit,
    console: read.console,
    traces: read.traces,
    identity: read.identity,
    restore: read.restore,
    logLevel: read.log.level,
  });
});

const fileFields = { control_plane: required(section, "the control plane's own settings: at least {name: ..., nats: {url: ...}}") };

/** Reads a settings file; every problem with its place. */
export function readControlPlaneConfig(content: string, fileName: string): ControlPlaneReading {
  const { source, value } = openSource(content, fileName);
  if (value === undefined) return { problems: source.problems };
  const place = new Place(source);
  if (!isPlainMap(value)) {
    place.bad(
      value === null ? 'the file is empty: it needs control_plane' : `the file must be a map with control_plane, not ${describe(value)}`,
    );
    return { problems: source.problems };
  }
  const map = value as Readonly<Record<string, unknown>>;
  refuseUnknown(map, fileFields, place);
  if (!('control_plane' in map)) place.bad(`control_plane is missing: ${fileFields.control_plane.doc}`);
  const read = 'control_plane' in map ? readPresent(section, map['control_plane'], place.at('control_plane')) : BAD;
  return read === BAD || source.problems.length > 0 ? { problems: source.problems } : { config: read };
}

/** JSON Schema of the settings file, for editors. */
export function controlPlaneSchema(): SchemaNode {
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'Agent-Reach control plane',
    ...object('file', fileFields).schema(),
  };
}
