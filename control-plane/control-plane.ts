/**
 * The composition root of one replica: what is made, in which order it starts, what follows when the connection comes or
 * goes, when the lease comes or goes, and when the stream turns out to be another one; in which order it stops.
 */
import { readFileSync } from 'node:fs';
import { Bus } from '../base/nats.ts';
import { type Clock, realClock, type Timer } from '../base/clock.ts';
import type { Log, Logger } from '../base/log.ts';
import { type Random, systemRandom } from '../base/random.ts';
import { readSecret } from '../base/secret.ts';
import type { Ask } from '../proto/wire/registry.ts';
import { AUDIT_STREAM, CONTROL, CONTROL_STREAM, Subjects } from '../proto/wire/subjects.ts';
import { Operators } from './api/operators.ts';
import { Audit } from './audit/audit.ts';
import { AuditBook } from './audit/book.ts';
import { auditFullness, readyAuditStreams } from './audit/streams.ts';
import type { AskAnswer, LeaderFacts, Plane } from './api/plane.ts';
import { allRoutes } from './api/routes.ts';
import { ApiPort } from './api/server.ts';
import { sessionRoutes } from './api/session.ts';
import { Site } from './api/site.ts';
import { RequestCounts } from './api/metrics.ts';
import { readExport } from './api/state.ts';
import type { ControlPlaneConfig } from './config.ts';
import type { IdentityState } from './identity/book.ts';
import type { IdentityConfig } from './identity/config.ts';
import { type KeyRing, readKeyRing } from './identity/keys.ts';
import { Leadership } from './leader.ts';
import { NatsFlush } from './nats-flush.ts';
import { readCredential, tlsFiles } from './nats-credential.ts';
import { Admission } from './push/admission.ts';
import { FollowerCopy } from './push/copy.ts';
import { Fleet } from './push/fleet.ts';
import { Following } from './push/following.ts';
import { Journal } from './push/journal.ts';
import { encode, parse } from './push/json.ts';
import { Leading } from './push/leading.ts';
import { Mirror } from './push/mirror.ts';
import { OverrideDesk } from './overrides/desk.ts';
import { Overview } from './overview/overview.ts';
import { QueueLook } from './overview/queue-facts.ts';
import { Prober } from './push/prober.ts';
import { readEpoch, readyStreams } from './push/streams.ts';
import type { RegistryEvent } from './registry/change.ts';
import type { Registry } from './registry/registry.ts';
import { EndedBook } from './sessions/ended.ts';
import { Sessions } from './sessions/sessions.ts';
import { TraceDesk } from './traces/desk.ts';
import { hearDigests } from './traffic/hearing.ts';
import { Traffic } from './traffic/traffic.ts';

/** Settings it cannot be started with; the message is for the person who wrote them. */
export class StartRefused extends Error {
  readonly lines: readonly string[];
  constructor(lines: readonly string[]) {
    super(lines.join('\n'));
    this.lines = lines;
  }
}

const RETRY_MS = 1_000;
/** How often it is looked whether the stream is still the same one. */
const WATCH_MS = 2_000;
const ASK_MS = 3_000;
/** What waits for NATS at the end has this long. */
const FLUSH_MS = 2_000;
const MAX_OFFSETS = 12;
/** Characters of a token. Whoever is right gets in whatever was tried before (`sessions/tries.ts`): length alone withstands guessing. */
const SHORT_CHARS = 16;

