/**
 * NATS with the users that `reachctl nats` makes, a control plane, the sidecar that hosts the watched provider and the one
 * beside an honest caller. The attackers are users of that server too, with the keys of sidecars and a client of their own
 * that keeps to nothing: `thief`, whose agents work, and `clerk`, who only calls and reads but `pay.*`.
 */
import { connect, type NatsConnection, nkeyAuthenticator, type Msg } from 'nats';
import type { Test } from 'tap';
import type { Bus } from '../../base/nats.ts';
import { ENV, Plane } from '../support/control-plane.ts';
import { CONTROL, startWithUsers, type Users } from '../support/nats-permissions.ts';
import { Rig } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { ProviderWatch } from './provider-watch.ts';

export const QUERY = 'crm.order.query';
export const PROVIDER = 'crm.order.1';
export const HOST = 'order-side';
export const FRONT = 'front-side';
export const CALLER = 'support.planner.1';
export const ROOT = `ar.${ENV}`;
const LATE_MS = 60;
/** What a quiet fleet does not change. The streams of leases and of what operators did are left out. */
const WATCHED = new Set(['AR_CFG', 'AR_TASKS', 'AR_INBOX', 'AR_IDEM', 'AR_DLQ', 'AR_OVR', 'AR_AUDIT', 'AR_REFUSED']);

export class Attacker {
  readonly name: string;
  readonly #connection: NatsConnection;
  readonly #refused: string[] = [];

  static async of(t: Test, users: Users, name: string): Promise<Attacker> {
    const connection = await connect({
      servers: users.nats.url,
      authenticator: nkeyAuthenticator(Buffer.from(users.seed(name))),
      inboxPrefix: `_INBOX.${name}`,
      reconnect: false,
    });
    t.teardown(() => connection.close());
    return new Attacker(name, connection);
  }

  private constructor(name: string, connection: NatsConnection) {
    this.name = name;
    this.#connection = connection;
    void this.#follow();
  }

  async #follow(): Promise<void> {
    for await (const { permissionContext } of this.#connection.status())
      if (permissionContext !== undefined) this.#refused.push(`${permissionContext.operation} ${permissionContext.subject}`);
  }

  /** The server says that it may not. */
  async mayNotPublish(t: Test, subjects: readonly string[], data = '{}', reply = ''): Promise<void> {
    for (const subject of subjects) {
      const before = this.#refused.length;
      this.#connection.publish(subject, Buffer.from(data), reply === '' ? {} : { reply });
      await this.#settled(t, before, `publish ${subject}`);
    }
  }

  async mayNotHear(t: Test, patterns: readonly string[], queue = ''): Promise<void> {
    for (const pattern of patterns) {
      const before = this.#refused.length;
      let heard = 0;
      this.#connection.subscribe(pattern, { callback: (error) => void (error === null && heard++), ...(queue === '' ? {} : { queue }) });
      await this.#settled(t, before, `subscription ${pattern}`);
      t.equal(heard, 0, 'and it has heard nothing there');
    }
  }

  async #settled(t: Test, before: number, what: string): Promise<void> {
    await this.#connection.flush();
    const isRefused = (): boolean => this.#refused.slice(before).some((said) => said === what);
    await waitUntil(what, isRefused, 2_000).catch(() => undefined);
    t.ok(isRefused(), `the server refuses: ${what}`);
  }

  /** What it may publish; the answer, or null when there is none within a moment. */
  async ask(subject: string, data: string | Uint8Array, timeoutMs = 1_500): Promise<Msg | null> {
    try {
      return await this.#connection.request(subject, Buffer.from(data), { timeout: timeoutMs });
    } catch {
      return null;
    }
  }

  /** It hears what it has sent, with the place for the answer that it has named. */
  async asksItself(t: Test, subject: string, reply: string): Promise<void> {
    const heard: string[] = [];
    const subscription = this.#connection.subscribe(subject, { callback: (_error, message) => void heard.push(message.reply ?? '') });
    this.#connection.publish(subject, Buffer.from('{}'), { reply });
    await this.#connection.flush();
    await waitUntil('it is heard', () => heard.length > 0, 2_000).catch(() => undefined);
    subscription.unsubscribe();
    t.same(heard, [reply]);
  }

  async publish(subject: string, data: string): Promise<void> {
    this.#connection.publish(subject, Buffer.from(data));
    await this.#connection.flush();
  }
}

export class NatsWorld {
  readonly users: Users;
  readonly plane: Plane;
  readonly watch: ProviderWatch;
  host!: Rig;
  front!: Rig;
  thief!: Attacker;
  clerk!: Attacker;
  /** As the control plane sees the server. */
  eye!: Bus;

