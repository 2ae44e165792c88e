/** The composition root of a live sidecar: what is made, in which order it starts, and in which order it stops. */
import { randomBytes, timingSafeEqual } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { dirname, isAbsolute, join, resolve } from 'node:path';
import { type Clock, realClock } from '../base/clock.ts';
import type { Log, Logger } from '../base/log.ts';
import { type Random, systemRandom } from '../base/random.ts';
import { readTable } from '../proto/language/document.ts';
import { openSource } from '../proto/language/reader.ts';
import { agentsOnlyProblems } from '../proto/language/registration.ts';
import type { Problem, TableDocument } from '../proto/language/types.ts';
import { answerAsk } from './accept/ask.ts';
import { AllChannels } from './accept/channel/all-channels.ts';
import { Finishing } from './accept/finishing.ts';
import { Front } from './accept/front.ts';
import type { GrpcPort } from './accept/grpc.ts';
import { ApiToken } from './accept/api-token.ts';
import { httpPort } from './accept/http.ts';
import { meshPort } from './accept/mesh.ts';
import type { Port } from './accept/server.ts';
import { assemble } from './assemble.ts';
import type { Call } from './call/call.ts';
import { readSidecarConfig, type SidecarConfig } from './config.ts';
import type { LiveDelivery } from './deliver/live.ts';
import { explain } from './explain.ts';
import { Health } from './health/health.ts';
import type { Credentials } from './identify/credentials.ts';
import type { IdentityConfig, MeshTlsConfig } from './identity-config.ts';
import type { Joined } from './join.ts';
import type { Principal } from './call/principal.ts';
import { StaticTokens } from './identify/static-tokens.ts';
import type { Inbox } from './inbox/inbox.ts';
import { DigestSender } from './observe/digest-sender.ts';
import { Observation } from './observe/observer.ts';
import { Recorder } from './record/recorder.ts';
import { Tracing } from './observe/tracing.ts';
import { Cutter } from './overrides/cut.ts';
import { inbound, outbound } from './pipeline.ts';
import { readSecret } from '../base/secret.ts';
import { Messages } from './send/messages.ts';
import { NO_OUTBOX, type Outbox } from './send/outbox-door.ts';
import { Promiseless } from './send/promiseless.ts';
import { tellOutbox } from './send/send-span.ts';
import { Stop, type StopReport } from './stop.ts';
import { FileTable, type TableReader, wordsOfProblem } from './table/file.ts';
import { mayWriteTo } from './table/inbox-of.ts';
import { InstalledTable } from './table/installed.ts';
import type { Snapshot } from './table/snapshot.ts';
import { DurableFile } from './table/durable-file.ts';
import { LastGood } from './table/last-good.ts';
import { ServedTable } from './table/served.ts';
import { ChannelHub } from './transports/channel-hub.ts';
import { Destinations } from './transports/destinations.ts';
import { registerTransports, Transports } from './transports/index.ts';
import { LocalHub } from './transports/local-hub.ts';
import type { HomeStatements } from './transports/mesh.ts';
import type { MeshTls } from './transports/mesh-tls.ts';
import { Presence } from './transports/presence.ts';
import { steer } from './steering.ts';
import { packageVersion } from './version.ts';
import { withReachable } from './transports/reachable.ts';

/** A configuration that cannot be started with; the message is for the person who wrote it. */
export class StartRefused extends Error {
  readonly lines: readonly string[];
  constructor(lines: readonly string[]) {
    super(lines.join('\n'));
    this.lines = lines;
  }
}

/** What a process that has the engine inside it asks for beside its settings. */
export interface Inside {
  /** The settings, when they stand in no file; `file` is a name for messages then, and relative paths begin in its folder. */
  readonly text: string | null;
  /** The agents in this process. */
  readonly local: LocalHub;
  /** Those who call from inside it. */
  readonly callers: readonly string[];
  /** Opens the port for agents outside. */
  readonly opensHttp: boolean;
}

