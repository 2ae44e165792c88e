/**
 * A small fleet on one nats-server for tests of messages: a control plane, sidecars in this process with real agents, and a look
 * into the streams. What agents did is counted at the agents.
 */
import type { Test } from 'tap';
import type { Bus } from '../../base/nats.ts';
import { FINAL_STATES, type KeptEntry, type TaskEvent } from '../../proto/wire/messages.ts';
import { INBOX_STREAM, KEPT_STREAM, Subjects, TASK_STREAM } from '../../proto/wire/subjects.ts';
import { ENV, Plane } from './control-plane.ts';
import { NatsServer } from './nats.ts';
import { Rig, type RigOptions } from './rig.ts';
import { waitUntil } from './settle.ts';

export interface Final {
  readonly seq: number;
  readonly event: TaskEvent;
  readonly body: string;
}

export class Fleet {
  readonly nats: NatsServer;
  readonly plane: Plane;
  readonly bus: Bus;
  readonly subjects = new Subjects(ENV);
  readonly #t: Test;

  /** @param more lines under `control_plane` */
  static async start(t: Test, more = ''): Promise<Fleet> {
    const nats = await NatsServer.start(t);
    const plane = await Plane.start(t, nats, 'cp-1', more);
    await plane.leads();
    return new Fleet(t, nats, plane, await nats.connect({ name: 'the test' }));
  }

  private constructor(t: Test, nats: NatsServer, plane: Plane, bus: Bus) {
    this.#t = t;
    this.nats = nats;
    this.plane = plane;
    this.bus = bus;
  }

  /** The lines under `sidecar` that make it one of this fleet. @param url another way to the server */
  registryLines(url = this.nats.url): string {
    return `  registry: {nats: "${url}", env: ${ENV}, addresses: {loopback: true}}\n`;
  }

  async sidecar(name: string, table: string, settings = '', options: Partial<RigOptions> = {}, url = this.nats.url): Promise<Rig> {
    return await Rig.start(this.#t, {
      table,
      name,
      meshToken: 'token-of-the-mesh',
      settings: `${this.registryLines(url)}${settings}`,
      ...options,
    });
  }

  /** Final events of all inboxes, in the order in which they were stored. */
  async finals(): Promise<Final[]> {
    return (await this.told()).filter(({ event }) => FINAL_STATES.has(event.state));
  }

  /** All events of all inboxes. */
  async told(): Promise<Final[]> {
    const found = await this.bus.history(INBOX_STREAM, this.subjects.inboxes, 100_000);
    if ('failed' in found) throw new Error(found.failed);
    return found.map(({ seq, data }) => {
      const newline = data.indexOf(0x0a);
      return { seq, event: JSON.parse(data.toString('utf8', 0, newline)) as TaskEvent, body: data.toString('utf8', newline + 1) };
    });
  }

  /** Final states of one task. */
  async statesOf(taskId: string): Promise<string[]> {
    return (await this.finals()).filter(({ event }) => event.task_id === taskId).map(({ event }) => event.state);
  }

  async kept(): Promise<KeptEntry[]> {
    const found = await this.bus.history(KEPT_STREAM, this.subjects.allKept, 100_000);
    if ('failed' in found) throw new Error(found.failed);
    return found.map(({ data }) => JSON.parse(data.toString('utf8', 0, data.indexOf(0x0a))) as KeptEntry);
  }

  /** Messages in the task queue. */
  async queued(): Promise<number> {
    const facts = await this.bus.stream(TASK_STREAM);
    if (facts === null || 'failed' in facts) throw new Error('the task stream cannot be looked at');
    return facts.messages;
  }

  async emptied(withinMs: number): Promise<void> {
    const until = performance.now() + withinMs;
    while ((await this.queued()) > 0) {
      if (performance.now() > until) throw new Error(`${await this.queued()} messages are still in the queue after ${withinMs} ms`);
      await new Promise((done) => setTimeout(done, 50));
    }
  }
}

/** Submits until it is accepted; the task id. */
export async function cast(rig: Rig, target: string, payload: unknown, headers: Readonly<Record<string, string>> = {}): Promise<string> {
  const answer = await rig.ask(`/v1/cast/${target}`, { method: 'POST', payload, headers });
  if (answer.status !== 202) throw new Error(`not accepted: ${answer.status} ${answer.bytes.toString('utf8')}`);
  return answer.json.task_id as string;
}

/** Until a sidecar knows who offers the capability. */
export async function knows(rig: Rig, capability: string, count = 1): Promise<void> {
  await waitUntil(
    `${capability} has ${count} providers`,
    () => (rig.started.front.table.current().capabilities.get(capability)?.members.size ?? 0) >= count,
    10_000,
  );
}
