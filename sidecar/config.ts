/**
 * The sidecar's own settings: one file, read by the same kit as the table, which may stand in it or beside it. Every
 * default stands here once, in the field that has it. Reading files and secrets is left to `main`.
 */
import { describe, quote } from '../base/duration.ts';
import type { AddressPolicy } from '../base/address-guard.ts';
import type { SecretSource } from '../base/secret.ts';
import { explainStrays, readSections, tableFields, deepFreeze } from '../proto/language/document.ts';
import { secretRef } from '../proto/language/endpoint.ts';
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
import { locality, sidecarName } from '../proto/language/provider.ts';
import {
  BAD,
  type Bad,
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
import { agentId } from '../proto/language/settings-fields.ts';
import { count, duration, isPlainMap, list, number, oneOf, ratio, size, text } from '../proto/language/shapes.ts';
import type { Problem, TableDocument } from '../proto/language/types.ts';
import { agentsOnly } from '../proto/language/registration.ts';
import { type ClaimSettings, claimsShape } from './claims-config.ts';
import { agentsListen, type ListenRead, SOCKET_MODES } from './listen-config.ts';
import { type IdentityConfig, identityShape, type MeshTlsConfig, meshTlsShape } from './identity-config.ts';
import { type MessageSettings, messagesShape } from './messages-config.ts';
import { type RecordingSettings, recordingShape } from './recording-config.ts';
import { type ShutdownSettings, shutdownShape } from './shutdown-config.ts';
import { type TraceSettings, tracesShape } from './traces-config.ts';

export interface CallerToken {
  /** `team.role.id`. */
  readonly agent: string;
  readonly token: SecretSource;
}

/** The sidecar's own settings, normalised: milliseconds, bytes, ratios 0-1, nothing missing. Frozen. */
export interface SidecarConfig {
  readonly name: string;
  /** Where agents call in. */
  readonly listen: Listen;
  /** A socket in the file system instead; null = `listen` holds. */
  readonly socket: SocketPlace | null;
  /** What has to be shown there beside the agent's credential; null = nothing. */
  readonly apiToken: SecretSource | null;
  /** The port for other sidecars; null = none. */
  readonly mesh: MeshConfig | null;
  /** The port for agents that speak gRPC; null = none. */
  readonly grpc: GrpcConfig | null;
  /** Agents that dial in on the agents' port. */
  readonly channel: ChannelSettings;
  readonly region: string | null;
  readonly zone: string | null;
  readonly callers: readonly CallerToken[];
  /** A token that may register and remove any agent here; null = each agent only itself. */
  readonly operatorToken: SecretSource | null;
  /** Where the table comes from instead of a file; null = standalone. */
  readonly registry: RegistryConfig | null;
  /** Directory for what must outlive a restart (the last good table), relative to the config file; null = nothing is kept. */
  readonly stateDir: string | null;
  /** Unauthenticated local calls act as this agent; null = 401. */
  readonly anonymous: string | null;
  /** Identities that the control plane issues; null = only the tokens above. */
  readonly identity: IdentityConfig | null;
  /** Whom an ACL does not name is logged and counted here, and let in. */
  readonly aclAudit: boolean;
  /** Extra Host names, lower case, without port. */
  readonly allowedHosts: readonly string[];
  readonly limits: LimitSettings;
  /** Calls and tasks with a key. */
  readonly claims: ClaimSettings;
  /** Durable messages; only with a registry. */
  readonly messages: MessageSettings;
  readonly shutdown: ShutdownSettings;
  readonly traces: TraceSettings;
  /** Calls that are written down, to be decided anew; null = none can be. */
  readonly recording: RecordingSettings | null;
  readonly maxDeadlineMs: number;
  readonly maxHops: number;
  readonly retryBudget: { readonly ratio: number; readonly minPerSec: number };
  readonly affinity: { readonly maxEntries: number; readonly ttlMs: number };
  readonly connectTimeoutMs: number;
  readonly connectionsPerOrigin: number;
  readonly log: { readonly level: LogLevel; readonly access: 'all' | 'errors' | 'off' };
  readonly ejection: { readonly consecutive: number; readonly forMs: number };
}

/** A socket in the file system. */
export interface SocketPlace {
  /** Absolute. */
  readonly path: string;
  /** Of the file. */
  readonly mode: number;
}

/** How much is taken in, and kept for who does not take it. */
export interface LimitSettings {
  readonly bodyBytes: number;
  readonly headerBytes: number;
  readonly connections: number;
  readonly batch: number;
  readonly unsentBytes: number;
  readonly stallMs: number;
}

/** Agents that dial in. */
export interface ChannelSettings {
  readonly heartbeatMs: number;
  readonly offlineAfterMs: number;
  readonly stallMs: number;
  readonly sendBufferBytes: number;
  readonly ticketTtlMs: number;
  readonly connections: number;
  readonly inFlight: number;
}

export interface MeshConfig {
  readonly listen: Listen;
  /** What the sidecars of one mesh share; null = they know one another by their certificates. */
  readonly token: SecretSource | null;
  readonly advertise: string | null;
  /** null = in clear text. */
  readonly tls: MeshTlsConfig | null;
}

export interface GrpcConfig {
  readonly listen: Listen;
  /** RPCs that one connection may have under way. */
  readonly streams: number;
}

export interface RegistryConfig {
  /** As the bus takes them. */
  readonly servers: readonly string[];
  readonly env: string;
  readonly credential: NatsCredential | null;
  /** Files are relative to the config file. */
  readonly tls: NatsTls | null;
  readonly heartbeatMs: number;
  readonly leaseMs: number;
  readonly staleAfterMs: number;
  /** Where third parties may stand beside public addresses, whatever their names lead to when they are connected to. */
  readonly addresses: AddressPolicy;
}

export type NatsCredential =
  | { readonly user: string; readonly password: SecretSource }
  | { readonly token: SecretSource }
  /** Relative to the config file. */
  | { readonly credsFile: string }
  /** Seed. */
  | { readonly nkey: SecretSource };

export type SidecarReading =
  | {
      readonly config: SidecarConfig;
      /** The table when the file holds it inline. */
      readonly document: TableDocument | null;
      /** As written in `sidecar.table`, to be read relative to the config file; null when the table is inline. */
      readonly tableFile: string | null;
    }
  | {
      readonly problems: readonly Problem[];
      /** The sidecar's own settings when they are good and only the table beside them in the file is not. */
      readonly own: SidecarConfig | null;
    };

const listen = listenAt('127.0.0.1:7700');

function isEveryAddress(host: string): boolean {
  return host === '0.0.0.0' || host === '::';
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || host.startsWith('127.');
}

const callers: Shape<readonly CallerToken[]> = mapped(
  list(
    object('caller', {
      agent: required(agentId, 'the agent that this token stands for'),
      token: required(secret, 'its token: {env: NAME}, {file: path}, or the text itself'),
    }),
    100_000,
  ),
  (read, place) => {
    const seen = new Set<string>();
    for (const [i, caller] of read.entries()) {
      const key = JSON.stringify(caller.token);
      if (seen.has(key)) return place.at(i, 'token').bad('this token stands here twice: each caller needs its own');
      seen.add(key);
    }
    return read;
  },
);

const limitsShape = object('map', {
  body: optional(
    size(1_024, 1_073_741_824),
    'Largest request body that is read at all, whatever a contract allows. Every call in flight may hold this much.',
    8_388_608,
    '8MiB',
  ),
  header_bytes: optional(
    size(4_096, 262_144),
    'Largest block of headers, in and out. What Node itself allows; tokens and trace state need a good part of it.',
    16_384,
    '16KiB',
  ),
  connections: optional(
    count(1, 1_000_000),
    "Open connections on one port, channels among them. Above what one machine's agents need; each takes a file handle, so `ulimit -n` must lie above it.",
    20_000,
    '20000',
  ),
  batch: optional(
    count(1, 10_000),
    'Messages in one JSON-RPC batch; a longer one is refused whole. Each message counts against every limit by itself.',
    100,
    '100',
  ),
  unsent: optional(
    size(65_536, 1_073_741_824),
    'Answers that may wait on one gRPC connection whose client does not take them; above it new RPCs on it are refused as busy. Those under way may add three times as much.',
    16_777_216,
    '16MiB',
  ),
  stall: optional(
    duration(100, 3_600_000),
    'A connection (HTTP, gRPC) that takes nothing of whole answers for so long is cut off. Streams are not: there the caller sets the pace, within the deadline.',
    10_000,
    '10s',
  ),
});

const channelShape: Shape<ChannelSettings> = mapped(
  object('map', {
    heartbeat: optional(
      duration(100, 3_600_000),
      'A channel on which nothing has come for so long is pinged, which also keeps middleboxes from forgetting it.',
      45_000,
      '45s',
    ),
    offline_after: optional(
      duration(300, 86_400_000),
      'A channel on which nothing has come for so long is cut and its agent offline: three heartbeats. Shorter finds half-open connections sooner, and cuts agents that stand still for a while.',
      135_000,
      '135s',
    ),
    stall: optional(
      duration(100, 3_600_000),
      'An agent that takes nothing of what was sent to it for so long is cut off. A long garbage collection takes a second; what does not read for ten is stuck.',
      10_000,
      '10s',
    ),
    send_buffer: optional(
      size(16_384, 1_073_741_824),
      'What may wait for one agent that does not read. Above it streams to it pause, and calls to it are refused as busy. Each slow agent can cost this much memory.',
      1_048_576,
      '1MiB',
    ),
    ticket_ttl: optional(
      duration(1_000, 3_600_000),
      'How long a ticket to dial in with can be used. It stands in an address, so in logs: long enough for a slow handshake, too short for a reader of logs.',
      30_000,
      '30s',
    ),
    connections: optional(
      count(1, 1_000_000),
      'Channels at once. Below `limits.connections`, so that agents with a port can still call.',
      16_000,
      '16000',
    ),
    in_flight: optional(
      count(1, 100_000),
      'Calls under way on one channel, in each direction; more are refused as busy. What an agent works on is bounded by `limits.per_provider`, long before.',
      256,
      '256',
    ),
  }),
  (read, place): ChannelSettings | Bad => {
    if (read.offline_after < 2 * read.heartbeat)
      return place.at('offline_after').bad('offline_after must be at least two heartbeats: one answer may be late');
    return {
      heartbeatMs: read.heartbeat,
      offlineAfterMs: read.offline_after,
      stallMs: read.stall,
      sendBufferBytes: read.send_buffer,
      ticketTtlMs: read.ticket_ttl,
      connections: read.connections,
      inFlight: read.in_flight,
    };
  },
);

const retryBudgetShape = object('map', {
  ratio: optional(
    ratio(true),
    'Retries as a share of the recent calls of this sidecar; above it nothing is retried. A fifth repairs single failures and cannot double the load of an outage.',
    0.2,
    '20%',
  ),
  min_per_sec: optional(
    number(0, 100_000),
    'Retries per second that are always allowed: below a few calls a second a share says nothing.',
    10,
    '10',
  ),
});

const affinityShape = object('map', {
  entries: optional(
    count(100, 10_000_000),
    'Conversations whose agent is remembered; the oldest are forgotten first. About 200 bytes each.',
    100_000,
    '100000',
  ),
  ttl: optional(duration(1_000), 'How long a conversation that rests keeps its agent: people come back after a break.', 1_800_000, '30m'),
});

const logShape = object('map', {
  level: optional(logLevel, 'Least severe lines that are written.', 'info' as const, 'info'),
  access: optional(
    oneOf(['all', 'errors', 'off']),
    'Which calls get a line: a line for each can cost as much as the call, and the good ones are in metrics and traces.',
    'errors' as const,
    'errors',
  ),
});

const ejectionShape = object('map', {
  consecutive: optional(
    count(1, 1_000),
    'Connect failures or time-outs in a row after which this sidecar leaves a provider alone: one may be chance, three are not.',
    3,
    '3',
  ),
  for: optional(
    duration(100, 3_600_000),
    "How long: short, since it is one caller's view; the breaker at the provider's own sidecar judges all traffic.",
    5_000,
    '5s',
  ),
});

const NATS_NAME = /^[a-z0-9][a-z0-9_-]{0,62}$/;

const credentialShape: Shape<NatsCredential | null> = mapped(natsCredential, (read, place): NatsCredential | null | Bad => {
  const { user, password, token, creds_file: credsFile, nkey } = read;
  const ways = [user !== null || password !== null, token !== null, credsFile !== null, nkey !== null].filter(Boolean).length;
  if (ways > 1) return place.bad('give one of user and password, token, creds_file, or nkey');
  if (user !== null && password !== null) return { user, password };
  if (user !== null || password !== null) return place.bad('user and password go together');
  if (token !== null) return { token };
  if (nkey !== null) return { nkey };
  return credsFile === null ? null : { credsFile };
});

const registryShape: Shape<RegistryConfig> = mapped(
  object('map', {
    nats: optional(natsUrl, 'The address of NATS; several are joined by commas.', 'nats://127.0.0.1:4222', 'nats://127.0.0.1:4222'),
    env: optional(
      environmentName,
      'Name of the environment, so that several can share one NATS. The control plane has the same.',
      'default',
      'default',
    ),
    credential: optional<NatsCredential | null, null>(credentialShape, 'How this sidecar proves itself to NATS.', null, 'none'),
    tls: optional<NatsTls, null>(natsTlsShape, 'Certificates towards NATS, read anew at each connect.', null, 'none'),
    heartbeat: optional(
      duration(100, 3_600_000),
      'How often the registry is told that the agents here live. The control plane counts by the same figure.',
      45_000,
      '45s',
    ),
    lease: optional(
      duration(300, 86_400_000),
      'An agent of the API that neither beats nor answers a call for so long is reported gone: three missed heartbeats. For so long, too, a provider that answers is kept when the registry has to begin anew.',
      135_000,
      '135s',
    ),
    stale_after: optional(
      duration(1_000, 3_600_000),
      'Without a word of the control plane for so long the table counts as stale, which health, metrics and explain say; calls go on. It speaks each second.',
      5_000,
      '5s',
    ),
    addresses: optional(
      addressesShape,
      'Where the names of third parties may lead beside public addresses, when a connection is opened (SSRF). The control plane judges what is registered by its own setting of this name; since names change where they lead, this is asked again here.',
      defaultsOf(addressesShape),
    ),
  }),
  (read, place): RegistryConfig | Bad => {
    if (read.lease < 2 * read.heartbeat) return place.at('lease').bad('the lease must be at least two heartbeats: one may be late');
    return {
      servers: read.nats.split(',').map((each) => each.trim()),
      env: read.env,
      credential: read.credential,
      tls: read.tls,
      heartbeatMs: read.heartbeat,
      leaseMs: read.lease,
      staleAfterMs: read.stale_after,
      addresses: read.addresses,
    };
  },
);

const address: Shape<string> = mapped(
  text('an http or https address', (value) => addressProblem(value, false)),
  tidyAddress,
);

const meshShape = object('map', {
  listen: optional(listen, 'Host and port for the other sidecars.', Object.freeze({ host: '127.0.0.1', port: 7701 }), '127.0.0.1:7701'),
  token: optional<SecretSource, null>(
    secret,
    'The token that the sidecars of one mesh share: `{env: NAME}`, `{file: path}`, or the text itself. Needed without TLS; with it, sidecars know one another by their certificates.',
    null,
    'none',
  ),
  tls: optional<MeshTlsConfig | 'off', null>(
    meshTlsShape,
    'Certificate, key and authority, as `reachctl sidecar cert` writes them: mutual TLS between sidecars. Files that change are read again; connections that are open stay. `"off"`: clear text, which must be said where `identity` is set, since whoever can listen in then learns and can repeat everything.',
    null,
    'off, or required with `identity`',
  ),
  advertise: optional(
    address,
    'The address at which the others reach this port, as the registry tells it to them. Needed when it listens on every address (0.0.0.0).',
    null,
    'where it listens',
  ),
});

const grpcShape = object('map', {
  listen: optional(
    listenAt('127.0.0.1:7702'),
    'Host and port for gRPC, in clear text. A loopback address, unless the agents are in other containers.',
    Object.freeze({ host: '127.0.0.1', port: 7702 }),
    '127.0.0.1:7702',
  ),
  streams: optional(
    count(1, 100_000),
    'RPCs that one connection may have under way; clients hold back the rest. All of an agent go over one connection, and long ones stay a while.',
    1_000,
    '1000',
  ),
});

const aclShape = object('map', {
  mode: optional(
    oneOf(['enforce', 'audit']),
    '`enforce`: whom the ACL of a capability does not name is refused (4002). `audit`: it is let in, logged and counted, to see before it is enforced who would be refused. One sidecar’s word: where the other end enforces, the call is refused there. Of one contract or the whole fleet it is said in the contract (`acl: {allow, mode}`) or in a policy (`acl_mode`). It never lets in who has no known identity.',
    'enforce' as const,
    'enforce',
  ),
});

/** What stands under `sidecar`. */
export const sidecarFields = {
  name: required(sidecarName, 'its name, unique in the mesh; providers that it hosts say `via: <name>`'),
  listen: optional<ListenRead, ListenRead>(
    agentsListen,
    'Where the agents call in: a host and a port (a loopback address, unless the agents are in other containers), or `unix:/path`, a socket in the file system, which other users of the machine, web pages and other containers cannot reach. One that nobody listens on any more is taken away.',
    Object.freeze({ listen: Object.freeze({ host: '127.0.0.1', port: 7700 }), socket: null }),
    '127.0.0.1:7700',
  ),
  socket_mode: optional(
    oneOf(SOCKET_MODES),
    'Who may open the socket of `listen: unix:…`: `"0600"` its owner alone, `"0660"` its group as well, for agents under another user.',
    '0600' as const,
    '"0600"',
  ),
  api_token: optional<SecretSource, null>(
    secretRef,
    'A token that every request to the port for agents, and to the gRPC port, has to show beside the credential of its agent (`Reach-Api-Token`; the SDKs: `REACH_API_TOKEN`), but for health and readiness: {env: NAME} or {file: path}. For machines on which others have accounts, above all with `anonymous`. Clients that know only a proxy setting cannot send it.',
    null,
    'none',
  ),
  mesh: optional(meshShape, 'The port for other sidecars. Absent: none; then it hosts providers for its own callers only.', null, 'none'),
  grpc: optional<GrpcConfig, null>(
    grpcShape,
    'The port for agents that speak gRPC (proto/reach.proto), with server reflection and health. Absent: none.',
    null,
    'none',
  ),
  channel: optional(channelShape, 'Agents without a port, which dial in over WebSocket (`/v1/channel`).', defaultsOf(channelShape)),
  locality: optional<{ readonly region: string | null; readonly zone: string | null }, { readonly region: null; readonly zone: null }>(
    locality,
    'Where it stands; near providers are preferred.',
    Object.freeze({ region: null, zone: null }),
    'unknown',
  ),
  callers: optional(
    callers,
    'Who may call, by token (`Authorization: Bearer ...`).',
    Object.freeze([]) as readonly CallerToken[],
    'nobody',
  ),
  operator_token: optional(
    secret,
    'A token that may register and remove any agent at this sidecar (`/v1/agents`), sees all that it holds of traces, and starts and stops recording. Absent: each agent may register itself, by its own token.',
    null,
    'none',
  ),
  registry: optional<RegistryConfig, null>(
    registryShape,
    'The registry that the table comes from; then contracts and providers in this file (or in `table`) are the agents that this sidecar registers. Absent: standalone, the table is the file.',
    null,
    'standalone',
  ),
  identity: optional<IdentityConfig, null>(
    identityShape,
    'Agents prove themselves by tokens that the control plane issues (`reachctl agent add`), and other sidecars by its word that their agents are at home there. Needs a registry. Absent: only `callers` count.',
    null,
    'none',
  ),
  acl: optional(
    aclShape,
    'How the lists of who may call are held to, at both ends: where this sidecar calls, and where it is called.',
    defaultsOf(aclShape),
  ),
  anonymous: optional(
    agentId,
    'For a laptop only: calls without a token act as this agent. Absent: they are refused (401).',
    null,
    'refused',
  ),
  table: optional(
    text('a file name'),
    'The file with contracts, providers and policies, relative to this one. Absent: they stand in this file.',
    null,
    'this file',
  ),
  state_dir: optional(
    text('a directory'),
    'Where the last good table is kept, so that a restart with a broken file still serves; relative to this file. `none`: nothing is kept.',
    '.reach',
    '.reach',
  ),
  allowed_hosts: optional(
    list(hostName, 100),
    'Host names that requests may carry beside localhost, 127.0.0.1 and [::1]; others are refused, since a web page could use them.',
    Object.freeze([]) as readonly string[],
    'none',
  ),
  limits: optional(limitsShape, 'How much is taken in.', defaultsOf(limitsShape)),
  claims: optional(
    claimsShape,
    'Keys (`Idempotency-Key`, `Reach-Power-Id`): what is kept so that a repeat is recognised.',
    defaultsOf(claimsShape),
  ),
  messages: optional(messagesShape, 'Durable messages: casts, tasks and their results. They need a registry.', defaultsOf(messagesShape)),
  shutdown: optional(shutdownShape, 'How it stops.', defaultsOf(shutdownShape)),
  traces: optional(tracesShape, 'Spans of calls and messages: which are told, and to whom.', defaultsOf(tracesShape)),
  recording: optional<RecordingSettings, null>(
    recordingShape,
    'Calls that are written down with all that decided about them, to be decided anew under other settings (`reach-sidecar replay`). Absent: none, and none can be begun.',
    null,
    'none',
  ),
  max_deadline: optional(
    duration(100),
    'Longest total time of a task, whoever asks for it: what runs longer belongs in a message.',
    600_000,
    '10m',
  ),
  max_hops: optional(count(1, 64), 'Longest chain of agents calling agents. Real ones have a handful; more is a loop.', 16, '16'),
  retry_budget: optional(retryBudgetShape, 'Bounds the retries of the whole sidecar.', defaultsOf(retryBudgetShape)),
  affinity: optional(affinityShape, 'What is remembered of conversations.', defaultsOf(affinityShape)),
  connect_timeout: optional(
    duration(10, 60_000),
    'Longest wait for a connection. In one data centre it takes a millisecond; a second covers a lost packet.',
    1_000,
    '1s',
  ),
  connections_per_origin: optional(count(1, 10_000), 'Connections to one address; as many calls can be under way there.', 128, '128'),
  log: optional(logShape, 'What is written to the log.', defaultsOf(logShape)),
  ejection: optional(ejectionShape, 'When this sidecar leaves a provider alone by its own experience.', defaultsOf(ejectionShape)),
};

const section = object('sidecar', sidecarFields);

/** The settings alone, without the file around them. */
export const sidecarShape: Shape<{ readonly config: SidecarConfig; readonly tableFile: string | null }> = mapped(section, (read, place) => {
  if (read.anonymous !== null && !isLoopback(read.listen.listen.host))
    return place.at('anonymous').badKey(`anonymous calls are for a loopback address only, and listen is ${quote(read.listen.listen.host)}`);
  if (read.anonymous !== null && read.grpc !== null && !isLoopback(read.grpc.listen.host))
    return place
      .at('anonymous')
      .badKey(`anonymous calls are for a loopback address only, and grpc.listen is ${quote(read.grpc.listen.host)}`);
  const isSamePort =
    read.mesh !== null &&
    read.mesh.listen.port !== 0 &&
    read.mesh.listen.port === read.listen.listen.port &&
    read.mesh.listen.host === read.listen.listen.host;
  if (isSamePort) return place.at('mesh', 'listen').bad("the mesh port must be another one than the agents' port");
  for (const [other, words] of [[read.listen.listen, "the agents' port"] as const, [read.mesh?.listen, 'the mesh port'] as const]) {
    const grpc = read.grpc?.listen;
    if (grpc !== undefined && grpc.port !== 0 && grpc.port === other?.port && grpc.host === other.host)
      return place.at('grpc', 'listen').bad(`the gRPC port must be another one than ${words}`);
  }
  if (read.registry !== null && !NATS_NAME.test(read.name))
    return place
      .at('name')
      .bad(
        `${quote(read.name)} cannot be the name of a sidecar in a registry: 1 to 63 of a-z, 0-9, _ and -, beginning with a letter or digit`,
      );
  if (read.registry !== null && read.mesh !== null && read.mesh.advertise === null && isEveryAddress(read.mesh.listen.host))
    return place
      .at('mesh')
      .badKey(`advertise is missing: the mesh port listens on every address (${read.mesh.listen.host}), which tells the others nothing`);
  if (read.identity !== null && read.registry === null)
    return place.badKey('identity needs a registry: the keys that may have signed a token come from there');
  const mesh = read.mesh === null ? null : meshOf(read.mesh, read.identity !== null, read.name, place.at('mesh'));
  if (mesh === BAD) return BAD;
  const config: SidecarConfig = {
    name: read.name,
    listen: read.listen.listen,
    socket: read.listen.socket === null ? null : { path: read.listen.socket, mode: Number.parseInt(read.socket_mode, 8) },
    apiToken: read.api_token,
    mesh,
    grpc: read.grpc,
    channel: read.channel,
    region: read.locality.region,
    zone: read.locality.zone,
    callers: read.callers,
    operatorToken: read.operator_token,
    registry: read.registry,
    stateDir: read.state_dir === 'none' ? null : read.state_dir,
    anonymous: read.anonymous,
    identity: read.identity,
    aclAudit: read.acl.mode === 'audit',
    allowedHosts: read.allowed_hosts,
    limits: {
      bodyBytes: read.limits.body,
      headerBytes: read.limits.header_bytes,
      connections: read.limits.connections,
      batch: read.limits.batch,
      unsentBytes: read.limits.unsent,
      stallMs: read.limits.stall,
    },
    claims: read.claims,
    messages: read.messages,
    shutdown: read.shutdown,
    traces: read.traces,
    recording: read.recording,
    maxDeadlineMs: read.max_deadline,
    maxHops: read.max_hops,
    retryBudget: { ratio: read.retry_budget.ratio, minPerSec: read.retry_budget.min_per_sec },
    affinity: { maxEntries: read.affinity.entries, ttlMs: read.affinity.ttl },
    connectTimeoutMs: read.connect_timeout,
    connectionsPerOrigin: read.connections_per_origin,
    log: read.log,
    ejection: { consecutive: read.ejection.consecutive, forMs: read.ejection.for },
  };
  return { config: deepFreeze(config), tableFile: read.table };
});

interface MeshRead {
  readonly listen: Listen;
  readonly token: SecretSource | null;
  readonly tls: MeshTlsConfig | 'off' | null;
  readonly advertise: string | null;
}

function meshOf({ listen: at, token, tls, advertise }: MeshRead, hasIdentity: boolean, name: string, place: Place): MeshConfig | Bad {
  if (tls === null && hasIdentity)
    return place.badKey(
      'tls is missing: with identity, sidecars prove themselves by certificates (reachctl sidecar cert). Write `tls: "off"` when the network between them is encrypted by other means',
    );
  const files = tls === 'off' ? null : tls;
  if (files === null && token === null)
    return place.badKey('token is missing: the token that the sidecars of one mesh share: {env: NAME}, {file: path}, or the text itself');
  if (files !== null && !NATS_NAME.test(name))
    return place
      .at('tls')
      .bad(`${quote(name)} cannot stand in a certificate: the name of the sidecar must be 1 to 63 of a-z, 0-9, _ and -`);
  if (advertise !== null && advertise.startsWith('https:') !== (files !== null))
    return place
      .at('advertise')
      .bad(files === null ? 'the mesh port speaks clear text: write http://, or set tls' : 'the mesh port speaks TLS: write https://');
  return { listen: at, token: files === null ? token : null, advertise, tls: files };
}

const fileFields = { sidecar: required(sidecarShape, "the sidecar's own settings: at least {name: ...}"), ...tableFields };

/** Reads a configuration file; a table inside it is checked with it. */
export function readSidecarConfig(content: string, fileName: string): SidecarReading {
  const { source, value } = openSource(content, fileName);
  if (value === undefined) return { problems: source.problems, own: null };
  const place = new Place(source);
  if (!isPlainMap(value)) {
    place.bad(
      value === null
        ? 'the file is empty: it needs sidecar, and a table in it or beside it'
        : `the file must be a map with sidecar, not ${describe(value)}`,
    );
    return { problems: source.problems, own: null };
  }
  const map = value as Readonly<Record<string, unknown>>;
  explainStrays(source);
  refuseUnknown(map, fileFields, place);
  const own =
    'sidecar' in map
      ? readPresent(sidecarShape, map['sidecar'], place.at('sidecar'))
      : place.bad(`sidecar is missing: ${fileFields.sidecar.doc}`);
  const inline = Object.keys(tableFields).filter((key) => key in map);
  const name = (map['sidecar'] as { name?: unknown } | null | undefined)?.name;
  const hasRegistry = own !== BAD && own.config.registry !== null;
  const document = inline.length > 0 ? readSections(map, place, typeof name === 'string' ? name : null, !hasRegistry) : null;
  if (own !== BAD) {
    if (own.tableFile !== null && inline.length > 0)
      place.at('sidecar', 'table').badKey(`the table stands in this file already (${inline.join(', ')}): leave one of the two out`);
    if (own.tableFile === null && inline.length === 0 && own.config.registry === null)
      place.at('sidecar').badKey('there is no table: write sidecar.table, or contracts and providers in this file, or sidecar.registry');
    if (own.config.registry !== null && document !== null) agentsOnly(document, place, own.config.name);
  }
  if (own === BAD) return { problems: source.problems, own: null };
  if (source.problems.length > 0)
    return { problems: source.problems, own: own.tableFile === null && inline.length > 0 ? own.config : null };
  return { config: own.config, document, tableFile: own.tableFile };
}

/** JSON Schema of the file for editors. */
export function configSchema(): SchemaNode {
  return { $schema: 'https://json-schema.org/draft/2020-12/schema', title: 'Agent-Reach sidecar', ...object('file', fileFields).schema() };
}
