/**
 * What follows from what the judges say: pending, firing, resolved. One alert for each subject; it fires once it has been bad for
 * long enough, and is resolved once it has been good for long enough, so that what swings around a limit is one alert and not thirty.
 * Not knowing changes nothing for an hour, so that a restart, a sink that was away or a new leader neither ends an alert nor begins
 * one. All times are wall-clock: what is stored is gone on with by the next leader. When the wall clock is set, all of them are moved
 * with it (`shift`), so that what has passed stays what has passed. What is to be written and told is read from it.
 *
 * Each kind has room of its own, so that a flood of one does not shut out the one of another kind that explains it. What fires takes
 * the place of what is only pending; what fires and finds no room is told as one alert of its kind (crowd.ts). Alerts of regions and
 * of the fleet have room apart from those of agents, which they take into themselves.
 */
import { type Alert, type AlertKind, covers, type Observation, type Patience, type Silence, type StoredAlerts } from './alert.ts';
import { Crowd, MORE } from './crowd.ts';
import { FLEET, isGroup } from './offline.ts';

/** Of one kind, those that are pending or fire, each by itself; of those that stand for a whole region as many again. */
export const MAX_OF_KIND = 50;
/** Of those of which nothing is to be told any more. */
export const MAX_RESOLVED = 100;
/** Of those that are over and of which operators are still to be told: the receiver is away. */
export const MAX_OWED = 200;
export const MAX_SILENCES = 200;
/** How long what is resolved is shown. */
const RESOLVED_KEPT_MS = 86_400_000;
/** A pending one that comes to nothing and is not clearly good is let go after so long. */
const PENDING_MOST_MS = 3_600_000;
const MAX_WORDS = 600;

export class AlertBook {
  readonly #epoch: string;
  readonly #wire: number;
  #alerts: Alert[] = [];
  #silences: Silence[] = [];
  #lastAlert = 0;
  #lastSilence = 0;
  readonly #crowd = new Crowd();
  /** Alerts that were let go of before operators were told all of them; also what an import held and there was no room for. */
  dropped = 0;

  constructor(wire: number, epoch: string) {
    this.#wire = wire;
    this.#epoch = epoch;
  }

  /** Newest first. */
  get alerts(): readonly Alert[] {
    return this.#alerts;
  }

  get silences(): readonly Silence[] {
    return this.#silences;
  }

  get stored(): StoredAlerts {
    return {
      wire: this.#wire,
      epoch: this.#epoch,
      lastAlert: this.#lastAlert,
      lastSilence: this.#lastSilence,
      alerts: this.#alerts,
      silences: this.#silences,
    };
  }

  /** What was stored before, perhaps by a replica whose clock reads otherwise: nothing of it is later than now. */
  load(stored: StoredAlerts, nowMs: number): void {
    this.#alerts = stored.alerts.map((one) => notAfter(one, nowMs));
    this.#silences = stored.silences.map((one) => begunBy(one, nowMs));
    this.#lastAlert = stored.lastAlert;
    this.#lastSilence = stored.lastSilence;
  }