export interface Started {
  readonly config: SidecarConfig;
  /** Where agents call in, e.g. `http://127.0.0.1:7700`, or `unix:/path`; '' = a process of its own agents only. */
  readonly url: string;
  /** Where other sidecars call in, or null. */
  readonly meshUrl: string | null;
  /** Where gRPC clients call in, `host:port`, or null. */
  readonly grpcAddress: string | null;
  readonly front: Front;
  /** Where agents are put that are served by program; null with a registry, which has to be asked. */
  readonly served: ServedTable | null;
  /**
   * Stops in the order of `stop.ts`; the grace is that of the settings when none is given. Said again, the time may become shorter.
   */
  stop(graceMs?: number): Promise<StopReport>;
}

/** Reads the settings file; every problem with its place. */
export function readSettings(file: string, given: string | null = null): { config: SidecarConfig; tableFile: string; isInline: boolean } {
  let text: string;
  try {
    text = given ?? readFileSync(file, 'utf8');
  } catch (error) {
    throw new StartRefused([`${file}: cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})`]);
  }
  const reading = readSidecarConfig(text, file);
  if ('problems' in reading) {
    // A table in the same file has been spoilt: a restart goes on with the last good one, as it does beside a table file.
    if (reading.own !== null && lastGoodOf(file, reading.own)?.read() != null)
      return { config: reading.own, tableFile: file, isInline: true };
    throw new StartRefused(reading.problems.map(wordsOfProblem));
  }
  const { config, tableFile } = reading;
  if (tableFile === null) return { config, tableFile: file, isInline: true };
  return { config, tableFile: isAbsolute(tableFile) ? tableFile : resolve(dirname(file), tableFile), isInline: false };
}

/** Starts a sidecar from its settings file. Rejects with `StartRefused` when it cannot be. */
export async function startSidecar(
  file: string,
  log: Log,
  clock: Clock = realClock,
  random: Random = systemRandom,
  inside: Inside | null = null,
): Promise<Started> {
  const begun: Undo[] = [];
  try {
    return await begin(file, log, clock, random, inside, begun);
  } catch (error) {
    // Nothing of a start that is refused stays: one timer or connection, and a process that would go on without a sidecar never ends.
    for (const undo of begun.reverse()) {
      try {
        await undo();
      } catch (why) {
        log.logger.warn({ why: String(why) }, 'not closed');
      }
    }
    throw error;
  }
}

type Undo = () => unknown;