export class ControlPlane implements Plane {
  readonly name: string;
  readonly env: string;
  readonly version: string;
  readonly clock: Clock;
  readonly mirror = new Mirror();
  readonly fleet: Fleet;
  readonly journal: Journal;
  readonly audit: Audit;
  readonly auditBook: AuditBook;
  readonly overrides: OverrideDesk;
  readonly traffic: Traffic;
  readonly traces: TraceDesk;
  readonly api: ApiPort;
  readonly counts = new RequestCounts();
  epoch = '';
  leading: Leading | null = null;
  readonly #config: ControlPlaneConfig;
  readonly #log: Log;
  readonly #logger: Logger;
  readonly #subjects: Subjects;
  /** For what this replica reads and writes itself: its lease must not wait behind a crowd that registers. */
  readonly #bus: Bus;
  readonly #natsFlush: NatsFlush;
  /** For what sidecars say. */
  readonly #inbound: Bus;
  readonly #prober: Prober;
  readonly #admission: Admission;
  readonly #copy: FollowerCopy;
  readonly #following: Following;
  readonly #watchers = new Set<(event: RegistryEvent) => void>();
  readonly #random: Random;
  readonly #restoreFile: string | null;
  readonly #keys: KeyRing | null;
  readonly #endedSessions: EndedBook;
  /** What has been issued, should the stream lose it. */
  readonly #identities = new Map<string, IdentityState>();
  #leadership: Leadership | null = null;
  #isFollowing = false;
  #isStopping = false;
  #arriving = false;
  #taking = false;
  #retry: Timer | null = null;
  #watch: Timer | null = null;
  #streamWarnings: readonly string[] = [];
  #auditWarnings: readonly string[] = [];
  #auditFull: string | null = null;
  #trouble = '';
  /** Differences of the server's clock and ours, newest last; the largest is nearest to the truth. */
  readonly #offsets: number[] = [];