  /** What an export holds and this book does not: the silences that still last, and alerts of subjects that have none here. */
  takeIn(stored: StoredAlerts, nowMs: number): boolean {
    this.#lastAlert = Math.max(this.#lastAlert, stored.lastAlert);
    this.#lastSilence = Math.max(this.#lastSilence, stored.lastSilence);
    const own = this.#alerts;
    let isNew = false;
    // One by one, since each takes room.
    for (const one of stored.alerts) {
      if (this.#alerts.some((each) => isSame(each, one))) continue;
      if (!this.#hasRoom(one)) {
        this.dropped++;
        continue;
      }
      const id = this.#alerts.some((each) => each.id === one.id) ? this.#nextAlert() : one.id;
      const taken = this.#alerts.slice(0, this.#alerts.length - own.length);
      this.#alerts = [...taken, { ...notAfter(one, nowMs), id }, ...own];
      isNew = true;
    }
    for (const one of stored.silences) {
      if (one.untilMs <= nowMs || this.#silences.length >= MAX_SILENCES || this.#silences.some((each) => sameSilence(each, one))) continue;
      this.#silences.push(this.#silences.some(({ id }) => id === one.id) ? { ...one, id: `q${++this.#lastSilence}` } : one);
      isNew = true;
    }
    return isNew;
  }

  /** The wall clock was set by so much: all times as it would have shown them. */
  shift(byMs: number): void {
    this.#alerts = this.#alerts.map((one) => withTimes(one, (ms) => ms + byMs));
    this.#silences = this.#silences.map((one) => ({ ...one, createdMs: one.createdMs + byMs, untilMs: one.untilMs + byMs }));
    this.#crowd.shift(byMs);
  }

  /** It is known how those of a kind are, also where nothing is said of any of them. */
  judged(kind: AlertKind, nowMs: number): void {
    this.#crowd.judged(kind, nowMs);
  }

  /** Alerts of a kind that are not over, each of a subject of its own. */
  active(kind: AlertKind): readonly Alert[] {
    return this.#alerts.filter((one) => one.kind === kind && one.state !== 'resolved' && one.subject !== MORE);
  }

  /** What is to be said of those of a kind that fire and find no room; null = nothing. Those that are silenced are none of them. */
  crowd(kind: AlertKind, nowMs: number): Observation | null {
    const names = this.#crowd.names(kind, nowMs).filter((subject) => this.silencedUntil({ kind, subject }, nowMs) === null);
    return names.length > 0 || this.find(kind, MORE) !== null ? this.#crowd.observation(kind, names, nowMs) : null;
  }

  find(kind: AlertKind, subject: string): Alert | null {
    return this.#alerts.find((one) => one.kind === kind && one.subject === subject && one.state !== 'resolved') ?? null;
  }

  /** Takes what a judge says of one subject. @returns whether something is to be stored */
  observe(seen: Observation, patience: Patience, nowMs: number): boolean {
    const alert = this.find(seen.kind, seen.subject);
    // That one is bad may be seen long before it can be said of another one that it is not.
    if (seen.subject !== MORE && (seen.grade === 'good' || seen.grade === 'between')) this.judged(seen.kind, nowMs);
    if (alert === null) {
      if (seen.grade === 'good') this.#crowd.leave(seen.kind, seen.subject);
      return this.#begin(seen, patience, nowMs);
    }
    const next = step(alert, seen, patience, nowMs);
    if (next === alert) return false;
    if (next === null) this.#alerts = this.#alerts.filter((one) => one !== alert);
    else this.#replace(alert, next);
    return next === null || isNews(alert, next);
  }

  /** It is part of another one from now on: over, and whoever was told that it fires is told that, so that nothing stays open there. */
  absorb(alert: Alert, into: string, nowMs: number, isBeingTold = false): void {
    if (alert.state === 'pending') this.#alerts = this.#alerts.filter((one) => one !== alert);
    else
      this.#replace(alert, {
        ...alert,
        state: 'resolved',
        resolvedMs: nowMs,
        words: `${alert.words}; now part of the alert ${into}`.slice(0, MAX_WORDS),
        toldFiring: true,
        toldResolved: !(alert.toldFiring || isBeingTold),
      });
  }