/** @param begun what has to be closed when the start is refused after all; the last first */
async function begin(file: string, log: Log, clock: Clock, random: Random, inside: Inside | null, begun: Undo[]): Promise<Started> {
  const { config, tableFile, isInline } = readSettings(file, inside?.text ?? null);
  const local = inside?.local ?? new LocalHub();
  const dialledIn = new ChannelHub();
  const health = new Health(clock, config.ejection);
  const table = new InstalledTable(clock, health, config);
  const observation = new Observation(clock, log.logger, config.log.access);
  health.onTransition = observation.breakerMoved;
  const meshToken = config.mesh?.token == null ? null : secretOf(config.mesh.token);
  const secure = config.mesh?.tls == null ? null : await meshTlsOf(file, config, config.mesh.tls, clock, log.logger);
  begun.push(() => secure?.stop());
  const homes = config.identity === null ? null : homesOf(() => joined);
  const adapters = registerTransports({ token: meshToken, secure, homes });
  const destinations = config.registry === null ? null : new Destinations(config.registry.addresses);
  destinations?.bus(config.registry?.servers ?? []);
  const transports = new Transports(
    {
      clock,
      random,
      secret: readSecret,
      connectTimeoutMs: config.connectTimeoutMs,
      connectionsPerOrigin: config.connectionsPerOrigin,
      maxResponseHeaderBytes: config.limits.headerBytes,
      destinations,
      warn: (words) => log.logger.warn(words),
      channels: dialledIn,
      local,
    },
    adapters,
  );
  begun.push(() => transports.close());
  const hubs = new Map<string, LocalHub | ChannelHub>([
    ['local', local],
    ['channel', dialledIn],
  ]);
  let joined: Joined | null = null;
  const presence = new Presence(
    hubs,
    (agentId) => health.known(agentId),
    () => table.current(),
  );
  let cutter: Cutter | null = null;
  table.onInstall = () => {
    presence.installed();
    cutter?.look();
  };
  local.onChange = (agentId) => presence.moved(agentId);
  dialledIn.onChange = (agentId, isHere) => {
    presence.moved(agentId);
    if (isHere) joined?.client.announcer.beat(agentId);
    else joined?.client.announcer.disconnected(agentId);
  };
  const callers = config.callers.map(({ agent, token }) => ({ agent, token: secretOf(token) }));
  const peers = meshToken === null ? [] : [{ name: 'mesh', token: meshToken }];
  const tokens = new StaticTokens(callers, peers, config.anonymous);
  const credentials = config.identity === null ? null : await credentialsOf(tokens, config, config.identity, clock, log.logger);
  begun.push(() => credentials?.stop());
  const identities = credentials ?? tokens;
  if (credentials !== null) credentials.onDoubted = (agent, via, why) => observation.refusals.doubted(agent, via, why);

  const lastGood = lastGoodOf(file, config);
  const read = withReachable(isInline ? inlineTable : besideTable(config), adapters, config.name);
  let source: FileTable | null = null;
  let served: ServedTable | null = null;
  if (config.registry === null || destinations === null) {
    served = inside === null ? null : new ServedTable(table);
    source = new FileTable(
      tableFile,
      tableFile,
      served ?? table,
      lastGood,
      clock,
      log.logger,
      read,
      isInline ? (inside?.text ?? null) : null,
    );
    begun.push(() => source?.stop());
    source.start();
  } else {
    const { joinRegistry } = await import('./join.ts');
    try {
      joined = joinRegistry({
        config,
        registry: config.registry,
        settingsFile: file,
        agentsFile: tableFile,
        agentsText: isInline ? (inside?.text ?? null) : null,
        insideCallers: inside?.callers ?? [],
        readAgents: read,
        lastGood,
        table,
        clock,
        random,
        log: log.logger,
        kinds: adapters,
        destinations,
        refusals: observation.refusals,
        isDialledIn: (agentId) => dialledIn.of(agentId) !== null,
      });
    } catch (error) {
      throw new StartRefused([(error as Error).message]);
    }
    begun.push(() => joined?.close());
  }
  const tasks = joined === null ? null : joined.ledger;
  const engine = assemble({ clock, random, config, table, health, identities, transports, observer: observation, tasks });
  cutter = new Cutter(table, engine.underway, clock);
  const door = joined === null ? null : { client: joined.client };
  const recorder = recorderOf(file, config, clock, log.logger);
  begun.push(() => recorder?.close());
  recorder?.serve(engine);
  const callOut = recorder === null ? outbound : recorder.outbound(outbound);
  const callIn = recorder === null ? inbound : recorder.inbound(inbound);
  const front = new Front(engine, table, observation, { outbound: callOut, inbound: callIn, explain }, door);
  front.isOperator = operatorOf(config);
  front.recorder = recorder;
  const steering = joined === null ? null : steer(joined, engine.quotas, observation.shifts);
  begun.push(() => steering?.stop());
  const digests = joined === null ? null : digestsTo(joined, config.name, observation, clock, random);
  front.digests = digests;
  begun.push(() => digests?.stop());
  const tracing = await tracingOf(joined, config, clock, random, (words) => log.logger.warn(words));
  begun.push(() => tracing?.stop());
  observation.spans = tracing?.spans ?? null;
  front.tracing = tracing;
  digests?.start();
  front.finishing = new Finishing(engine, config.shutdown, {
    serves: (agent) => servesHere(agent, joined, table.current(), config.name),
    holds: (agent) => front.work?.holds(agent) ?? false,
  });
  const channels = new AllChannels(front, dialledIn, log.logger);
  channels.onLife = (agentId) => joined?.client.announcer.beat(agentId);
  front.channels = channels;
  front.cutter = cutter;
  front.security = credentials === null && secure === null ? null : { identity: credentials, certificate: secure };
  if (credentials !== null && joined !== null) follow(credentials, secure, joined, config, (agent, by) => front.takenBack(agent, by));
  const sending = {
    clock,
    random,
    config,
    table,
    instance: randomBytes(10).toString('hex').slice(0, INSTANCE_CHARS),
    call: (call: Call) => callOut(engine, call),
    warn: (words: string) => log.logger.warn(words),
    quotas: engine.quotas,
    statements: homes === null || config.identity === null ? null : { ...homes, isRequired: config.identity.mode === 'enforce' },
    refusals: observation.refusals,
    stages: tracing?.spans ?? null,
  };
  // Messages that were accepted before this start may turn out to be unsendable before there is anybody to hear of it.
  let unsendable = (_data: Buffer, _why: string): void => undefined;
  const never = (data: Buffer, why: string): void => unsendable(data, why);
  const left = (data: Buffer, why: string): void => {
    if (tracing !== null) tellOutbox(tracing.spans, data, clock.wallMs(), why);
  };
  const outbox = joined === null ? NO_OUTBOX : await outboxOf(joined, file, config, { clock, random, warn: sending.warn, never, left });
  begun.push(() => outbox.close());
  const send =
    joined === null
      ? new Promiseless(sending)
      : new Messages(sending, {
          bus: joined.bus,
          subjects: joined.subjects,
          rules: () => joined.client.ruling.current(),
          onDecided: (subject, rule) => joined.client.ruling.decided(subject, rule),
          outbox: () => outbox,
        });
  begun.push(() => send.close());
  if (send instanceof Messages) unsendable = (data, why) => send.unsendable(data, why);
  front.send = send;
  front.apiToken = config.apiToken === null ? null : new ApiToken(secretOf(config.apiToken));
  front.outbox = outbox.isThere ? outbox : null;
  let inbox: Inbox | null = null;
  if (joined !== null && send instanceof Messages) {
    const { Inbox } = await import('./inbox/inbox.ts');
    inbox = new Inbox({
      bus: joined.bus,
      subjects: joined.subjects,
      clock,
      log: log.logger,
      sidecar: config.name,
      settings: config.messages.inbox,
      noted: (event, body, agent) => send.noted(event, body, agent),
      isLetIn: ({ source, home, home_statement: statement }, agent) => {
        if (!mayWriteTo(table.current(), source, agent)) return false;
        const doubt = identities.stamped(source, home, statement ?? null, null);
        return doubt === null || doubt === 'later';
      },
      arrived: (message, agent, isLetIn) => send.arrived(message, agent, isLetIn),
      stages: tracing?.spans ?? null,
    });
    begun.push(() => inbox?.close());
    inbox.start();
    front.inbox = inbox;
  }
  const ports: Port[] = [];
  let http: Port | null = null;
  let mesh: Port | null = null;
  let grpc: GrpcPort | null = null;
  let delivery: LiveDelivery | null = null;
  begun.push(
    () => delivery?.stop(0),
    () => Promise.all([...ports.map((port) => port.close(0)), grpc?.close(0)]),
  );
  try {
    if (joined !== null) {
      const { liveDelivery } = await import('./deliver/live.ts');
      const { bus, subjects, ledger, client } = joined;
      const settings = config.messages.work;
      const failpoint = process.env['REACH_FAILPOINT'];
      delivery = liveDelivery({
        self: client.self,
        engine,
        inbound: callIn,
        bus,
        subjects,
        ledger,
        work: client.work,
        clock,
        random,
        log: log.logger,
        settings,
        stages: tracing?.spans ?? null,
        longWork: config.stateDir === null ? null : new DurableFile(resolve(dirname(file), config.stateDir, config.name, 'long-work')),
        failpoint,
      });
      front.work = delivery.deliver;
    }
    if (config.grpc !== null) {
      const { grpcPort } = await import('./accept/grpc.ts');
      const port = grpcPort(front, config.grpc, channels);
      await port.open();
      grpc = port;
    }
    if (config.mesh !== null) {
      mesh = await opened(meshPort(front, config.mesh.listen, secure));
      ports.push(mesh);
    }
    if (inside === null || inside.opensHttp) http = await opened(httpPort(front, channels));
    if (http !== null) ports.unshift(http);
    delivery?.start();
  } catch (error) {
    throw new StartRefused([error instanceof Error ? error.message : String(error)]);
  }
  for (const port of ports) destinations?.own(port.address.port);
  if (grpc !== null) destinations?.own(grpc.address.port);
  joined?.serve((question) => answerAsk(front, question));
  const stop = new Stop({
    clock,
    log,
    front,
    ports,
    grpc,
    delivery,
    inbox,
    joined,
    unwatch: () => source?.stop(),
    flush: [
      ['send', () => send.close()],
      ['outbox', () => outbox.close()],
      ['inbox', () => inbox?.close()],
      ['transports', () => transports.close()],
      ['steering', () => steering?.stop()],
      ['digests', () => digests?.stop()],
      ['traces', () => tracing?.stop()],
      ['refusals', () => observation.refusals.flush()],
      ['registry and NATS', () => joined?.close()],
      ['credentials', () => credentials?.stop()],
      ['certificates', () => secure?.stop()],
    ],
    beside: [['recording', () => recorder?.close()]],
  });
  joined?.client.announce(config.mesh?.advertise ?? (mesh === null ? null : urlOf(mesh, secure !== null)));
  return {
    config,
    url: http === null ? '' : urlOf(http),
    meshUrl: mesh === null ? null : urlOf(mesh, secure !== null),
    grpcAddress: grpc === null ? null : placeOf(grpc.address),
    front,
    served,
    stop: (graceMs = config.shutdown.graceMs) => stop.run(graceMs),
  };
}

