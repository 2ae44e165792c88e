/** What senders themselves can read in their inboxes, each at its own sidecar, page by page from the first entry on. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Gate } from './submitter.ts';

/** The most that a sidecar gives at a time. */
const PAGE = 1_000;
const AGAIN_MS = 500;
const MOST_MS = 60_000;

interface Page {
  readonly entries: readonly { readonly task_id: string; readonly state: string; readonly data: unknown }[];
  readonly next: number;
}

/** By task: the state it ended with and the result, as text. Throws when an inbox cannot be read. */
export async function readInboxes(gates: readonly Gate[]): Promise<Map<string, string>> {
  const told = new Map<string, string>();
  for (const gate of gates) {
    let from = 1;
    for (;;) {
      const { entries, next } = await pageOf(gate, from);
      for (const { task_id: taskId, state, data } of entries) told.set(taskId, tellingOf(state, data));
      if (entries.length === 0) break;
      from = next;
    }
  }
  return told;
}

/** A state with its result, such as can be compared. */
export function tellingOf(state: string, data: unknown): string {
  return `${state} ${JSON.stringify(data ?? null)}`;
}

async function pageOf({ name, url, token }: Gate, from: number): Promise<Page> {
  const end = performance.now() + MOST_MS;
  for (;;) {
    const answer = await fetch(`${url}/v1/inbox?from=${from}&limit=${PAGE}`, { headers: { authorization: `Bearer ${token}` } });
    const text = await answer.text();
    if (answer.status === 200) return JSON.parse(text) as Page;
    if (performance.now() > end)
      throw new Error(`the inbox at ${name} cannot be read from ${from}: ${answer.status} ${text.slice(0, 300)}`);
    await sleep(AGAIN_MS);
  }
}
