/**
 * The four alerts while this replica leads: looks by the clock, keeps what follows under `op.alerts`, and tells operators. An alert is
 * told when it is stored, and marked as told when the receiver took it: at least once, with the same id, whoever leads by then. A
 * receiver that is away costs nobody anything; it gets later what is still to be told.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { Random } from '../../base/random.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import { Tail } from '../../proto/wire/subjects.ts';
import type { AlertNotice } from '../messages/notice.ts';
import type { Change as Message, Written } from '../push/writer.ts';
import type { RegistryEvent } from '../registry/change.ts';
import type { Registry } from '../registry/registry.ts';
import type { Traffic } from '../traffic/traffic.ts';
import { type Alert, type AlertKind, ALERT_KINDS, type Observation, type Patience, type Silence, type StoredAlerts } from './alert.ts';
import { Backlogs, type Look } from './backlogs.ts';
import { AlertBook } from './book.ts';
import { lookAtBreakers } from './breakers.ts';
import { type AlertsConfig, limitsFor } from './config.ts';
import { MORE } from './crowd.ts';
import { type Gone, goneAgents } from './offline.ts';
import { OfflineTimes } from './offline-times.ts';
import { Rises } from './rises.ts';
import { readStored } from './stored.ts';

export interface WatchParts {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly random: Random;
  readonly config: AlertsConfig;
  readonly epoch: string;
  /** null = nothing is heard of traffic here. */
  readonly traffic: Traffic | null;
  registry(): Registry;
  /** Of queues; null = none has been taken yet. */
  backlog(): Look | null;
  /** What is stored under `op.alerts`; null = nothing. */
  stored(): unknown;
  /** The leader's pen. */
  write(messages: readonly Message[]): Promise<Written>;
  /** To operators, once: null when they were taken, else why not. Null itself = there is nobody to tell. */
  readonly deliver: ((notices: readonly AlertNotice[]) => Promise<string | null>) | null;
  onEvent(event: RegistryEvent): void;
}

/** Between two looks. Whole minutes of traffic are looked at when they are over. */
const LOOK_MS = 10_000;
/** Notices in one request. */
const PAGE = 50;
const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 60_000;
/** About five hours. */
const TRIES = 300;
const HOUR_MS = 3_600_000;
/** Between two looks a wall clock goes otherwise by far less, unless somebody has set it. */
const SET_MS = 1_000;
const CALM_MS = 300_000;
const BACK_MS = 60_000;
const AT_ONCE: Patience = { forMs: 0, calmMs: 0, unknownMs: 0 };
const OF_TRAFFIC: Patience = { forMs: 0, calmMs: CALM_MS, unknownMs: HOUR_MS };
/** Longer than the longest window of it. */
const OF_BREAKERS: Patience = { forMs: 0, calmMs: CALM_MS, unknownMs: 3 * HOUR_MS };
/** What each is called in settings. */
const FIELDS = { p95_rise: 'p95', breaker_flapping: 'breakers', backlog: 'backlog', agent_offline: 'offline' } as const;

export class AlertWatch {
  readonly book: AlertBook;
  readonly #parts: WatchParts;
  readonly #rises: Rises | null;
  readonly #backlogs: Backlogs;
  readonly #offlineTimes = new OfflineTimes();
  /** What the wall clock is ahead of the one that does not jump. */
  #aheadMs: number;
  #lookedMs = Number.NEGATIVE_INFINITY;
  #isDirty = false;
  #isStoring = false;
  #isTelling = false;
  /** Those of which somebody is being told at present. */
  #beingTold: ReadonlySet<string> = new Set();
  #tries = 0;
  /** As far as it has been said. */
  #dropped = 0;
  #pause: Timer | null = null;
  #isEnded = false;
  /** Why the receiver did not take the last ones; '' = it did. */
  trouble = '';