/** Of what task ids begin with: no two processes have the same. */
const INSTANCE_CHARS = 14;

/** Without a registry everybody in the table is served from here, but whoever stands behind another sidecar. */
function servesHere(agent: string, joined: Joined | null, { providers }: Snapshot, self: string): boolean {
  if (joined !== null) return joined.client.own.get(agent) !== null;
  const record = providers.get(agent)?.record;
  return record !== undefined && (record.via === null || record.via === self);
}

/** Null = no traces are made. */
async function tracingOf(
  joined: Joined | null,
  { traces, name, registry }: SidecarConfig,
  clock: Clock,
  random: Random,
  warn: (words: string) => void,
): Promise<Tracing | null> {
  if (!traces.isOn) return null;
  const instance = joined?.instance ?? randomBytes(8).toString('hex');
  const env = registry?.env ?? null;
  const tracing = await Tracing.start({ clock, random, settings: traces, sidecar: name, instance, version: packageVersion(), env, warn });
  if (joined !== null) tracing.join(joined.bus, joined.subjects);
  return tracing;
}

function digestsTo(
  { bus, subjects, instance }: Joined,
  sidecar: string,
  observation: Observation,
  clock: Clock,
  random: Random,
): DigestSender {
  return new DigestSender({ counts: observation.digest, clock, random, sidecar, instance, bus, subject: subjects.digest(sidecar) });
}