  /**
   * Lets go of what is old, and of telling what came and went in a silence; not of the end of what operators were told of before it.
   * @param beingTold those of which somebody is being told at this moment
   * @returns whether something is to be stored
   */
  tidy(nowMs: number, beingTold: ReadonlySet<string> = NONE): boolean {
    const unheard = this.#alerts.filter(
      (one) => one.state === 'resolved' && !one.toldFiring && !beingTold.has(one.id) && this.silencedUntil(one, nowMs) !== null,
    );
    for (const one of unheard) this.#replace(one, { ...one, toldFiring: true, toldResolved: true });
    const alerts = this.#alerts.length;
    const silences = this.#silences.length;
    let resolved = 0;
    let owed = 0;
    this.#alerts = this.#alerts.filter(({ state, resolvedMs, toldFiring, toldResolved }) => {
      if (state !== 'resolved') return true;
      if (toldFiring && toldResolved) return nowMs - (resolvedMs ?? 0) < RESOLVED_KEPT_MS && ++resolved <= MAX_RESOLVED;
      if (++owed <= MAX_OWED) return true;
      this.dropped++;
      return false;
    });
    this.#silences = this.#silences.filter(({ untilMs }) => untilMs > nowMs);
    return unheard.length > 0 || alerts !== this.#alerts.length || silences !== this.#silences.length;
  }

  /** Until when it is silenced, by whichever silence lasts longest; null = it is not. */
  silencedUntil(alert: Pick<Alert, 'kind' | 'subject'>, nowMs: number): number | null {
    let untilMs: number | null = null;
    for (const silence of this.#silences) if (covers(silence, alert, nowMs) && silence.untilMs > (untilMs ?? 0)) untilMs = silence.untilMs;
    return untilMs;
  }

  /** A sentence when there is no room. */
  silence(silence: Omit<Silence, 'id'>): Silence | string {
    if (this.#silences.length >= MAX_SILENCES) return `there are ${MAX_SILENCES} silences, which is all there may be: lift some`;
    const made = { ...silence, id: `q${++this.#lastSilence}` };
    this.#silences = [made, ...this.#silences];
    return made;
  }

  unsilence(id: string): Silence | null {
    const found = this.#silences.find((one) => one.id === id) ?? null;
    if (found !== null) this.#silences = this.#silences.filter((one) => one !== found);
    return found;
  }

  /** What operators are still to be told, oldest first: nothing that is silenced, and no end of what they never heard began. */
  untold(nowMs: number): { readonly alert: Alert; readonly state: 'firing' | 'resolved' }[] {
    const untold: { alert: Alert; state: 'firing' | 'resolved' }[] = [];
    for (const alert of this.#alerts.toReversed()) {
      if (alert.firedMs === null) continue;
      if (!alert.toldFiring && this.silencedUntil(alert, nowMs) === null) untold.push({ alert, state: 'firing' });
      if (alert.state !== 'resolved' || alert.toldResolved) continue;
      if (alert.toldFiring || untold.at(-1)?.alert === alert) untold.push({ alert, state: 'resolved' });
    }
    return untold;
  }

  /** They have been told, or nobody will be told any more. */
  told(ids: ReadonlyMap<string, ReadonlySet<'firing' | 'resolved'>>): void {
    this.#alerts = this.#alerts.map((alert) => {
      const states = ids.get(alert.id);
      if (states === undefined) return alert;
      return { ...alert, toldFiring: alert.toldFiring || states.has('firing'), toldResolved: alert.toldResolved || states.has('resolved') };
    });
  }

  #begin(seen: Observation, { forMs }: Patience, nowMs: number): boolean {
    if (seen.grade !== 'bad' && seen.grade !== 'rising') return false;
    const sinceMs = Math.min(seen.beganMs ?? this.#crowd.since(seen.kind, seen.subject, nowMs) ?? nowMs, nowMs);
    const fires = seen.grade === 'bad' && nowMs - sinceMs >= forMs;
    if (!this.#hasRoom({ ...seen, state: 'pending' }) && !(fires && this.#makeRoom(seen))) {
      if (seen.grade === 'bad') this.#crowd.join(seen.kind, seen.subject, sinceMs, fires, nowMs);
      return false;
    }
    this.#crowd.leave(seen.kind, seen.subject);
    const alert: Alert = {
      id: this.#nextAlert(),
      kind: seen.kind,
      subject: seen.subject,
      state: fires ? 'firing' : 'pending',
      sinceMs,
      firedMs: fires ? nowMs : null,
      resolvedMs: null,
      goodSinceMs: null,
      unknownSinceMs: null,
      ...shown(seen),
      held: seen.held,
      toldFiring: false,
      toldResolved: false,
    };
    this.#alerts = [alert, ...this.#alerts];
    return true;
  }

  #nextAlert(): string {
    return `a${++this.#lastAlert}`;
  }

  #hasRoom(one: Pick<Alert, 'kind' | 'subject' | 'state'>): boolean {
    return one.state === 'resolved' || one.subject === MORE || one.subject === FLEET || this.#beside(one).length < MAX_OF_KIND;
  }

  /** Those with which it shares room. */
  #beside({ kind, subject }: Pick<Alert, 'kind' | 'subject'>): readonly Alert[] {
    return this.active(kind).filter((one) => isGroup(one.subject) === isGroup(subject));
  }

  /** What is only pending goes, the newest first: it comes again, should there be room. False = all of that kind fire. */
  #makeRoom(seen: Observation): boolean {
    const least = this.#beside(seen).find(({ state }) => state === 'pending');
    if (least === undefined) return false;
    this.#alerts = this.#alerts.filter((one) => one !== least);
    return true;
  }

  #replace(alert: Alert, next: Alert): void {
    this.#alerts = this.#alerts.map((one) => (one === alert ? next : one));
  }
}

