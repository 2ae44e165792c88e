/**
 * What is kept for people, and what they do with it: look, release (run again on a person's word), send to another
 * capability, drop. A message that moves is stored in the queue first and taken out of what is kept then, so that a crash
 * between the two repeats and never loses; the queue refuses the repeat for two minutes, and the ledger after that. The
 * claim of a task is freed before it is released: a task in doubt is never run again by itself, and this is the one way. It frees
 * that of the task alone: where another one with the same key is done, in doubt or at work, the key is that one's, also when this
 * task is sent to another capability.
 * Who may do it, and that it stands in the audit, is seen to by the API.
 */
import type { Stored } from '../../base/jetstream.ts';
import { Code } from '../../proto/wire/codes.ts';
import { encodeEnvelope, type Envelope } from '../../proto/wire/envelope.ts';
import { ledgerKey } from '../../proto/wire/ledger-key.ts';
import type { KeptKind, Pool } from '../../proto/wire/messages.ts';
import { partitionOf, poolWords } from '../../proto/wire/pool.ts';
import { INBOX_STREAM, KEPT_STREAM, LEDGER_STREAM, TASK_STREAM } from '../../proto/wire/subjects.ts';
import { compileRange, parseVersion } from '../../proto/language/range.ts';
import { parseTarget } from '../../proto/language/names.ts';
import { encode } from '../push/json.ts';
import { claimHead, eventLine, eventOf, type Kept, KEPT_KINDS, readKept } from './kept-entry.ts';
import { KeptOrders, type Order } from './kept-orders.ts';
import { expired, rewrite } from './last-word.ts';
import { type MessageParts, withNewStatement } from './parts.ts';
import type { PoolDesk } from './pool-desk.ts';
import { guessPool, poolFor } from './pool-guess.ts';
import { withTimeLeft } from './time-left.ts';

export interface KeptPage {
  readonly entries: readonly Kept[];
  /** Ask for what comes after this sequence next; null = that was all. */
  readonly next: number | null;
}

/** `absent`: there is no such thing; `conflict`: there is, and it cannot be done; `away`: not now. */
export type Done<T> = { readonly ok: T } | { readonly kind: 'absent' | 'conflict' | 'away'; readonly why: string };

/** Entries looked at in one request, whether they match or not. */
const SCAN = 1_000;
const MAX_DETAIL = 200;
const TASK = /^[a-z0-9]{8,40}$/;

export class KeptDesk {
  readonly #parts: MessageParts;
  readonly #pools: PoolDesk;
  readonly #orders: KeptOrders;
  /** Tasks that somebody is doing something with. */
  readonly #inHand = new Set<string>();

  constructor(parts: MessageParts, pools: PoolDesk) {
    this.#parts = parts;
    this.#pools = pools;
    this.#orders = new KeptOrders(parts);
  }

  /** The oldest first. @param after sequence; 0 = from the start. */
  async list(kind: KeptKind | null, capability: string | null, after: number, limit: number): Promise<Done<KeptPage>> {
    const { bus, subjects } = this.#parts;
    const entries: Kept[] = [];
    let from = after + 1;
    for (let looked = 0; looked < SCAN && entries.length < limit; ) {
      const want = Math.min(SCAN - looked, capability === null ? limit - entries.length : SCAN);
      const page = await bus.history(KEPT_STREAM, subjects.kept(kind ?? '*', '*'), want, from);
      if ('failed' in page) return away(page.failed);
      for (const stored of page) {
        from = stored.seq + 1;
        const kept = readKept(stored);
        if (kept !== null && (capability === null || kept.entry.capability === capability)) entries.push(kept);
        if (entries.length >= limit) break;
      }
      looked += want;
      if (page.length < want && entries.length < limit) return { ok: { entries, next: null } };
    }
    return { ok: { entries, next: from - 1 } };
  }

  /** The newest entry of a task, of any kind. */
  async find(task: string): Promise<Done<Kept>> {
    if (!TASK.test(task)) return { kind: 'absent', why: `${JSON.stringify(task.slice(0, 60))} is not the id of a task` };
    const { bus, subjects } = this.#parts;
    let newest: Stored | null = null;
    for (const kind of KEPT_KINDS) {
      const found = await bus.lastAtLeader(KEPT_STREAM, subjects.kept(kind, task));
      if (found === null) continue;
      if ('failed' in found) return away(found.failed);
      if (newest === null || found.seq > newest.seq) newest = found;
    }
    const kept = newest === null ? null : readKept(newest);
    return kept === null ? { kind: 'absent', why: `nothing is kept of the task ${task}` } : { ok: kept };
  }