  constructor(parts: WatchParts) {
    this.#parts = parts;
    const { traffic, config, clock } = parts;
    this.book = new AlertBook(REGISTRY_WIRE, parts.epoch);
    const stored = readStored(parts.stored());
    if (stored !== null) this.book.load(stored, clock.wallMs());
    this.#aheadMs = clock.wallMs() - clock.now();
    this.#rises = traffic === null ? null : new Rises(traffic, config, clock);
    this.#backlogs = new Backlogs(config, clock);
  }

  /** To be called a few times a second, while sidecars can be heard and what is decided can be written. */
  tick(): void {
    if (this.#isEnded) return;
    this.#followClock();
    const { clock, config, traffic } = this.#parts;
    const now = clock.now();
    if (this.#rises !== null) this.#take(this.#rises.look(this.book.active('p95_rise')), OF_TRAFFIC);
    if (now - this.#lookedMs >= LOOK_MS) {
      this.#lookedMs = now;
      if (traffic !== null) {
        this.#take(lookAtBreakers(traffic, config, clock, this.book.active('breaker_flapping')), OF_BREAKERS);
        if (now - traffic.sinceMs >= config.breakers.windowMs) this.book.judged('breaker_flapping', clock.wallMs());
      }
      this.#take(this.#backlogs.look(this.#parts.backlog(), this.book.active('backlog')), OF_TRAFFIC);
      if (config.offline.enabled) this.#lookAtAgents();
      this.#letGo();
      this.#tidy();
    }
    this.#store();
    this.#tell();
  }

  end(): void {
    this.#isEnded = true;
    this.#pause?.cancel();
  }

  // ---- orders of operators

  silence(silence: Omit<Silence, 'id'>): Silence | string {
    this.#followClock();
    const made = this.book.silence(silence);
    if (typeof made !== 'string') this.#isDirty = true;
    return made;
  }

  unsilence(id: string): Silence | null {
    const lifted = this.book.unsilence(id);
    if (lifted !== null) this.#isDirty = true;
    return lifted;
  }

  /** What an export holds. */
  takeIn(stored: StoredAlerts): void {
    this.#followClock();
    if (this.book.takeIn(stored, this.#parts.clock.wallMs())) this.#isDirty = true;
  }

  /** Written, when an order is to be answered. */
  save(): Promise<Written> {
    this.#isDirty = false;
    return this.#write();
  }

  // ---- looks

  /** A clock that was set is no time that has passed: nothing fires or ends by it, and no silence gets longer or shorter. */
  #followClock(): void {
    const { clock, logger } = this.#parts;
    const aheadMs = clock.wallMs() - clock.now();
    const byMs = aheadMs - this.#aheadMs;
    this.#aheadMs = aheadMs;
    if (Math.abs(byMs) < SET_MS) return;
    this.book.shift(byMs);
    this.#isDirty = true;
    logger.warn({ by_ms: Math.round(byMs) }, 'the wall clock was set: times of alerts and silences are moved with it');
  }

  #take(seen: readonly Observation[], patience: Patience): void {
    const wallMs = this.#parts.clock.wallMs();
    for (const one of seen) {
      const before = this.book.find(one.kind, one.subject);
      if (!this.book.observe(one, patience, wallMs)) continue;
      this.#isDirty = true;
      const after = this.book.alerts.find(({ id }) => id === before?.id) ?? this.book.find(one.kind, one.subject);
      if (after !== null && after.state !== 'pending' && after.state !== before?.state) this.#announce(after);
    }
  }

  #lookAtAgents(): void {
    const { clock, config } = this.#parts;
    const registry = this.#parts.registry();
    const wallMs = clock.wallMs();
    const providers = this.#offlineTimes.corrected(registry.providers(), wallMs, clock.now());
    const gone = goneAgents(providers, registry.sidecars(), registry.held());
    const patience = { forMs: config.offline.forMs, calmMs: BACK_MS, unknownMs: HOUR_MS };
    this.#take(gone.map(observationOf), patience);
    this.book.judged('agent_offline', wallMs);
    const groups = gone.filter(({ subject }) => !providers.some(({ agent }) => agent === subject));
    for (const alert of this.book.active('agent_offline')) {
      if (gone.some(({ subject }) => subject === alert.subject)) continue;
      const group = groups.find((one) => isWithin(alert, one));
      if (group === undefined) this.#take([{ ...observation(alert), grade: 'good', words: backWords(alert) }], patience);
      else {
        // Until the larger one fires, the smaller one stays as it is.
        const into = this.book.find('agent_offline', group.subject);
        if (into?.state !== 'firing') continue;
        this.book.absorb(alert, into.id, wallMs, this.#isTelling && this.#beingTold.has(alert.id));
        this.#isDirty = true;
      }
    }
  }

  #tidy(): void {
    const wallMs = this.#parts.clock.wallMs();
    this.#take(
      ALERT_KINDS.flatMap((kind) => (this.#isAnyOn(kind) ? (this.book.crowd(kind, wallMs) ?? []) : [])),
      OF_TRAFFIC,
    );
    if (this.book.tidy(wallMs, this.#isTelling ? this.#beingTold : undefined)) this.#isDirty = true;
    const { dropped } = this.book;
    if (dropped > this.#dropped)
      this.#parts.logger.error(
        { alerts: dropped - this.#dropped },
        'alerts were let go of before operators were told: too many wait for it',
      );
    this.#dropped = dropped;
  }

  /** What has been switched off leaves nothing behind. */
  #letGo(): void {
    for (const kind of ALERT_KINDS) {
      for (const alert of this.book.active(kind)) if (!this.#isOn(alert)) this.#switchedOff(alert);
      const more = this.book.find(kind, MORE);
      if (more !== null && !this.#isAnyOn(kind)) this.#switchedOff(more);
    }
  }

  #switchedOff(alert: Alert): void {
    this.#take([{ ...observation(alert), grade: 'good', words: 'this alert has been switched off' }], AT_ONCE);
  }

  /** For all capabilities, or for some. */
  #isAnyOn(kind: AlertKind): boolean {
    const { config } = this.#parts;
    const field = FIELDS[kind];
    return config[field].enabled || (field !== 'offline' && config.capabilities.some((one) => one[field]?.enabled === true));
  }

  #isOn({ kind, capability }: Alert): boolean {
    const { config } = this.#parts;
    const { p95, breakers, backlog } = capability === null ? config : limitsFor(config, capability);
    switch (kind) {
      case 'p95_rise':
        return p95.enabled;
      case 'breaker_flapping':
        return breakers.enabled;
      case 'backlog':
        return backlog.enabled;
      case 'agent_offline':
        return config.offline.enabled;
    }
  }

  #announce(alert: Alert): void {
    const { logger, clock } = this.#parts;
    const words = `alert ${alert.id} ${alert.state === 'firing' ? 'fires' : 'is resolved'}: ${alert.words}`;
    const trace = alert.traceId === null ? null : { trace_id: alert.traceId };
    logger[alert.state === 'firing' ? 'warn' : 'info']({ alert: alert.id, kind: alert.kind, subject: alert.subject, ...trace }, words);
    this.#parts.onEvent({
      kind: 'alert',
      agent: alert.kind === 'agent_offline' ? (alert.agent ?? '') : '',
      sidecar: alert.sidecar ?? '',
      why: '',
      words,
      atMs: clock.wallMs(),
    });
  }

