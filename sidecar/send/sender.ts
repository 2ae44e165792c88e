/**
 * Messages out: whether one is accepted, where it goes, and where it is durable when the sender is told so. In this order:
 * rate, what is meant (name, ACL, version, contract), rules, pool, size, and then the stream or the disk. A sender that has
 * its answer never has to ask whether the message is lost; one that is refused never finds it carried out, unless the answer
 * says that this is in doubt (and then it is called off).
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Bus } from '../../base/nats.ts';
import type { Random } from '../../base/random.ts';
import { unguessable } from '../../base/unguessable.ts';
import type { RuleSubject } from '../../proto/language/rule.ts';
import { Code } from '../../proto/wire/codes.ts';
import { type Envelope, encodeEnvelope, MESSAGE_WIRE } from '../../proto/wire/envelope.ts';
import type { KeptEntry } from '../../proto/wire/messages.ts';
import { keyOwner } from '../../proto/wire/ledger-key.ts';
import { partitionOf } from '../../proto/wire/pool.ts';
import type { Subjects } from '../../proto/wire/subjects.ts';
import { newSpanId } from '../../proto/wire/trace-context.ts';
import type { StageSpans } from '../call/stage-spans.ts';
import type { MessageSettings } from '../messages-config.ts';
import type { Table } from '../table/snapshot.ts';
import type { Cancels } from './cancels.ts';
import type { Submission, Submitted } from './door.ts';
import { envelopeOf, passedOn } from './envelope-of.ts';
import type { Home } from './home.ts';
import { encodeMail } from './mail.ts';
import type { Post, Posted } from './post.ts';
import type { Rates } from './rate.ts';
import { pickSend, SendSeen, tellSend } from './send-span.ts';
import { type Way, type WhereParts, whereTo } from './where.ts';

/** 60 bits. */
const SECRET_LETTERS = 12;

export interface SenderParts extends WhereParts {
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: Pick<Bus, 'maxPayload'>;
  readonly table: Table;
  readonly subjects: Subjects;
  readonly sidecar: string;
  readonly settings: MessageSettings;
  readonly rates: Rates;
  readonly post: Post;
  readonly home: Home;
  readonly cancels: Cancels;
  /** The control plane's word that agents are at home here; null = identities are not issued here. */
  readonly statements: Statements | null;
  /** Hears of each message that was accepted or that a rule refused, as rules see it, and of the rule that decided (null = none). Must not wait. */
  readonly onDecided: (subject: RuleSubject, rule: string | null) => void;
  /** Hears of each submission as a span; absent or null = no traces are made. */
  readonly stages?: StageSpans | null;
  /** 8 to 20 of a-z and 0-9, another one for each start of the process: task ids begin with it. */
  readonly instance: string;
}

/** What this sidecar can show of its agents. */
export interface Statements {
  of(agent: string): string | null;
  /** Resolves when there is one, or it is refused. */
  arrived(agent: string): Promise<void>;
  /** Workers refuse messages without one. */
  readonly isRequired: boolean;
}

type Refusal = Extract<Submitted, { ok: false }>;

/** A message as it is to be stored. */
interface Parcel {
  readonly envelope: Envelope;
  readonly subject: string;
  readonly data: Buffer;
}

/** What a message has around it on its way: the header with its id, and room for what a newer server may add. */
const FRAME_BYTES = 256;
/** When to come back to a stream that is full: some of it has been worked off by then. */
const FULL_MS = 1_000;
const UNAVAILABLE_MS = 2_000;
/** For the first message of an agent that has just shown itself. */
const STATEMENT_MS = 1_500;

export class Sender {
  readonly #parts: SenderParts;
  #lastTask = 0;

  constructor(parts: SenderParts) {
    this.#parts = parts;
  }

  async submit(submission: Submission): Promise<Submitted> {
    const { stages = null, clock } = this.#parts;
    const seen = stages === null ? null : new SendSeen(clock.now());
    const submitted = await this.#submit(submission, seen);
    if (stages !== null && seen !== null) tellSend(stages, seen, submission, submitted, clock.now());
    return submitted;
  }

  async #submit(submission: Submission, seen: SendSeen | null): Promise<Submitted> {
    const { clock, rates, pools } = this.#parts;
    const { agent } = submission.principal;
    const now = clock.now();
    if (!rates.take(agent, now)) return tooFast(agent, rates, now);
    const badKey = submission.key === null ? null : keyProblem(submission.key, agent);
    if (badKey !== null) return refused(Code.key_reused, badKey);
    const way = whereTo(this.#parts, this.#parts.table.current(), submission);
    if ('code' in way) {
      if (way.by !== undefined) this.#parts.onDecided(way.by.subject, way.by.rule);
      return refused(way.code, way.detail);
    }
    if (seen !== null && this.#parts.stages != null) pickSend(this.#parts.stages, seen, way.call, way.forReview);
    const unproved = await this.#unproved(agent);
    if (unproved !== null) return unproved;
    if (way.inboxAt === null && !pools.isKnown(way.pool)) {
      await pools.answer(way.pool);
      if (way.pool.refused !== '')
        return refused(Code.delivery_unavailable, `the control plane takes no messages for it: ${way.pool.refused}`, UNAVAILABLE_MS);
    }
    const parcel = this.#parcel(submission, way);
    if ('code' in parcel) return parcel;
    if (seen !== null) seen.envelope = parcel.envelope;
    return this.#told(way, parcel.envelope, await this.#parts.post.put(parcel.subject, parcel.data, parcel.envelope.task_id));
  }

  /** A message without a statement would be accepted here and refused by whoever works on it. */
  async #unproved(agent: string): Promise<Refusal | null> {
    const { statements, clock } = this.#parts;
    if (statements === null || statements.of(agent) !== null) return null;
    let timer: Timer | null = null;
    const late = new Promise<void>((done) => {
      timer = clock.after(STATEMENT_MS, done);
    });
    await Promise.race([statements.arrived(agent), late]);
    (timer as Timer | null)?.cancel();
    if (statements.of(agent) !== null || !statements.isRequired) return null;
    return refused(
      Code.delivery_unavailable,
      `the control plane has not said that ${agent} is at home here (see identity in /v1/health), and nobody would take its message without`,
      UNAVAILABLE_MS,
    );
  }