/** Whether an `Authorization` header is the operator's; without a token of its own nobody is. */
function operatorOf({ operatorToken }: SidecarConfig): (authorization: string) => boolean {
  const expected = operatorToken === null ? null : Buffer.from(`Bearer ${secretOf(operatorToken)}`);
  return (authorization) => {
    const given = Buffer.from(authorization);
    return expected !== null && given.length === expected.length && timingSafeEqual(given, expected);
  };
}

/** Null = nothing is recorded here, and nothing can be. */
function recorderOf(file: string, config: SidecarConfig, clock: Clock, logger: Logger): Recorder | null {
  const { recording, stateDir, name } = config;
  if (recording === null) return null;
  const folder = recording.folder ?? (stateDir === null ? null : join(stateDir, name, 'recordings'));
  if (folder === null)
    throw new StartRefused(['sidecar.recording: dir is missing: with `state_dir: none` there is no other place for the files']);
  return new Recorder(recording, config, resolve(dirname(file), folder), clock, (words) => logger.warn(words));
}

/** Loaded only where it is set: TLS costs memory. Its environment is that of the registry. */
async function meshTlsOf(file: string, config: SidecarConfig, tls: MeshTlsConfig, clock: Clock, logger: Logger): Promise<MeshTls> {
  const { MeshTls } = await import('./transports/mesh-tls.ts');
  const folder = dirname(file);
  const paths = { cert: resolve(folder, tls.cert), key: resolve(folder, tls.key), ca: resolve(folder, tls.ca) };
  try {
    return new MeshTls(config.registry?.env ?? DEFAULT_ENV, config.name, paths, tls.reloadMs, clock, logger);
  } catch (error) {
    throw new StartRefused([`sidecar.mesh.tls: ${(error as Error).message}`]);
  }
}