  static async start(t: Test): Promise<NatsWorld> {
    const users = await startWithUsers(t, {
      env: ENV,
      sidecars: [HOST, FRONT, 'thief', 'clerk'],
      scopes: { clerk: ['--no-work', '--reads', 'pay.*'] },
    });
    const as = (user: string): string => `credential: {nkey: {file: ${JSON.stringify(users.seedFile(user))}}}`;
    const plane = await Plane.start(t, users.nats, 'cp-1', '', as(CONTROL));
    const watch = await ProviderWatch.start(t);
    const world = new NatsWorld(users, plane, watch);
    await plane.leads();
    const settings = (name: string): string =>
      `  mesh: {listen: "127.0.0.1:0", token: of-the-mesh}\n  registry: {nats: "${users.nats.url}", ${as(name)}, env: ${ENV}, addresses: {loopback: true}}\n`;
    world.host = await Rig.start(t, { name: HOST, table: tableOf(watch.url), settings: settings(HOST) });
    world.front = await Rig.start(t, { name: FRONT, table: 'contracts: []\nproviders: []\n', settings: settings(FRONT) });
    const seed = users.seed(CONTROL);
    world.eye = await users.nats.connect({ credential: () => ({ nkeySeed: seed }), inboxPrefix: '_INBOX._control' });
    world.thief = await Attacker.of(t, users, 'thief');
    world.clerk = await Attacker.of(t, users, 'clerk');
    await waitUntil('calls are served', async () => (await world.front.invoke(`${QUERY}@1`, { payload: {} })).status === 200, 15_000);
    return world;
  }

  private constructor(users: Users, plane: Plane, watch: ProviderWatch) {
    this.users = users;
    this.plane = plane;
    this.watch = watch;
  }

  /** A task of the honest caller; gives its id. */
  async cast(t: Test): Promise<string> {
    const cast = await this.front.ask(`/v1/cast/${QUERY}`, { method: 'POST', payload: {} });
    t.equal(cast.status, 202, JSON.stringify(cast.json));
    return String(cast.json.task_id);
  }

  /** The same, up to its end. */
  async work(t: Test): Promise<string> {
    const task = await this.cast(t);
    await this.#done(task);
    return task;
  }

  /** While it lasts nobody works; the task that it gives is carried out afterwards. */
  async drained(t: Test, act: () => Promise<string>): Promise<void> {
    const order = async (what: string): Promise<void> => {
      const { status, body } = await this.plane.ask(`/v1/providers/${PROVIDER}/${what}`, { json: { reason: 'an attack is tried' } });
      t.ok(status < 300, `${what}: ${JSON.stringify(body)}`);
    };
    await order('drain');
    const isDrained = async (): Promise<boolean> => (await this.front.invoke(`${QUERY}@1`, { payload: {} })).status !== 200;
    await waitUntil('it is drained', isDrained, 10_000);
    const task = await act();
    await order('restore');
    await this.#done(task);
  }

  async #done(task: string): Promise<void> {
    let last = '';
    const isDone = async (): Promise<boolean> => {
      last = JSON.stringify((await this.front.ask(`/v1/tasks/${task}`)).json);
      return last.includes('"state":"done"');
    };
    await waitUntil(`${task} is done`, isDone, 15_000).catch((error: unknown) => {
      throw new Error(`${String(error)}: ${last}`);
    });
    // It is acknowledged a moment after its sender has heard of its end.
    await waitUntil('the queue is empty', async () => {
      const streams = (await this.#streams()) as readonly { readonly name: string; readonly messages: number }[];
      return streams.find(({ name }) => name === 'AR_TASKS')?.messages === 0;
    });
  }

  /** The attempt changes nothing that the server keeps, and reaches no provider. */
  async unmoved(t: Test, attempt: () => Promise<void>): Promise<void> {
    const [before, count] = [await this.#streams(), this.watch.count];
    await attempt();
    await new Promise((done) => setTimeout(done, LATE_MS));
    t.same(await this.#streams(), before, 'streams and consumers are as they were');
    await this.watch.untouched(t, count);
  }

  /** Subjects under which something lies, bounds, consumers and what they have given out. */
  async #streams(): Promise<unknown> {
    const answer = await this.users.nats.monitor('jsz?streams=true&consumers=true&config=true');
    const accounts = answer['account_details'] as { readonly stream_detail?: readonly Detail[] }[];
    return accounts
      .flatMap(({ stream_detail: streams = [] }) => streams)
      .filter(({ name }) => WATCHED.has(name))
      .map(({ name, config, state, consumer_detail: consumers = [] }) => ({
        name,
        config,
        messages: state.messages,
        last: state.last_seq,
        consumers: consumers
          .map((each) => [each.name, each.delivered?.consumer_seq, each.num_ack_pending, each.ack_floor?.stream_seq])
          .sort(),
      }))
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  }
}

interface Detail {
  readonly name: string;
  readonly config: unknown;
  readonly state: { readonly messages: number; readonly last_seq: number };
  readonly consumer_detail?: readonly {
    readonly name: string;
    readonly delivered?: { readonly consumer_seq: number };
    readonly ack_floor?: { readonly stream_seq: number };
    readonly num_ack_pending: number;
  }[];
}

function tableOf(url: string): string {
  return `contracts:
  - {name: ${QUERY}, version: 1.0.0, description: d, acl: public, execution: idempotent}
  - {name: crm.order.keyed, version: 1.0.0, description: d, acl: public, execution: keyed}
providers:
  - agent_id: ${PROVIDER}
    via: ${HOST}
    offers: ["${QUERY}@1.0.0", "crm.order.keyed@1.0.0"]
    endpoint: {type: http, address: "${url}", path: "/{capability}"}
`;
}