  /** Back into the queue of its own pool. @param isOneOfMany nobody has looked at this one: it does not begin what was dropped under its key */
  async release(task: string, who: string, isOneOfMany = false): Promise<Done<{ readonly kept: Kept; readonly pool: Pool }>> {
    return this.#with(task, { verb: 'release', target: '', who }, async (work) => {
      const { kept } = work;
      const envelope = messageOf(work);
      if (envelope === null) return conflict(UNREADABLE);
      const pool = this.#pools.book.get(envelope.pool)?.pool ?? guessPool(envelope);
      if (pool === null) return conflict(`nobody knows the pool ${envelope.pool} any more: send it to a capability instead`);
      const ready = await this.#ready(work, pool, envelope, isOneOfMany);
      if (ready !== null) return ready;
      const sent = await this.#queue(work, envelope, pool, `released by ${who}`);
      return sent ?? { ok: { kept, pool } };
    });
  }

  /** Into the queue of another capability, in the newest version that is online and fits. @param target `name[@range]` */
  async reroute(task: string, target: string, who: string): Promise<Done<{ readonly kept: Kept; readonly pool: Pool }>> {
    return this.#with(task, { verb: 'reroute', target, who }, async (work) => {
      const { kept } = work;
      const envelope = messageOf(work);
      if (envelope === null) return conflict(UNREADABLE);
      const pool = this.poolOf(target, envelope.tags);
      if ('why' in pool) return pool;
      const { sticky_key: _, ...rest } = envelope;
      const rerouted: Envelope = {
        ...rest,
        target: { capability: target, role: null, agent: null },
        capability: pool.ok.capability,
        version: pool.ok.version,
        pool: pool.ok.id,
      };
      const held = await this.#heldBy(envelope, work.serverMs);
      if ('why' in held) return held;
      const ready = await this.#ready(work, pool.ok, rerouted);
      if (ready !== null) return ready;
      const sent = await this.#queue(work, rerouted, pool.ok, `sent to ${poolWords(pool.ok)} by ${who}`);
      return sent ?? { ok: { kept, pool: pool.ok } };
    });
  }

  /** For good. Whoever was still waiting for it is told. */
  async drop(task: string, who: string): Promise<Done<{ readonly kept: Kept }>> {
    return this.#with(task, { verb: 'drop', target: '', who }, async (work) => {
      const { kept } = work;
      const { envelope } = kept;
      if (kept.entry.kind === 'review' && envelope !== null) {
        const problem = await tellDropped(this.#parts, envelope, who);
        if (problem !== null) return away(problem);
        work.isChanged = true;
      }
      if (kept.entry.kind === 'in_doubt' && envelope !== null) await this.#decide(envelope, who);
      const gone = await this.#takeOut(kept);
      return gone ?? { ok: { kept } };
    });
  }

  /** One that waits for a person, whose time is over: its sender is told. */
  async expire({ seq, entry }: Kept): Promise<Done<{ readonly kept: Kept }>> {
    return this.#with(entry.task_id, { verb: 'expire', target: '', who: 'the control plane' }, async (work) => {
      const { kept } = work;
      if (kept.seq !== seq || kept.envelope === null) return { kind: 'absent', why: CHANGED };
      const told = await expired(this.#parts, { seq, envelope: kept.envelope, payload: kept.payload }, 0, 'not_reviewed');
      if (told !== 'told') return away(told === 'later' ? 'its sender cannot be told now' : told.failed);
      work.isChanged = true;
      const gone = await this.#takeOut(kept);
      return gone ?? { ok: { kept } };
    });
  }

  /** The pool of a capability that a person names. */
  poolOf(target: string, tags: Readonly<Record<string, string>>): Done<Pool> {
    const parsed = parseTarget(target);
    if ('problem' in parsed) return { kind: 'conflict', why: parsed.problem };
    const range = parsed.range === null ? null : compileRange(parsed.range);
    if (range !== null && 'problem' in range) return { kind: 'conflict', why: range.problem };
    const registry = this.#parts.registry();
    const view = registry.capabilities().find(({ capability, aliases }) => capability === parsed.name || aliases.includes(parsed.name));
    if (view === undefined) return { kind: 'absent', why: `no capability is called ${parsed.name}` };
    const fitting = view.versions.filter(({ version }) => {
      const read = parseVersion(version);
      return range === null ? read.prerelease.length === 0 : range.satisfiedBy(read);
    });
    const chosen = fitting.find(({ online }) => online > 0) ?? fitting[0];
    if (chosen === undefined)
      return {
        kind: 'conflict',
        why: `no version of ${view.capability} fits ${target}: there are ${view.versions.map(({ version }) => version).join(', ')}`,
      };
    const targets = registry.workersOf(view.capability).map(({ record }) => record.target);
    return { ok: poolFor(view.capability, chosen.version, tags, targets) };
  }

  /** One order at a time about one task, whoever leads. */
  async #with<T>(task: string, order: Order, act: (work: Work) => Promise<Done<T>>): Promise<Done<T>> {
    if (this.#inHand.has(task)) return conflict(`somebody is doing something with ${task} at this moment`);
    this.#inHand.add(task);
    try {
      const found = await this.find(task);
      if (!('ok' in found)) return found;
      const begun = await this.#orders.begin(found.ok, order);
      if ('kind' in begun) return begun;
      // Another one may have come to its end before this one began.
      const still = await this.find(task);
      const work: Work = { kept: found.ok, serverMs: begun.serverMs, isChanged: false };
      let done: Done<T>;
      try {
        done = !('ok' in still) ? still : still.ok.seq !== found.ok.seq ? conflict(CHANGED) : await act(work);
      } catch (error) {
        // Else it would stand in the way of every other order.
        if (!work.isChanged) await this.#orders.end(begun);
        throw error;
      }
      if ('ok' in done || !work.isChanged) await this.#orders.end(begun);
      return done;
    } finally {
      this.#inHand.delete(task);
    }
  }

  /** The claim last: until then nothing has been changed. */
  async #ready(
    { serverMs }: Work,
    pool: Pool,
    envelope: Envelope,
    isOneOfMany = false,
  ): Promise<Exclude<Done<never>, { ok: never }> | null> {
    const used = await this.#pools.use(pool);
    return used.ok ? this.#free(envelope, serverMs, isOneOfMany) : conflict(used.why);
  }

  /**
   * Lets go of the claim, so that the task can be started; null = done.
   * @param serverMs that a lease is over is said by the server's clock, like its beginning
   */
  async #free(envelope: Envelope, serverMs: number, isOneOfMany: boolean): Promise<Exclude<Done<never>, { ok: never }> | null> {
    const held = await this.#heldBy(envelope, serverMs, isOneOfMany);
    if ('why' in held) return held;
    if (held.own === 0) return null;
    const gone = await this.#parts.bus.deleteMessage(LEDGER_STREAM, held.own);
    return gone !== null && typeof gone === 'object' ? away(gone.failed) : null;
  }

  /** The sequence of the record to be freed (the task's own, or of one that a person has dropped), 0 = its key is free; or why it must not be started. */
  async #heldBy(
    envelope: Envelope,
    serverMs: number,
    isOneOfMany = false,
  ): Promise<{ readonly own: number } | Exclude<Done<never>, { ok: never }>> {
    const { bus, subjects, config } = this.#parts;
    const id = idOf(envelope);
    const record = await bus.lastAtLeader(LEDGER_STREAM, subjects.idem(id));
    if (record === null) return { own: 0 };
    if ('failed' in record) return away(record.failed);
    const { state, leaseMs, task, isDecided } = claimHead(record.data);
    if (state === 'executing' && record.timestampMs + leaseMs > serverMs)
      return conflict('somebody works on this key at this moment: look again in some seconds');
    if (state === 'done')
      return conflict(
        `its completion has been recorded since (ledger record ${id}): it is done, and must not be run again; drop the entry`,
      );
    if (task === '' || task === envelope.task_id) return { own: record.seq };
    if (state === 'released') return { own: 0 };
    if (isDecided && state === 'unknown') {
      if (!isOneOfMany) return { own: record.seq };
      return conflict(
        `another task with the same key, ${task}, was in doubt and has been dropped: release this one by itself, if it is to be done`,
      );
    }
    const words =
      state === 'executing'
        ? `another task with the same key, ${task}, had a worker that is not heard of (ledger record ${id})`
        : `another task with the same key, ${task}, is in doubt (ledger record ${id})`;
    const other = await this.find(task);
    if ('ok' in other) return conflict(`${words}: decide about that one first`);
    if (other.kind === 'away') return other;
    const until = new Date(record.timestampMs + config.ledger.ageMs).toISOString();
    return conflict(
      `${words}. Nothing is kept of it (it may be a call, or wait in the queue), so that nobody can decide about it: its record ends by itself, at ${until} if nothing is written to it, and this can be ordered then. Find out what was done: if it was, drop this entry; if not and it cannot wait, have it sent anew under another key`,
    );
  }

  /**
   * A doubt that a person has dropped is decided: another order of a person may use the key. For senders it is as before, so that no
   * repeat of theirs begins it. Not written (somebody else was quicker, the ledger is full): then the record ends by its age.
   */
  async #decide(envelope: Envelope, who: string): Promise<void> {
    const { bus, subjects } = this.#parts;
    const record = await bus.lastAtLeader(LEDGER_STREAM, subjects.idem(idOf(envelope)));
    if (record === null || 'failed' in record) return;
    const { state, task } = claimHead(record.data);
    if (state === 'unknown' && task === envelope.task_id)
      await rewrite(this.#parts, record, { decided: true, detail: `dropped by ${who}`.slice(0, MAX_DETAIL) });
  }

  async #queue(work: Work, envelope: Envelope, pool: Pool, detail: string): Promise<Exclude<Done<never>, { ok: never }> | null> {
    const { bus, subjects, clock } = this.#parts;
    const { kept } = work;
    const partition = pool.sticky ? partitionOf(envelope.sticky_key ?? envelope.sequence_id ?? envelope.task_id) : 0;
    const sent = await bus.append(
      subjects.task(pool.id, envelope.lane, partition, envelope.home),
      encodeEnvelope(await withNewStatement(this.#parts, envelope), kept.payload),
      {
        stream: TASK_STREAM,
        msgId: `${envelope.task_id}.kept.${kept.seq}`,
      },
    );
    if (!('seq' in sent)) return away('failed' in sent ? sent.failed : 'the queue refused it');
    work.isChanged = true;
    const gone = await this.#takeOut(kept);
    bus.publish(subjects.note(envelope.home), encode(eventOf(envelope, 'waiting', 0, 'released', detail, clock.wallMs())));
    return gone;
  }

  async #takeOut(kept: Kept): Promise<Exclude<Done<never>, { ok: never }> | null> {
    const gone = await this.#parts.bus.deleteMessage(KEPT_STREAM, kept.seq);
    return gone !== null && typeof gone === 'object' ? away(`it is done, but the entry could not be taken out: ${gone.failed}`) : null;
  }
}