const DEFAULT_ENV = 'default';

async function credentialsOf(
  tokens: StaticTokens,
  { name, mesh }: SidecarConfig,
  { mode }: IdentityConfig,
  clock: Clock,
  logger: Logger,
): Promise<Credentials> {
  const { Credentials } = await import('./identify/credentials.ts');
  const credentials = new Credentials(tokens, { self: name, mode, hasPeerNames: mesh?.tls != null }, clock, logger);
  credentials.start();
  return credentials;
}

/** The statements that peers are shown; they come with the registry, which is joined after the adapters are made. */
function homesOf(joined: () => Joined | null): HomeStatements {
  const homes = (): HomeStatements | undefined => joined()?.client.identity?.homes;
  return {
    of: (agent) => homes()?.of(agent) ?? null,
    arrived: (agent) => homes()?.arrived(agent) ?? Promise.resolve(),
  };
}

/** What the registry pushes about identities takes effect, and it hears of those who show themselves here. */
function follow(
  credentials: Credentials,
  secure: MeshTls | null,
  { client }: Joined,
  config: SidecarConfig,
  onTakenBack: (agent: string, by: Principal | null) => void,
): void {
  const { identity } = client;
  if (identity === null) return;
  identity.onTrust = (trust) => {
    credentials.trust(trust);
    secure?.judgeBy((sidecar, sinceSec) => trust.isRevokedBefore('sidecar', sidecar, sinceSec));
  };
  identity.onTrust(identity.trust);
  credentials.onMet = (agent) => identity.newcomers.met(agent);
  identity.newcomers.onChange = (arriving) => {
    credentials.arriving = arriving;
  };
  const settled = new Set(config.callers.map(({ agent }) => agent));
  credentials.onEnded = (agent) => {
    client.announcer.forget(agent);
    // One that has a token of the settings as well is still known here.
    if (!settled.has(agent)) onTakenBack(agent, null);
  };
  credentials.onRevoked = (principal) => onTakenBack(principal.agent, principal);
}

/** Messages that the outbox has on their way to the stream at once. */
const OUTBOX_WINDOW = 256;
const OUTBOX_TRY_MS = 5_000;

