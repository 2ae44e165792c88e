/**
 * The front agent's messages in the demo: what was accepted, where it is durable, and what its inbox says became of each.
 * Nothing is counted but what was answered and what came.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from './client.ts';

export interface Accepted {
  readonly task_id: string;
  readonly durable: 'stream' | 'local-disk';
  readonly state: 'accepted' | 'parked';
  readonly lane: string;
  readonly rule: string | null;
}

export interface Task {
  readonly task_id: string;
  readonly state: string;
  readonly is_final: boolean;
  readonly by: string | null;
  readonly attempts: number;
  readonly code: number;
  readonly replay: boolean;
  readonly accepted_at_ms: number | null;
  readonly received_at_ms: number | null;
  readonly events: readonly { readonly state: string; readonly by: string; readonly at_ms: number }[];
  readonly result: unknown;
}

/** What the inbox says of a task: that somebody has it, or how it ended. */
export interface News {
  readonly seq: number;
  readonly task_id: string;
  readonly state: string;
  readonly by: string;
  readonly attempts: number;
  readonly replay: boolean;
  readonly data: unknown;
}

interface Page {
  readonly entries: readonly News[];
  readonly next: number;
  readonly floor: number;
}

const FINAL: ReadonlySet<string> = new Set(['done', 'failed', 'dead_lettered', 'in_doubt', 'expired', 'cancelled']);
const LOOK_EVERY_MS = 100;
const PAGE_WAIT = '1s';

export class Mail {
  readonly #client: Client;
  readonly accepted: Accepted[] = [];
  /** Every entry of the inbox, in its order: of tasks under way too. */
  readonly entries: News[] = [];
  /** What was not taken, in words. */
  readonly refused: string[] = [];

  constructor(client: Client) {
    this.#client = client;
  }

  /** Entries that say how a task ended. */
  get ends(): News[] {
    return this.entries.filter(({ state }) => FINAL.has(state));
  }

  /** Gives a task to whoever serves the capability; null = it was not taken. */
  cast(capability: string, payload: unknown, headers: Readonly<Record<string, string>> = {}): Promise<Accepted | null> {
    return this.#submit(`/v1/cast/${capability}`, payload, headers);
  }

  /** A message with all its fields. */
  send(message: object): Promise<Accepted | null> {
    return this.#submit('/v1/messages', message, {});
  }

  async #submit(path: string, payload: unknown, headers: Readonly<Record<string, string>>): Promise<Accepted | null> {
    const { status, body } = await this.#client.ask<Accepted>('POST', path, payload, headers);
    if (status === 202) {
      this.accepted.push(body);
      return body;
    }
    this.refused.push(`${path}: ${status} ${JSON.stringify(body)}`);
    return null;
  }

  async task(id: string): Promise<Task> {
    return (await this.#client.ask<Task>('GET', `/v1/tasks/${id}`)).body;
  }

  /** Reads the inbox on until the end of each of these has come; gives them in the order of `ids`, null where none came in time. */
  async endsOf(ids: readonly string[], withinMs: number): Promise<(News | null)[]> {
    const until = performance.now() + withinMs;
    for (;;) {
      const ends = ids.map((id) => this.ends.findLast((entry) => entry.task_id === id) ?? null);
      if (ends.every((end) => end !== null) || performance.now() > until) return ends;
      await this.read();
    }
  }

  /** All that has an end, by state. */
  counted(): ReadonlyMap<string, number> {
    const last = new Map(this.ends.map(({ task_id: id, state }) => [id, state]));
    const counts = new Map<string, number>();
    for (const { task_id: id } of this.accepted) {
      const state = last.get(id) ?? 'open';
      counts.set(state, (counts.get(state) ?? 0) + 1);
    }
    return counts;
  }

  /** What comes next, or nothing after a moment. It is acknowledged at once: a repeat would be counted. */
  async read(): Promise<void> {
    const { status, body } = await this.#client.ask<Page>('GET', `/v1/inbox?limit=1000&wait=${PAGE_WAIT}`);
    const last = status === 200 ? body.entries.at(-1) : undefined;
    if (last === undefined) {
      await sleep(LOOK_EVERY_MS);
      return;
    }
    this.entries.push(...body.entries);
    await this.#client.ask('POST', '/v1/inbox/ack', { seq: last.seq });
  }
}