  #parcel(submission: Submission, way: Way): Parcel | Refusal {
    const { bus, clock, random, sidecar, settings } = this.#parts;
    const headers = passedOn(submission);
    if (typeof headers === 'string') return refused(Code.invalid_request, headers);
    const statement = this.#parts.statements?.of(submission.principal.agent) ?? null;
    const stamp = { taskId: this.#taskId(), home: sidecar, wallMs: clock.wallMs(), spanId: newSpanId(random), statement };
    const envelope = envelopeOf(submission, way.call, way, stamp, headers, settings);
    const data = encoded(way, envelope, submission.payload);
    const bytes = data.length + FRAME_BYTES;
    if (bytes > bus.maxPayload)
      return refused(
        Code.payload_too_large,
        `the message has ${bytes} bytes with all that goes with it, and NATS takes ${bus.maxPayload}: send less, or pass a reference`,
      );
    return { envelope, subject: this.#subjectOf(way, envelope), data };
  }

  /** An inbox, what is kept for people, or the queue of a pool. */
  #subjectOf({ inboxAt, forReview, pool, lane, stickyKey }: Way, { target, task_id: taskId }: Envelope): string {
    const { subjects } = this.#parts;
    if (inboxAt !== null) return subjects.inbox(inboxAt, target.agent as string);
    if (forReview) return subjects.kept('review', taskId);
    return pool.subject(lane, stickyKey === null ? 0 : partitionOf(stickyKey));
  }

  #told(way: Way, envelope: Envelope, posted: Posted): Submitted {
    const { home, cancels } = this.#parts;
    if (posted.kind === 'full')
      return refused(Code.delivery_unavailable, `the queue is full, and nothing was accepted: ${posted.why}`, FULL_MS);
    if (posted.kind === 'unavailable') {
      if (!posted.mayBeStored) return refused(Code.delivery_unavailable, `nothing was accepted: ${posted.why}`, UNAVAILABLE_MS);
      // It shall not be carried out although it was refused.
      cancels.want(envelope.source, envelope.task_id);
      return refused(
        Code.delivery_unavailable,
        `it is not certain whether it was stored (${posted.why}); it is being called off. Send it again with the same key`,
        UNAVAILABLE_MS,
        true,
      );
    }
    this.#parts.onDecided(way.subject, way.rule);
    const state = way.hasSomebody ? 'accepted' : 'parked';
    home.accepted({
      taskId: envelope.task_id,
      powerId: envelope.power_id,
      agent: envelope.source,
      capability: envelope.capability,
      lane: envelope.lane,
      state,
      acceptedAtMs: envelope.accepted_at_ms,
    });
    return {
      ok: true,
      taskId: envelope.task_id,
      powerId: envelope.power_id,
      durable: posted.kind,
      state,
      capability: envelope.capability,
      version: envelope.version,
      lane: envelope.lane,
      rule: envelope.rule,
      traceId: way.call.traceId,
    };
  }

  /** Whoever knows it can say how the task ended, and claim it: only those who are given the task may. */
  #taskId(): string {
    return this.#parts.instance + (++this.#lastTask).toString(36) + unguessable(SECRET_LETTERS);
  }
}

export function tooFast(agent: string, rates: Rates, now: number): Refusal {
  const { perSec, burst } = rates.of(agent);
  return {
    ok: false,
    code: Code.rate_limited,
    detail: `${agent} may submit ${perSec} messages a second, ${burst} at once`,
    retryAfterMs: Math.ceil(rates.waitMs(agent, now)),
    ambiguous: false,
    rate: rates.view(agent, now),
  };
}

export function refused(code: Code, detail: string, retryAfterMs = 0, ambiguous = false): Refusal {
  return { ok: false, code, detail, retryAfterMs, ambiguous, rate: null };
}

/** Keys as we mint them name their agent: one with another agent's name is somebody else's. */
function keyProblem(key: string, agent: string): string | null {
  const owner = keyOwner(key);
  return owner === null || owner === agent ? null : `the key begins with the name of ${owner}; only that agent may use it, not ${agent}`;
}

/** As it is stored where it goes. */
function encoded(way: Way, envelope: Envelope, payload: Buffer): Buffer {
  if (way.inboxAt !== null) return encodeMail(envelope, payload);
  const data = encodeEnvelope(envelope, payload);
  return way.forReview ? reviewed(envelope, data) : data;
}

/** For a person to decide: released, sent elsewhere, or dropped. */
function reviewed(envelope: Envelope, data: Buffer): Buffer {
  const entry: KeptEntry = {
    wire: MESSAGE_WIRE,
    kind: 'review',
    task_id: envelope.task_id,
    capability: envelope.capability,
    source: envelope.source,
    code: Code.parked,
    cause: 'no_available_agent',
    detail: `nobody is there to work on it; rule ${envelope.rule ?? '-'} wants a person to decide`,
    attempts: [],
    since_ms: envelope.accepted_at_ms,
    rule: envelope.rule,
  };
  return Buffer.concat([Buffer.from(`${JSON.stringify(entry)}\n`, 'utf8'), data]);
}