/** Under which its claim stands. */
function idOf({ source, capability, keyed, power_id, task_id }: Envelope): string {
  return ledgerKey(source, capability, keyed ? power_id : task_id);
}

/** An order that is carried out. */
interface Work {
  readonly kept: Kept;
  readonly serverMs: number;
  /** Something was done that cannot be taken back. */
  isChanged: boolean;
}

const CHANGED = 'it is kept for another reason than a moment ago: look again';
const UNREADABLE = 'the message cannot be read by this version (or was too large to be kept): it can only be dropped';

/** The message as it is sent on: one that nobody has had yet has only what is left of its time. */
function messageOf({ kept: { entry, envelope, storedAtMs }, serverMs }: Work): Envelope | null {
  return envelope === null || entry.kind !== 'review' ? envelope : withTimeLeft(envelope, storedAtMs, serverMs);
}

/** Whoever waits for a task that a person dropped; a sentence when it cannot be told. */
export async function tellDropped({ bus, subjects, clock }: MessageParts, envelope: Envelope, who: string): Promise<string | null> {
  const event = eventOf(envelope, 'cancelled', Code.cancelled, 'dropped', `dropped by ${who}`, clock.wallMs());
  if (envelope.reply_to === null) {
    bus.publish(subjects.note(envelope.home), encode(event));
    return null;
  }
  const told = await bus.append(subjects.inbox(envelope.home, envelope.reply_to), eventLine(event), {
    stream: INBOX_STREAM,
    msgId: `${envelope.task_id}.cancelled`,
  });
  return 'seq' in told ? null : 'the sender’s inbox cannot be written';
}

function away(why: string): { readonly kind: 'away'; readonly why: string } {
  return { kind: 'away', why };
}

function conflict(why: string): { readonly kind: 'conflict'; readonly why: string } {
  return { kind: 'conflict', why };
}
