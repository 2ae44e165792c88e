/**
 * What is kept for people, and what they do with it: look, release (run again on a person's word), send to another
 * capability, drop. A message that moves is stored in the queue first and taken out of what is kept then, so that a crash
 * between the two repeats and never loses; the queue refuses the repeat for two minutes, and the ledger after that. The
 * claim of a task is freed before it is released: a task in doubt is never run again by itself, and this is the one way.
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
import { type MessageParts, withNewStatement } from './parts.ts';
import type { PoolDesk } from './pool-desk.ts';
import { guessPool, poolFor } from './pool-guess.ts';

export interface KeptPage {
  readonly entries: readonly Kept[];
  /** Ask for what comes after this sequence next; null = that was all. */
  readonly next: number | null;
}

/** `absent`: there is no such thing; `conflict`: there is, and it cannot be done; `away`: not now. */
export type Done<T> = { readonly ok: T } | { readonly kind: 'absent' | 'conflict' | 'away'; readonly why: string };

/** Entries looked at in one request, whether they match or not. */
const SCAN = 1_000;
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

  /** Back into the queue of its own pool. */
  async release(task: string, who: string): Promise<Done<{ readonly kept: Kept; readonly pool: Pool }>> {
    return this.#with(task, { verb: 'release', target: '', who }, async (work) => {
      const { kept } = work;
      const { envelope } = kept;
      if (envelope === null) return conflict(UNREADABLE);
      const pool = this.#pools.book.get(envelope.pool)?.pool ?? guessPool(envelope);
      if (pool === null) return conflict(`nobody knows the pool ${envelope.pool} any more: send it to a capability instead`);
      const ready = await this.#ready(work, pool, envelope);
      if (ready !== null) return ready;
      const sent = await this.#queue(work, envelope, pool, `released by ${who}`);
      return sent ?? { ok: { kept, pool } };
    });
  }

  /** Into the queue of another capability, in the newest version that is online and fits. @param target `name[@range]` */
  async reroute(task: string, target: string, who: string): Promise<Done<{ readonly kept: Kept; readonly pool: Pool }>> {
    return this.#with(task, { verb: 'reroute', target, who }, async (work) => {
      const { kept } = work;
      const { envelope } = kept;
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
      const done = !('ok' in still) ? still : still.ok.seq !== found.ok.seq ? conflict(CHANGED) : await act(work);
      if ('ok' in done || !work.isChanged) await this.#orders.end(begun);
      return done;
    } finally {
      this.#inHand.delete(task);
    }
  }

  /** The claim last: until then nothing has been changed. */
  async #ready({ serverMs }: Work, pool: Pool, envelope: Envelope): Promise<Exclude<Done<never>, { ok: never }> | null> {
    const used = await this.#pools.use(pool);
    return used.ok ? this.#free(envelope, serverMs) : conflict(used.why);
  }

  /**
   * Lets go of the claim, so that the task can be started; null = done.
   * @param serverMs that a lease is over is said by the server's clock, like its beginning
   */
  async #free(envelope: Envelope, serverMs: number): Promise<Exclude<Done<never>, { ok: never }> | null> {
    const { bus, subjects } = this.#parts;
    const id = ledgerKey(envelope.source, envelope.capability, envelope.keyed ? envelope.power_id : envelope.task_id);
    const record = await bus.lastAtLeader(LEDGER_STREAM, subjects.idem(id));
    if (record === null) return null;
    if ('failed' in record) return away(record.failed);
    const { state, leaseMs } = claimHead(record.data);
    if (state === 'executing' && record.timestampMs + leaseMs > serverMs)
      return conflict('somebody works on this key at this moment: look again in some seconds');
    if (state === 'done')
      return conflict(
        `its completion has been recorded since (ledger record ${id}): it is done, and must not be run again; drop the entry`,
      );
    const gone = await bus.deleteMessage(LEDGER_STREAM, record.seq);
    return gone !== null && typeof gone === 'object' ? away(gone.failed) : null;
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

/** An order that is carried out. */
interface Work {
  readonly kept: Kept;
  readonly serverMs: number;
  /** Something was done that cannot be taken back. */
  isChanged: boolean;
}

const CHANGED = 'it is kept for another reason than a moment ago: look again';
const UNREADABLE = 'the message cannot be read by this version (or was too large to be kept): it can only be dropped';

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
