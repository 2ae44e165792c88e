/**
 * Tasks that wait in a pool on which nobody works, in the hands of a person: listed, sent to another capability, dropped. Only
 * while nobody works on the pool, since a worker might have one of them in hand; and never one whose claim says that it may
 * have been begun. As everywhere: stored in its new place first, taken out of the old one then.
 */
import type { Stored } from '../../base/jetstream.ts';
import { Code } from '../../proto/wire/codes.ts';
import { decodeEnvelope, encodeEnvelope, type Envelope } from '../../proto/wire/envelope.ts';
import { ledgerKey } from '../../proto/wire/ledger-key.ts';
import type { Pool } from '../../proto/wire/messages.ts';
import { poolWords } from '../../proto/wire/pool.ts';
import { INBOX_STREAM, LEDGER_STREAM, TASK_STREAM } from '../../proto/wire/subjects.ts';
import { encode } from '../push/json.ts';
import type { Done, KeptDesk } from './kept-desk.ts';
import { claimHead, eventLine, eventOf } from './kept-entry.ts';
import type { MessageParts } from './parts.ts';
import type { PoolDesk } from './pool-desk.ts';

export interface ParkedTask {
  readonly seq: number;
  readonly storedAtMs: number;
  readonly envelope: Envelope;
  readonly payload: Buffer;
}

export interface ParkedPage {
  readonly tasks: readonly ParkedTask[];
  /** Ask for what comes after this sequence next; null = that was all. */
  readonly next: number | null;
}

export interface Handled {
  readonly done: readonly string[];
  readonly failed: readonly { readonly task: string; readonly why: string }[];
}

type Failure = Exclude<Done<never>, { ok: never }>;

const POOL = /^p[a-z2-7]{20}$/;

export class ParkedDesk {
  readonly #parts: MessageParts;
  readonly #pools: PoolDesk;
  readonly #kept: KeptDesk;
  #isBusy = false;

  constructor(parts: MessageParts, pools: PoolDesk, kept: KeptDesk) {
    this.#parts = parts;
    this.#pools = pools;
    this.#kept = kept;
  }

  /** The oldest first. */
  async list(pool: string, after: number, limit: number): Promise<Done<ParkedPage>> {
    if (!POOL.test(pool)) return { kind: 'absent', why: `${JSON.stringify(pool.slice(0, 60))} is not the id of a pool` };
    const { bus, subjects } = this.#parts;
    const page = await bus.history(TASK_STREAM, `${subjects.tasks.slice(0, -1)}${pool}.>`, limit, after + 1);
    if ('failed' in page) return { kind: 'away', why: page.failed };
    const tasks = page.flatMap((stored) => taskOf(stored) ?? []);
    return { ok: { tasks, next: page.length < limit ? null : (page.at(-1)?.seq ?? null) } };
  }