/** Where messages wait while NATS is away. A sidecar that cannot have it does not start: it could not keep what it promises. */
async function outboxOf(
  joined: Joined,
  file: string,
  config: SidecarConfig,
  own: {
    readonly clock: Clock;
    readonly random: Random;
    readonly warn: (words: string) => void;
    readonly never: (data: Buffer, why: string) => void;
    readonly left: (data: Buffer, why: string) => void;
  },
): Promise<Outbox> {
  if (config.stateDir === null) return NO_OUTBOX;
  const [{ DiskOutbox }, { StreamPublisher }] = await Promise.all([import('./send/outbox.ts'), import('../base/stream-publisher.ts')]);
  const { bus } = joined;
  const stream = new StreamPublisher(bus, own.clock, { timeoutMs: OUTBOX_TRY_MS, maxPending: OUTBOX_WINDOW });
  const folder = resolve(dirname(file), config.stateDir, config.name, 'outbox');
  const outbox = await DiskOutbox.open({ folder, maxBytes: config.messages.outboxBytes, bus, stream, ...own });
  if (typeof outbox !== 'string') return outbox;
  stream.close();
  throw new StartRefused([outbox]);
}

/** The table of a file of its own. With a registry it holds agents only. */
function besideTable(config: SidecarConfig): TableReader {
  if (config.registry === null) return (text, name) => readTable(text, name, config.name);
  return (text, name) => {
    const reading = readTable(text, name, config.name, false);
    if ('problems' in reading) return reading;
    const problems = agentsOnlyProblems(reading.document, text, name, config.name);
    return problems.length === 0 ? reading : { problems };
  };
}

function lastGoodOf(file: string, config: SidecarConfig): LastGood | null {
  return config.stateDir === null ? null : new LastGood(resolve(dirname(file), config.stateDir), config.name);
}

/** Everything that is wrong with a file, settings or table, and with the table that settings name, as it would be judged when it is loaded. */
export function problemsIn(text: string, file: string): readonly Problem[] {
  const read: TableReader = (content, name) => {
    if (!holdsSettings(content, name)) return readTable(content, name);
    const reading = readSidecarConfig(content, name);
    if ('problems' in reading) return reading;
    if (reading.tableFile === null) return { document: reading.document ?? NO_TABLE };
    const path = isAbsolute(reading.tableFile) ? reading.tableFile : join(dirname(name), reading.tableFile);
    try {
      return besideTable(reading.config)(readFileSync(path, 'utf8'), path);
    } catch (error) {
      const message = `${path} cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})`;
      return { problems: [{ file: name, line: 1, column: 1, path: '/sidecar/table', message }] };
    }
  };
  const reading = withReachable(read, registerTransports(null), null)(text, file);
  return 'problems' in reading ? reading.problems : [];
}

/** However it is written: YAML or JSON, quoted or not. */
function holdsSettings(text: string, file: string): boolean {
  const { value } = openSource(text, file);
  return typeof value === 'object' && value !== null && 'sidecar' in value;
}

const NO_TABLE: TableDocument = Object.freeze({ contracts: [], providers: [], policies: [], overrides: [], sidecars: [] });

/** The table sections of a file that holds the sidecar's own settings too. */
const inlineTable: TableReader = (text, fileName) => {
  const reading = readSidecarConfig(text, fileName);
  if ('problems' in reading) return reading;
  if (reading.document !== null) return { document: reading.document };
  return reading.config.registry !== null && reading.tableFile === null ? { document: NO_TABLE } : { problems: [moved(fileName)] };
};

function moved(file: string): Problem {
  return { file, line: 0, column: 0, path: '/sidecar/table', message: 'the table has been moved to another file; that takes a restart' };
}

async function opened(port: Port): Promise<Port> {
  await port.open();
  return port;
}

function secretOf(source: Parameters<typeof readSecret>[0]): string {
  try {
    return readSecret(source);
  } catch (error) {
    throw new StartRefused([(error as Error).message]);
  }
}

function urlOf(port: Port, isSecure = false): string {
  const { host } = port.address;
  return host.startsWith('unix:') ? host : `${isSecure ? 'https' : 'http'}://${placeOf(port.address)}`;
}

function placeOf({ host, port }: Port['address']): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`;
}
