/**
 * Tasks that wait in a pool on which nobody works, in the hands of a person: listed, sent to another capability, dropped. Only
 * while nobody works on the pool, since a worker might have one of them in hand; and never one whose claim says that it may
 * have been begun. As everywhere: stored in its new place first, taken out of the old one then.
 */
import type { Stored } from '../../base/jetstream.ts';
import { decodeEnvelope, encodeEnvelope, type Envelope } from '../../proto/wire/envelope.ts';
import { Consumer, type Pool } from '../../proto/wire/messages.ts';
import { poolWords } from '../../proto/wire/pool.ts';
import { TASK_STREAM } from '../../proto/wire/subjects.ts';
import { encode } from '../push/json.ts';
import { ClaimFence } from './claim-fence.ts';
import { type Done, type KeptDesk, tellDropped } from './kept-desk.ts';
import { eventOf } from './kept-entry.ts';
import { type MessageParts, withNewStatement } from './parts.ts';
import type { PoolDesk } from './pool-desk.ts';
import { takeOne } from './sifting.ts';
import { serverTime, withTimeLeft } from './time-left.ts';

export interface ParkedTask {
  readonly seq: number;
  readonly storedAtMs: number;
  readonly envelope: Envelope;
  readonly payload: Buffer;
  /** As its subject says. */
  readonly pool: string;
  readonly lane: string;
  readonly partition: number;
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

/** What is wrong; `gone`: whoever waited for it has been told, or it is elsewhere under another key; `moved`: elsewhere, under the same key. */
type Acted = { readonly why: string } | 'gone' | 'moved';
type Act = (parked: ParkedTask) => Promise<Acted>;
type Failure = Exclude<Done<never>, { ok: never }>;

const POOL = /^p[a-z2-7]{20}$/;

export class ParkedDesk {
  readonly #parts: MessageParts;
  readonly #pools: PoolDesk;
  readonly #kept: KeptDesk;
  readonly #fence: ClaimFence;
  #isBusy = false;

  constructor(parts: MessageParts, pools: PoolDesk, kept: KeptDesk) {
    this.#parts = parts;
    this.#pools = pools;
    this.#kept = kept;
    this.#fence = new ClaimFence(parts);
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
    return this.#each(pool, task, limit, who, async (parked) => {
      const { envelope } = parked;
      const next = this.#kept.poolOf(target, envelope.tags);
      if (!('ok' in next)) return next;
      if (next.ok.id === pool) return { why: `it waits for ${target} already` };
      const used = await this.#pools.use(next.ok);
      if (!used.ok) return used;
      const serverMs = await serverTime(this.#parts);
      if (serverMs === null) return { why: 'NATS does not say what time it is' };
      const why = await this.#send(parked, next.ok, target, who, serverMs);
      if (why !== null) return { why };
      return next.ok.capability === envelope.capability ? 'moved' : 'gone';
    });
  }

  drop(pool: string, task: string | null, limit: number, who: string): Promise<Done<Handled>> {
    return this.#each(pool, task, limit, who, async ({ envelope }) => {
      const why = await tellDropped(this.#parts, envelope, who);
      return why === null ? 'gone' : { why };
    });
  }

  /** With what is left of its time: that runs from acceptance, and it waited here. */
  async #send(
    { seq, storedAtMs, envelope, payload }: ParkedTask,
    pool: Pool,
    target: string,
    who: string,
    serverMs: number,
  ): Promise<string | null> {
    const { bus, subjects, clock } = this.#parts;
    const { sticky_key: _, ...rest } = withTimeLeft(envelope, storedAtMs, serverMs);
    const sent: Envelope = {
      ...rest,
      target: { capability: target, role: null, agent: null },
      capability: pool.capability,
      version: pool.version,
      pool: pool.id,
    };
    const stored = await bus.append(
      subjects.task(pool.id, sent.lane, 0, sent.home),
      encodeEnvelope(await withNewStatement(this.#parts, sent), payload),
      {
        stream: TASK_STREAM,
        msgId: `${envelope.task_id}.parked.${seq}`,
      },
    );
    if (!('seq' in stored)) return 'failed' in stored ? stored.failed : 'the queue refused it';
    const detail = `sent to ${poolWords(pool)} by ${who}`;
    bus.publish(subjects.note(envelope.home), encode(eventOf(sent, 'waiting', 0, 'rerouted', detail, clock.wallMs())));
    return null;
  }

  async #each(pool: string, task: string | null, limit: number, who: string, act: Act): Promise<Done<Handled>> {
    if (this.#isBusy) return { kind: 'conflict', why: 'somebody is moving parked tasks at this moment' };
    this.#isBusy = true;
    try {
      return await this.#eachOf(pool, task, limit, who, act);
    } finally {
      this.#isBusy = false;
    }
  }

  async #eachOf(pool: string, task: string | null, limit: number, who: string, act: Act): Promise<Done<Handled>> {
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
        const problem = this.#worked(pool)?.why ?? (await this.#fenced(parked, who, act));
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

  /**
   * Nobody can begin it meanwhile. Once it is elsewhere, or its sender was told, nobody can begin it here any more, whatever follows.
   * Under the same key it is to be begun there: so it is taken out here before that is free.
   */
  async #fenced(parked: ParkedTask, who: string, act: Act): Promise<string | null> {
    const fence = await this.#fence.take(parked.envelope, who);
    if (fence === 'ended') return this.#takeOut(parked);
    if (typeof fence === 'string') return fence;
    const acted = await act(parked);
    const left = acted === 'moved' ? await this.#takeOut(parked) : null;
    await this.#fence.leave(fence, acted === 'gone');
    if (typeof acted === 'object') return acted.why;
    return acted === 'gone' ? this.#takeOut(parked) : left;
  }

  /** What its subject says counts: by that it was given to a consumer, or not. */
  #takeOut({ seq, pool, lane, partition }: ParkedTask): Promise<string | null> {
    const entry = this.#pools.book.get(pool);
    const term = entry?.partitions[partition]?.term ?? 0;
    const laneConsumer = entry === undefined ? null : Consumer.lane(pool, lane, entry.secret);
    return takeOne(
      this.#parts,
      seq,
      entry?.pool.sticky !== true ? laneConsumer : term > 0 ? Consumer.partition(pool, partition, term, entry.secret) : null,
    );
  }
}

function taskOf({ subject, seq, timestampMs, data }: Stored): ParkedTask | null {
  const read = decodeEnvelope(data);
  if (read === null) return null;
  const [pool = '', lane = '', partition = ''] = subject.split('.').slice(-4, -1);
  return { seq, storedAtMs: timestampMs, envelope: read.envelope, payload: read.payload, pool, lane, partition: Number(partition) };
}