  // ---- what is stored and told

  #store(): void {
    if (!this.#isDirty || this.#isStoring) return;
    this.#isDirty = false;
    void this.#write();
  }

  async #write(): Promise<Written> {
    this.#isStoring = true;
    const written = await this.#parts.write([{ tail: Tail.alerts, text: JSON.stringify(this.book.stored) }]);
    this.#isStoring = false;
    if (!written.ok) this.#isDirty = true;
    return written;
  }

  #tell(): void {
    if (this.#isDirty || this.#isStoring || this.#isTelling || this.#pause !== null) return;
    const untold = this.book.untold(this.#parts.clock.wallMs()).slice(0, PAGE);
    if (untold.length === 0) return;
    const { deliver } = this.#parts;
    if (deliver === null) return this.#told(untold);
    this.#isTelling = true;
    this.#beingTold = new Set(untold.map(({ alert }) => alert.id));
    void deliver(untold.map(({ alert, state }) => noticeOf(this.#parts.epoch, alert, state))).then((problem) => {
      this.#isTelling = false;
      if (this.#isEnded) return;
      if (problem === null) {
        this.#tries = 0;
        this.trouble = '';
        this.#told(untold);
      } else this.#again(problem, untold);
    });
  }

  #again(problem: string, untold: readonly { readonly alert: Alert; readonly state: 'firing' | 'resolved' }[]): void {
    const { logger, clock, random } = this.#parts;
    this.trouble = problem;
    this.#tries++;
    if (this.#tries === 1) logger.warn(`alerts do not get through to operators: ${problem}`);
    if (this.#tries >= TRIES) {
      logger.error({ alerts: untold.map(({ alert }) => alert.id) }, `given up after ${TRIES} tries: see them with reachctl alerts list`);
      this.#tries = 0;
      return this.#told(untold);
    }
    const pauseMs = Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(this.#tries - 1, 10)) * (0.75 + random.next() / 2);
    this.#pause = clock.after(pauseMs, () => {
      this.#pause = null;
    });
  }

  #told(untold: readonly { readonly alert: Alert; readonly state: 'firing' | 'resolved' }[]): void {
    const ids = new Map<string, Set<'firing' | 'resolved'>>();
    for (const { alert, state } of untold) ids.set(alert.id, (ids.get(alert.id) ?? new Set()).add(state));
    this.book.told(ids);
    this.#isDirty = true;
  }
}