  /** @param task only this one; null = all, up to `limit`. @param target `name[@range]` */
  reroute(pool: string, task: string | null, target: string, limit: number, who: string): Promise<Done<Handled>> {
    return this.#each(pool, task, limit, async (parked) => {
      const { envelope } = parked;
      const next = this.#kept.poolOf(target, envelope.tags);
      if (!('ok' in next)) return next.why;
      if (next.ok.id === pool) return `it waits for ${target} already`;
      const used = await this.#pools.use(next.ok);
      return used.ok ? this.#send(parked, next.ok, target, who) : used.why;
    });
  }

  drop(pool: string, task: string | null, limit: number, who: string): Promise<Done<Handled>> {
    return this.#each(pool, task, limit, async ({ seq, envelope }) => {
      const { bus, subjects, clock } = this.#parts;
      const event = eventOf(envelope, 'cancelled', Code.cancelled, 'dropped', `dropped by ${who}`, clock.wallMs());
      if (envelope.reply_to !== null) {
        const told = await bus.append(subjects.inbox(envelope.home, envelope.reply_to), eventLine(event), {
          stream: INBOX_STREAM,
          msgId: `${envelope.task_id}.cancelled`,
        });
        if (!('seq' in told)) return 'the sender’s inbox cannot be written';
      }
      return this.#takeOut(seq);
    });
  }

  async #send({ seq, envelope, payload }: ParkedTask, pool: Pool, target: string, who: string): Promise<string | null> {
    const { bus, subjects, clock } = this.#parts;
    const { sticky_key: _, ...rest } = envelope;
    const sent: Envelope = {
      ...rest,
      target: { capability: target, role: null, agent: null },
      capability: pool.capability,
      version: pool.version,
      pool: pool.id,
    };
    const stored = await bus.append(subjects.task(pool.id, sent.lane, 0, sent.home), encodeEnvelope(sent, payload), {
      stream: TASK_STREAM,
      msgId: `${envelope.task_id}.parked.${seq}`,
    });
    if (!('seq' in stored)) return 'failed' in stored ? stored.failed : 'the queue refused it';
    const problem = await this.#takeOut(seq);
    const detail = `sent to ${poolWords(pool)} by ${who}`;
    bus.publish(subjects.note(envelope.home), encode(eventOf(sent, 'waiting', 0, 'rerouted', detail, clock.wallMs())));
    return problem;
  }

  /** @param act gives what is wrong, or null. */
  async #each(
    pool: string,
    task: string | null,
    limit: number,
    act: (parked: ParkedTask) => Promise<string | null>,
  ): Promise<Done<Handled>> {
    if (this.#isBusy) return { kind: 'conflict', why: 'somebody is moving parked tasks at this moment' };
    this.#isBusy = true;
    try {
      return await this.#eachOf(pool, task, limit, act);
    } finally {
      this.#isBusy = false;
    }
  }

  async #eachOf(
    pool: string,
    task: string | null,
    limit: number,
    act: (parked: ParkedTask) => Promise<string | null>,
  ): Promise<Done<Handled>> {
    const done: string[] = [];
    const failed: { task: string; why: string }[] = [];
    let after = 0;
    while (done.length + failed.length < limit) {
      const busy = this.#worked(pool);
      if (busy !== null) return busy;
      const page = await this.list(pool, after, task === null ? Math.min(100, limit - done.length - failed.length) : 100);
      if (!('ok' in page)) return page;
      for (const parked of page.ok.tasks) {
        const id = parked.envelope.task_id;
        if (task !== null && id !== task) continue;
        const problem = (await this.#begun(parked.envelope)) ?? (await act(parked));
        if (problem === null) done.push(id);
        else failed.push({ task: id, why: problem });
      }
      if (page.ok.next === null) break;
      after = page.ok.next;
    }
    if (task !== null && done.length + failed.length === 0) return { kind: 'absent', why: `${task} does not wait in pool ${pool}` };
    return { ok: { done, failed } };
  }

  #worked(pool: string): Failure | null {
    const agents = this.#pools.book.get(pool)?.agents ?? [];
    if (agents.length === 0) return null;
    return { kind: 'conflict', why: `${agents.length} agents work on this pool (${agents[0]}, …): what waits in it is theirs` };
  }

  /** Why it may have been begun; null = it was not. */
  async #begun({ source, capability, keyed, power_id, task_id }: Envelope): Promise<string | null> {
    const { bus, subjects } = this.#parts;
    const record = await bus.lastAtLeader(LEDGER_STREAM, subjects.idem(ledgerKey(source, capability, keyed ? power_id : task_id)));
    if (record === null) return null;
    if ('failed' in record) return record.failed;
    const { state } = claimHead(record.data);
    return state === 'released' ? null : `it may have been begun: its claim is ${state}`;
  }

  async #takeOut(seq: number): Promise<string | null> {
    const gone = await this.#parts.bus.deleteMessage(TASK_STREAM, seq);
    return gone !== null && typeof gone === 'object' ? gone.failed : null;
  }
}

function taskOf({ seq, timestampMs, data }: Stored): ParkedTask | null {
  const read = decodeEnvelope(data);
  return read === null ? null : { seq, storedAtMs: timestampMs, envelope: read.envelope, payload: read.payload };
}
