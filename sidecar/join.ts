/**
 * How a sidecar joins a registry: the connection to NATS, the client of the registry on it, and the own file, whose agents
 * are registered. Loaded only where a registry is configured. Nothing here waits for NATS: it is reached in the background,
 * for as long as it takes.
 */
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import { Bus, type BusOptions } from '../base/nats.ts';
import type { Random } from '../base/random.ts';
import type { NatsTls } from '../proto/language/process-shapes.ts';
import type { ProviderRecord } from '../proto/language/types.ts';
import { Subjects } from '../proto/wire/subjects.ts';
import { NatsLedger } from './ledger/nats-ledger.ts';
import type { NatsCredential, RegistryConfig, SidecarConfig } from './config.ts';
import { readSecret, type SecretSource } from '../base/secret.ts';
import { FileTable, type TableReader } from './table/file.ts';
import { RefusalLog } from './observe/refusal-log.ts';
import type { Refusals } from './observe/refusals.ts';
import type { InstalledTable } from './table/installed.ts';
import type { LastGood } from './table/last-good.ts';
import { RegistryClient } from './table/registry.ts';
import { askHealth } from './transports/ask-health.ts';
import type { Destinations } from './transports/destinations.ts';
import type { TransportKinds } from './transports/index.ts';
import { unreachableBecause } from './transports/reachable.ts';
import { packageVersion } from './version.ts';

type BusCredential = NonNullable<ReturnType<NonNullable<BusOptions['credential']>>>;

/** How long the last refusals have to reach the audit log. */
const REFUSALS_MS = 500;

export interface JoinParts {
  readonly config: SidecarConfig;
  readonly registry: RegistryConfig;
  /** The settings file: other paths are relative to it. */
  readonly settingsFile: string;
  /** Where the own agents stand: the settings file itself, or the one that it names. */
  readonly agentsFile: string;
  /** What that file would hold, when there is none. */
  readonly agentsText: string | null;
  /** Agents that call from inside this process, beside those that have a token. */
  readonly insideCallers: readonly string[];
  readonly readAgents: TableReader;
  readonly lastGood: LastGood | null;
  readonly table: InstalledTable;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  /** Endpoint types that there are adapters for. */
  readonly kinds: TransportKinds;
  readonly destinations: Destinations;
  /** What policy refuses here: it goes to the audit log too. */
  readonly refusals: Refusals;
  /** Whether an agent without a port is connected. */
  isDialledIn(agentId: string): boolean;
}

export interface Joined {
  readonly client: RegistryClient;
  /** Where keys are claimed. */
  readonly ledger: NatsLedger;
  readonly bus: Bus;
  readonly subjects: Subjects;
  /** Names this run of the process. */
  readonly instance: string;
  /** Answers what the control plane asks; null = nothing to answer. */
  serve(answer: (question: Uint8Array) => object | null): void;
  /** The own file is looked at no more, and the registry is told goodbye, for as long as this at most. */
  leave(withinMs: number): Promise<void>;
  close(): Promise<void>;
}