  /** @param restoreFile absolute path of the export that is taken in when the stream is empty; null = none. */
  constructor(
    config: ControlPlaneConfig,
    log: Log,
    version: string,
    restoreFile: string | null,
    clock: Clock = realClock,
    random: Random = systemRandom,
  ) {
    this.name = config.name;
    this.env = config.env;
    this.version = version;
    this.clock = clock;
    this.#config = config;
    this.#log = log;
    this.#logger = log.logger;
    this.#random = random;
    this.#restoreFile = restoreFile;
    this.#subjects = new Subjects(config.env, CONTROL);
    this.fleet = new Fleet(this.mirror, config.reportsMissingMs);
    this.traffic = new Traffic(clock);
    this.#copy = new FollowerCopy(this.mirror, clock, config.leases);
    this.#prober = new Prober(config.addresses, clock);
    this.#admission = new Admission(config.addresses, clock);
    this.#admission.bus(config.nats.url.split(',').map((each) => each.trim()));
    this.#keys = config.identity === null ? null : keysOf(config.identity);
    const tokens = config.api.operators.map(({ name, role, token }) => ({ name, role, token: secretOf(token) }));
    for (const { name, token } of tokens)
      if (token.length < SHORT_CHARS)
        this.#logger.warn(`the token of operator ${name} has fewer than ${SHORT_CHARS} characters: it can be guessed; use 32 random bytes`);
    const operators = new Operators(tokens);
    const { credential, tls } = config.nats;
    try {
      readCredential(credential);
    } catch (error) {
      throw new StartRefused([(error as Error).message]);
    }
    const connect = (what: string): Bus =>
      Bus.open({
        servers: config.nats.url.split(',').map((each) => each.trim()),
        name: `reach-control ${config.name} ${what}`,
        clock,
        random,
        inboxPrefix: `_INBOX.${CONTROL}`,
        notice: (level, words) => this.#logger[level]({ connection: what }, words),
        ...(tls === null ? null : { tls: tlsFiles(tls) }),
        credential: () => readCredential(credential),
      });
    this.#bus = connect('own');
    this.#natsFlush = new NatsFlush(config.nats.monitor, clock);
    this.#inbound = connect('sidecars');
    this.#following = new Following({
      bus: this.#bus,
      inbound: this.#inbound,
      subjects: this.#subjects,
      clock,
      mirror: this.mirror,
      copy: this.#copy,
      fleet: this.fleet,
      epoch: () => this.epoch,
      isLeading: () => this.leading !== null,
    });
    this.audit = new Audit({ bus: this.#bus, subjects: this.#subjects, clock, logger: this.#logger, writer: config.name });
    this.auditBook = new AuditBook(this.#bus, this.#subjects);
    this.overrides = new OverrideDesk({
      bus: this.#bus,
      inbound: this.#inbound,
      subjects: this.#subjects,
      clock,
      random,
      logger: this.#logger,
      fleet: this.fleet,
      audit: this.audit,
      name: config.name,
      replicas: config.nats.replicas,
      left: () =>
        new Set(
          this.registry()
            .sidecars()
            .flatMap(({ sidecar, status }) => (status === 'left' ? [sidecar] : [])),
        ),
    });
    this.journal = new Journal(this.#bus, this.#subjects, this.#logger);
    hearDigests(this.#inbound, this.#subjects, this.traffic);
    this.traces = new TraceDesk({
      bus: this.#bus,
      inbound: this.#inbound,
      subjects: this.#subjects,
      clock,
      config: config.traces,
      name: config.name,
      traffic: this.traffic,
      serves: (agent) =>
        this.epoch !== '' &&
        this.registry()
          .providers()
          .some((one) => one.agent === agent),
    });
    const sessions = new Sessions({ operators, env: config.env, sessionMs: config.console.sessionMs, clock });
    this.#endedSessions = new EndedBook({ bus: this.#bus, subjects: this.#subjects, sessions, clock });
    const publicHost = config.api.publicUrl === null ? [] : [new URL(config.api.publicUrl).hostname.toLowerCase()];
    this.api = new ApiPort(
      {
        listen: config.api.listen,
        allowedHosts: [...config.api.allowedHosts, ...publicHost],
        bodyBytes: config.api.bodyBytes,
        connections: config.api.connections,
        operators,
        sessions: config.console.isServed ? sessions : null,
        site: config.console.isServed ? Site.beside() : null,
        leader: () => ({ isLeading: this.leading !== null, url: this.leader()?.url ?? null }),
        clock,
        logger: this.#logger,
        audit: this.audit,
        count: (route, status) => this.counts.add(route, status),
      },
      allRoutes(
        this,
        new Overview(this, new QueueLook(this.#bus, this.#subjects, clock)),
        config.console.isServed ? sessionRoutes({ plane: this, operators, sessions, book: this.#endedSessions }) : [],
      ),
    );
  }

  /** Where reachctl and the other replicas reach it. */
  get url(): string {
    return this.#config.api.publicUrl ?? this.api.url;
  }

  get natsConnected(): boolean {
    return this.#bus.connected;
  }

  get natsVersion(): string {
    return this.#bus.serverVersion;
  }

  natsFlush(): Promise<string> {
    return this.#natsFlush.words();
  }

  get status(): Plane['status'] {
    if (this.#isStopping) return 'stopping';
    if (this.leading !== null) return 'leading';
    return this.#isFollowing ? 'following' : 'starting';
  }

  /** Opens the API and goes looking for NATS, for as long as it takes. Rejects when the port cannot be had. */
  async start(): Promise<void> {
    try {
      await this.api.open();
    } catch (error) {
      await Promise.all([this.#bus.close(), this.#inbound.close()]);
      throw new StartRefused([(error as Error).message]);
    }
    this.#admission.own('', this.url);
    const { ttlMs, renewMs } = this.#config.leader;
    this.#leadership = new Leadership(
      this.#bus,
      this.clock,
      this.env,
      { id: this.name, url: this.url },
      {
        random: this.#random,
        times: { renewMs, holdMs: Math.round(ttlMs * 0.75), expiryMs: ttlMs },
        notice: (level, words) => this.#logger[level](words),
      },
    );
    this.#leadership.onChange((role) => {
      if (role === 'leader') void this.#take();
      else this.#leave('it does not hold the lease any more');
    });
    this.#bus.onState(({ connected }) => {
      if (connected) void this.#arrive();
    });
    this.#inbound.onState(({ connected }) => {
      if (connected) this.fleet.hearsAgain(this.clock.now());
    });
    if (this.#bus.connected) void this.#arrive();
    this.#watchAgain();
  }

  /** Gives the lease back, so that another replica takes over at once; then lets everything end. */
  async stop(graceMs: number): Promise<void> {
    if (this.#isStopping) return;
    this.#isStopping = true;
    for (const timer of [this.#retry, this.#watch]) timer?.cancel();
    this.#following.stop();
    this.overrides.stop();
    this.traces.stop();
    const closing = this.api.close(graceMs);
    if (this.leading !== null) await this.#flushed(this.leading);
    this.#leave('it is stopping');
    await this.#leadership?.stop();
    await closing;
    await this.audit.stop(FLUSH_MS);
    await Promise.all([this.#bus.close(), this.#inbound.close()]);
    this.#log.flush();
  }

  registry(): Registry {
    return this.leading?.registry ?? this.#copy.registry(this.epoch);
  }

  leader(): LeaderFacts | null {
    const leader = this.#leadership?.leader() ?? null;
    if (leader === null) return null;
    return {
      holder: leader.id,
      url: leader.url,
      term: this.#leadership?.term ?? 0,
      isSelf: this.leading !== null && leader.id === this.name,
    };
  }

  warnings(): readonly string[] {
    const warnings: string[] = [];
    if (this.#trouble !== '') warnings.push(this.#trouble);
    if (!this.#bus.connected) warnings.push(`no connection to NATS: ${this.#bus.state.why}`);
    else if (this.leader() === null) warnings.push('no replica leads at present');
    for (const { reason } of this.leading?.held ?? []) warnings.push(`held back: ${reason}`);
    warnings.push(...(this.leading?.messages.warnings ?? []));
    const untold = this.leading?.alerts.trouble ?? '';
    if (untold !== '') warnings.push(`alerts do not get through to operators: ${untold}`);
    if (this.overrides.trouble !== '') warnings.push(this.overrides.trouble);
    if (this.#bus.serverWarning !== null) warnings.push(this.#bus.serverWarning);
    if (this.#auditFull !== null) warnings.push(this.#auditFull);
    const { waiting, lost } = this.audit.counts;
    if (this.audit.why !== '' && waiting > 0)
      warnings.push(
        `the audit log takes nothing at present (${this.audit.why}): ${waiting} entries wait, and stand in the log of this replica`,
      );
    if (lost > 0) warnings.push(`${lost} entries found no room to wait for the audit log: they stand in the log of this replica alone`);
    return [...warnings, ...this.#auditWarnings, ...this.#streamWarnings];
  }

  watch(listener: (event: RegistryEvent) => void): () => void {
    this.#watchers.add(listener);
    return () => void this.#watchers.delete(listener);
  }

  async ask(sidecar: string, ask: Ask): Promise<AskAnswer> {
    const reply = await this.#bus.request(this.#subjects.ask(sidecar), encode(ask), ASK_MS, undefined, sidecar);
    switch (reply.kind) {
      case 'ok':
        return answerOf(reply.message.data, sidecar);
      case 'no_responder':
        return { kind: 'absent', why: `no sidecar called ${sidecar} is connected at present` };
      case 'timeout':
        return { kind: 'late', why: `the sidecar ${sidecar} did not answer within ${ASK_MS / 1_000} s` };
      case 'unreachable':
        return { kind: 'away', why: 'NATS is away' };
      case 'refused':
        return { kind: 'refused', why: reply.why };
    }
  }

  // ---- the connection and the stream

  /** There is a connection: makes sure of the streams, reads what they hold, listens, stands for election. */
  async #arrive(): Promise<void> {
    if (this.#arriving || this.#isStopping) return;
    this.#arriving = true;
    const problem = await this.#settleIn();
    this.#arriving = false;
    if (this.#isStopping) return;
    if (problem !== null) {
      if (this.#bus.connected) this.#logger.error(`not ready: ${problem}`);
      this.#trouble = problem;
      this.#retry?.cancel();
      this.#retry = this.clock.after(RETRY_MS, () => {
        if (this.#bus.connected) void this.#arrive();
      });
      return;
    }
    this.#trouble = '';
    this.#isFollowing = true;
    this.#leadership?.start();
  }

  async #settleIn(): Promise<string | null> {
    // First: the red button must not wait for anything else to be in order.
    const overrides = await this.overrides.arrive();
    if (overrides !== null) this.#logger.error(overrides);
    const ready = await readyStreams(this.#bus, this.#subjects, this.#config.nats.replicas);
    if ('failed' in ready) return ready.failed;
    this.#streamWarnings = ready.warnings;
    for (const warning of ready.warnings) this.#logger.warn(warning);
    await this.#readyAudit();
    void this.#endedSessions.arrive();
    if (ready.epoch !== this.epoch) this.#newEpoch(ready.epoch, ready.isNew);
    else if (this.leading !== null) this.leading.recover();
    return this.#following.begin();
  }

  /** That there is none stops nobody: orders are then answered with a warning. */
  async #readyAudit(): Promise<void> {
    this.#auditWarnings = await readyAuditStreams(this.#bus, this.#subjects, this.#config.audit, this.#config.nats.replicas);
    for (const warning of this.#auditWarnings) this.#logger.warn(warning);
    this.audit.nudge();
    await this.#lookAtAudit();
  }

  async #lookAtAudit(): Promise<void> {
    const facts = await this.#bus.stream(AUDIT_STREAM);
    if (facts !== null && 'failed' in facts) return;
    // Somebody has deleted it: it is made anew, and the chains of the writers tell.
    if (facts === null && this.#bus.connected) {
      this.#auditWarnings = await readyAuditStreams(this.#bus, this.#subjects, this.#config.audit, this.#config.nats.replicas);
      this.#logger.error(
        'THE AUDIT LOG WAS DELETED FROM NATS and is made anew: what it held is gone, but for exports and the logs of the replicas',
      );
      this.audit.nudge();
    }
    const full = auditFullness(facts);
    if (full !== null && full !== this.#auditFull) this.#logger.warn(full);
    this.#auditFull = full;
  }

  #newEpoch(epoch: string, isNew: boolean): void {
    const before = this.epoch;
    this.epoch = epoch;
    if (before !== '') {
      this.#logger.error(
        { before, epoch },
        'THE STREAM WAS DELETED AND MADE ANEW: everything it held is gone. Sidecars register again by themselves; what operators had applied comes back with `reachctl import` of an export',
      );
      this.#rememberIdentities();
      this.mirror.replace([], 0);
      this.#copy.drop();
      const wasLeading = this.leading !== null;
      this.#leave('the stream has been made anew');
      if (wasLeading) void this.#take();
    } else
      this.#logger.info({ epoch, new_stream: isNew }, isNew ? 'a new, empty configuration stream' : 'the configuration stream is there');
  }

  /** What was taken back must not count again because the stream is gone. */
  #rememberIdentities(): void {
    for (const tail of this.mirror.tails('ident.')) {
      const state = this.mirror.state<IdentityState>(tail);
      if (state !== null) this.#identities.set(tail, state);
    }
  }

  /** Looks now and then whether the stream is still there and the same. */
  #watchAgain(): void {
    this.#watch = this.clock.after(WATCH_MS, () => {
      void this.#look().finally(() => {
        if (!this.#isStopping) this.#watchAgain();
      });
    });
  }

  async #look(): Promise<void> {
    if (!this.#bus.connected || !this.#isFollowing) return;
    const epoch = await readEpoch(this.#bus, this.#subjects);
    const isGone = epoch === null || (typeof epoch === 'string' && epoch !== this.epoch);
    // A stream that is not there answers a direct get with silence.
    const failed = epoch !== null && typeof epoch === 'object';
    if (isGone || failed) await this.#arrive();
    await this.#measureClock();
    await this.#lookAtAudit();
  }

  async #measureClock(): Promise<void> {
    if (this.leading === null) return;
    const renewed = await this.#bus.last(CONTROL_STREAM, this.#subjects.leader);
    if (renewed === null || 'failed' in renewed || this.leading === null) return;
    this.#offsets.push(renewed.timestampMs - this.clock.wallMs());
    if (this.#offsets.length > MAX_OFFSETS) this.#offsets.shift();
    this.leading.serverAheadMs = Math.max(...this.#offsets);
  }

  // ---- the lease

  async #take(): Promise<void> {
    if (this.#taking || this.leading !== null || this.#isStopping || this.#leadership?.isLeader !== true) return;
    this.#taking = true;
    const leading = await Leading.begin({
      bus: this.#bus,
      inbound: this.#inbound,
      subjects: this.#subjects,
      mirror: this.mirror,
      clock: this.clock,
      logger: this.#logger,
      leases: this.#config.leases,
      prober: this.#prober,
      admission: this.#admission,
      pendingMax: this.#config.pendingMax,
      random: this.#random,
      messages: this.#config.messages,
      alerts: this.#config.alerts,
      traffic: this.traffic,
      identity:
        this.#keys === null || this.#config.identity === null
          ? null
          : { config: this.#config.identity, keys: this.#keys, env: this.env, remembered: this.#identities },
      audit: this.audit,
      replicas: this.#config.nats.replicas,
      epoch: this.epoch,
      term: this.#leadership.term,
      onLost: (why) => this.#lost(why),
      onEvent: (event) => this.#happened(event),
    });
    this.#taking = false;
    if ('failed' in leading) {
      this.#trouble = `this replica holds the lease but cannot lead: ${leading.failed}`;
      this.#logger.error(this.#trouble);
      // Perhaps another one can.
      await this.#leadership.resign();
      return;
    }
    if (!this.#leadership.isLeader || this.#isStopping) return leading.end('the lease was lost meanwhile');
    this.#trouble = '';
    this.leading = leading;
    this.#copy.drop();
    if (this.mirror.size === 0 && this.#restoreFile !== null) await this.#restore(leading, this.#restoreFile);
  }

  #leave(why: string): void {
    const { leading } = this;
    if (leading === null) return;
    this.leading = null;
    leading.end(why);
    this.api.endStreams();
    if (!this.#isStopping) this.#logger.warn({ term: leading.term }, `leads no longer: ${why}`);
    this.#following.rereadSoon();
  }

  /** The pen found out that it is void. */
  #lost(why: string): void {
    this.#leave(why);
    void this.#leadership?.resign();
    void this.#arrive();
  }

  async #restore(leading: Leading, file: string): Promise<void> {
    let text: string;
    try {
      text = readFileSync(file, 'utf8');
    } catch (error) {
      this.#logger.error({ file }, `the export cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'}): nothing is restored`);
      return;
    }
    const read = readExport(text);
    if (typeof read === 'string') return this.#logger.error({ file }, `nothing is restored: ${read}`);
    const written = await leading.import(read.registrations, read.operators, read.identities, read.alerts);
    if (written.ok) this.#logger.warn({ file, sidecars: read.registrations.length }, 'the stream was empty: restored from the export');
    else this.#logger.error({ file }, `nothing is restored: ${written.why}`);
  }

  async #flushed(leading: Leading): Promise<void> {
    const until = this.clock.now() + FLUSH_MS;
    while (leading.writer.pending > 0 && leading.writer.state === 'open' && this.clock.now() < until)
      await new Promise<void>((done) => void this.clock.after(20, done));
  }

  #happened(event: RegistryEvent): void {
    this.#logger.info({ event: event.kind, agent: event.agent, sidecar: event.sidecar, why: event.why }, event.words);
    for (const watcher of this.#watchers) watcher(event);
  }
}

function keysOf(config: IdentityConfig): KeyRing {
  try {
    return readKeyRing(config);
  } catch (error) {
    throw new StartRefused([(error as Error).message]);
  }
}

function secretOf(source: Parameters<typeof readSecret>[0]): string {
  try {
    return readSecret(source);
  } catch (error) {
    throw new StartRefused([(error as Error).message]);
  }
}

function answerOf(data: Buffer, sidecar: string): AskAnswer {
  const answer = parse(data) as { readonly ok?: boolean; readonly problem?: string; readonly explanation?: unknown } | null;
  if (answer === null) return { kind: 'refused', why: `the sidecar ${sidecar} answered with something that is not JSON` };
  if (answer.ok !== true) return { kind: 'refused', why: answer.problem ?? `the sidecar ${sidecar} gave no reason` };
  return { answer: answer.explanation ?? answer };
}