function observationOf({ subject, agents, sidecars, sinceMs, words }: Gone): Observation {
  const isAgent = agents.length === 1 && agents[0] === subject;
  return {
    kind: 'agent_offline',
    subject,
    grade: 'bad',
    words,
    value: agents.length,
    limit: 0,
    capability: null,
    agent: isAgent ? subject : null,
    sidecar: sidecars.length === 1 ? (sidecars[0] as string) : null,
    traceId: null,
    look: isAgent ? 'reachctl providers list' : 'reachctl sidecars list',
    held: null,
    beganMs: sinceMs,
  };
}

function observation(alert: Alert): Observation {
  const { kind, subject, words, value, limit, capability, agent, sidecar, traceId, look, held } = alert;
  return { kind, subject, grade: 'unknown', words, value, limit, capability, agent, sidecar, traceId, look, held, beganMs: null };
}

function isWithin({ agent, sidecar, subject }: Alert, group: Gone): boolean {
  if (agent !== null) return group.agents.includes(agent);
  return subject.startsWith('sidecar:') && sidecar !== null && group.sidecars.includes(sidecar) && group.subject !== subject;
}

function backWords({ subject, agent, sidecar }: Alert): string {
  if (agent !== null) return `${agent} is back, or was taken out on purpose`;
  return sidecar !== null ? `agents of the sidecar ${sidecar} are back` : `agents of ${subject} are back`;
}

function noticeOf(epoch: string, alert: Alert, state: 'firing' | 'resolved'): AlertNotice {
  return {
    id: `${epoch}/alert/${alert.id}/${state}`,
    kind: 'alert',
    alert: alert.kind,
    state,
    subject: alert.subject,
    detail: alert.words,
    value: alert.value,
    limit: alert.limit,
    capability: alert.capability,
    agent: alert.agent,
    sidecar: alert.sidecar,
    trace_id: alert.traceId,
    since: new Date(alert.sinceMs).toISOString(),
    resolved: alert.resolvedMs === null || state === 'firing' ? null : new Date(alert.resolvedMs).toISOString(),
    hint: alert.look,
  };
}