const NONE: ReadonlySet<string> = new Set();

/** The alert after one more observation; the same one = nothing has changed; null = it came to nothing. */
function step(alert: Alert, seen: Observation, { forMs, calmMs, unknownMs }: Patience, nowMs: number): Alert | null {
  const isPending = alert.state === 'pending';
  switch (seen.grade) {
    case 'bad': {
      const now = { ...alert, ...shown(seen), goodSinceMs: null, unknownSinceMs: null };
      return isPending && nowMs - alert.sinceMs >= forMs ? { ...now, state: 'firing', firedMs: nowMs } : now;
    }
    case 'rising':
      if (isPending && nowMs - alert.sinceMs > forMs + PENDING_MOST_MS) return null;
      return { ...alert, ...shown(seen), goodSinceMs: null, unknownSinceMs: null };
    case 'between':
      if (isPending && nowMs - alert.sinceMs > forMs + PENDING_MOST_MS) return null;
      return { ...alert, ...shown(seen), goodSinceMs: null, unknownSinceMs: null };
    case 'good':
      if (isPending) return null;
      if (alert.goodSinceMs === null) return { ...alert, goodSinceMs: nowMs, unknownSinceMs: null };
      return nowMs - alert.goodSinceMs >= calmMs ? resolved(alert, seen, nowMs) : alert;
    case 'unknown':
      if (alert.unknownSinceMs === null) return { ...alert, goodSinceMs: null, unknownSinceMs: nowMs };
      if (nowMs - alert.unknownSinceMs < unknownMs) return alert;
      return isPending ? null : resolved(alert, seen, nowMs);
  }
}

function resolved(alert: Alert, { words, value }: Observation, nowMs: number): Alert {
  return { ...alert, state: 'resolved', resolvedMs: nowMs, words: words.slice(0, MAX_WORDS), value };
}

/** Its times, each by itself. */
function withTimes(alert: Alert, of: (ms: number) => number): Alert {
  const { sinceMs, firedMs, resolvedMs, goodSinceMs, unknownSinceMs } = alert;
  const or = (ms: number | null): number | null => (ms === null ? null : of(ms));
  return {
    ...alert,
    sinceMs: of(sinceMs),
    firedMs: or(firedMs),
    resolvedMs: or(resolvedMs),
    goodSinceMs: or(goodSinceMs),
    unknownSinceMs: or(unknownSinceMs),
  };
}

const notAfter = (alert: Alert, nowMs: number): Alert => withTimes(alert, (ms) => Math.min(ms, nowMs));

/** One that begins later than now was made by a clock ahead of this one: it lasts as long as was meant. */
function begunBy(silence: Silence, nowMs: number): Silence {
  const aheadMs = Math.max(0, silence.createdMs - nowMs);
  return aheadMs === 0 ? silence : { ...silence, createdMs: nowMs, untilMs: silence.untilMs - aheadMs };
}

function shown({ words, value, limit, capability, agent, sidecar, traceId, look }: Observation) {
  return { words: words.slice(0, MAX_WORDS), value, limit, capability, agent, sidecar, traceId, look };
}

/** Worth a write: what only changes its figures is worked out anew by the next leader. */
function isNews(before: Alert, after: Alert): boolean {
  return before.state !== after.state || (before.goodSinceMs === null) !== (after.goodSinceMs === null);
}

function isSame(a: Alert, b: Alert): boolean {
  return (
    a.kind === b.kind &&
    a.subject === b.subject &&
    (a.state === 'resolved') === (b.state === 'resolved') &&
    (a.state !== 'resolved' || a.id === b.id)
  );
}

function sameSilence(a: Silence, b: Silence): boolean {
  return a.kind === b.kind && a.subject === b.subject && a.untilMs === b.untilMs && a.author === b.author;
}