/** Throws with a sentence when a secret cannot be read. */
export function joinRegistry(parts: JoinParts): Joined {
  const { config, registry, clock, random, log } = parts;
  const folder = dirname(parts.settingsFile);
  const instance = randomUUID();
  const subjects = new Subjects(registry.env, config.name);
  const bus = Bus.open({
    servers: registry.servers,
    name: `sidecar ${config.name}`,
    clock,
    random,
    inboxPrefix: `_INBOX.${config.name}`,
    notice: (level, words) => log[level](words),
    ...credentialOf(registry.credential, folder),
    ...tlsOf(registry.tls, folder),
  });
  const ledger = new NatsLedger({
    bus,
    subjects,
    clock,
    random,
    log,
    self: config.name,
    leaseMs: config.claims.leaseMs,
    maxResultBytes: config.claims.resultBytes,
  });
  const client = new RegistryClient({
    bus,
    subjects,
    env: registry.env,
    clock,
    random,
    log,
    table: parts.table,
    self: {
      sidecar: config.name,
      instance,
      region: config.region,
      zone: config.zone,
      callers: [
        ...new Set([
          ...config.callers.map(({ agent }) => agent),
          ...(config.anonymous === null ? [] : [config.anonymous]),
          ...parts.insideCallers,
        ]),
      ].sort(),
      heartbeatMs: registry.heartbeatMs,
      leaseMs: registry.leaseMs,
    },
    staleAfterMs: registry.staleAfterMs,
    keepAt: config.stateDir === null ? null : resolve(folder, config.stateDir, config.name),
    version: packageVersion(),
    token: config.identity === null ? null : tokenOf(config.identity.token),
    askHealth: (url, timeoutMs) => askHealth(clock, url, timeoutMs),
    unreachable: remembering(
      (record) => unreachableBecause(record, parts.kinds, config.name) ?? parts.destinations.problemOf(record, config.name),
    ),
  });
  client.own.isConnected = (agentId) => parts.isDialledIn(agentId);
  const source = new FileTable(
    parts.agentsFile,
    parts.agentsFile,
    client.ownFile,
    parts.lastGood,
    clock,
    log,
    parts.readAgents,
    parts.agentsText,
  );
  source.start();
  client.start();
  let serving: { close(): void } | null = null;
  const refusalLog = new RefusalLog(bus, subjects, config.name, clock, log);
  parts.refusals.to = (said) => refusalLog.add(said);
  return {
    client,
    ledger,
    bus,
    subjects,
    instance,
    serve: (answer) => {
      // Some questions want no answer, and have no place for one. Only inboxes are answered.
      serving = bus.subscribe(subjects.ask(config.name), ({ data, reply }) => {
        const answered = answer(data);
        if (answered !== null && reply.startsWith('_INBOX')) bus.publish(reply, Buffer.from(JSON.stringify(answered), 'utf8'));
      });
    },
    leave: async (withinMs) => {
      source.stop();
      await client.leave(withinMs);
    },
    close: async () => {
      source.stop();
      serving?.close();
      await client.stop();
      parts.refusals.flush();
      await refusalLog.stop(REFUSALS_MS);
      await ledger.close();
      await bus.close();
    },
  };
}

/** Read at every dial, so that a changed secret is used; one that has become unreadable keeps its last value. */
function credentialOf(credential: NatsCredential | null, folder: string): Pick<BusOptions, 'credential'> {
  if (credential === null) return {};
  let known = read(credential, folder);
  return {
    credential: () => {
      try {
        known = read(credential, folder);
      } catch {
        // The old one may do.
      }
      return known;
    },
  };
}

function tlsOf(tls: NatsTls | null, folder: string): Pick<BusOptions, 'tls'> {
  if (tls === null) return {};
  const { caFile, certFile, keyFile } = tls;
  return {
    tls: {
      ...(caFile === null ? null : { caFile: resolve(folder, caFile) }),
      ...(certFile === null ? null : { certFile: resolve(folder, certFile) }),
      ...(keyFile === null ? null : { keyFile: resolve(folder, keyFile) }),
    },
  };
}

/** Read anew each time; what cannot be read is none, which the control plane says. */
function tokenOf(source: SecretSource | null): () => string {
  return () => {
    try {
      return source === null ? '' : readSecret(source);
    } catch {
      return '';
    }
  };
}

function read(credential: NatsCredential, folder: string): BusCredential {
  if ('user' in credential) return { user: credential.user, password: readSecret(credential.password) };
  if ('token' in credential) return { token: readSecret(credential.token) };
  if ('nkey' in credential) return { nkeySeed: readSecret(credential.nkey) };
  try {
    return { creds: readFileSync(resolve(folder, credential.credsFile), 'utf8') };
  } catch (error) {
    throw new Error(`the credentials file ${credential.credsFile} cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})`);
  }
}

/** Records are never written to: what was found out once holds. */
function remembering(judge: (record: ProviderRecord) => string | null): (record: ProviderRecord) => string | null {
  const known = new WeakMap<ProviderRecord, string>();
  return (record) => {
    let words = known.get(record);
    if (words === undefined) {
      words = judge(record) ?? '';
      known.set(record, words);
    }
    return words === '' ? null : words;
  };
}
