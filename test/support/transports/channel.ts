/** Agents that dial in, one a behaviour since an agent has one channel, for the conformance suite. */
import { ChannelMethod, WINDOW_BYTES } from '../../../proto/wire/channel.ts';
import { Frame } from '../../../proto/wire/frames.ts';
import { type ChannelMessage, ChannelPeer } from '../channel-peer.ts';
import type { Rig } from '../rig.ts';
import { waitUntil } from '../settle.ts';
import { act, type Answering, BEHAVIOURS, type Behaviour, CannotDo, type Seen } from './behaviour.ts';
import type { StartedPeer, TransportFixture } from './fixture.ts';

const agentOf = (behaviour: string): string => `peer.conf.${behaviour}`;
const tokenOf = (behaviour: string): string => `token-of-${behaviour}`;

class ChannelAgents implements StartedPeer {
  readonly callers = Object.fromEntries(BEHAVIOURS.map((behaviour) => [agentOf(behaviour), tokenOf(behaviour)]));
  readonly #seen: Seen;
  readonly #agents = new Map<Behaviour, Agent>();

  constructor(seen: Seen) {
    this.#seen = seen;
  }

  provider(): string[] {
    return ['endpoint: {type: channel}'];
  }

  async attach(rig: Rig): Promise<void> {
    for (const behaviour of BEHAVIOURS) this.#agents.set(behaviour, await Agent.dial(rig, behaviour, this.#seen));
  }

  open(): number {
    return [...this.#agents.values()].filter((agent) => agent.isOpen).length;
  }

  async close(): Promise<void> {
    for (const agent of this.#agents.values()) await agent.close();
  }
}

/** One dial-in agent; one whose connection breaks dials again, unless the sidecar is gone. */
class Agent {
  readonly #rig: Rig;
  readonly #behaviour: Behaviour;
  readonly #seen: Seen;
  #peer: ChannelPeer | null = null;
  #isClosed = false;

  private constructor(rig: Rig, behaviour: Behaviour, seen: Seen) {
    this.#rig = rig;
    this.#behaviour = behaviour;
    this.#seen = seen;
  }

  static async dial(rig: Rig, behaviour: Behaviour, seen: Seen): Promise<Agent> {
    const agent = new Agent(rig, behaviour, seen);
    await agent.#dial();
    return agent;
  }

  get isOpen(): boolean {
    return this.#peer?.isOpen === true;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#peer?.close();
  }

  async #dial(): Promise<void> {
    // Of this connection: an older one may be told late that it is over.
    const work = new Map<number, ChannelAnswering>();
    this.#peer = await ChannelPeer.dial(this.#rig.url, tokenOf(this.#behaviour), true, {
      asked: (message, payload, from) => this.#asked(from, work, message, payload),
      frame: (type, stream, payload) => {
        if (type === Frame.credit) work.get(stream)?.credit(payload.readUInt32BE(0));
      },
      closed: () => {
        for (const answering of work.values()) answering.gone();
      },
    });
  }

  /** Breaks the connection and comes back. */
  async #break(): Promise<void> {
    this.#peer?.terminate();
    await waitUntil('the connection is gone', () => !this.isOpen);
    if (!this.#isClosed) await this.#dial();
  }

  #asked(peer: ChannelPeer, work: Map<number, ChannelAnswering>, message: ChannelMessage, payload: Buffer): void {
    if (message.method === ChannelMethod.cancel) {
      const { id } = message.params as { id: number };
      work.get(id)?.gone();
      work.delete(id);
      return;
    }
    if (message.method !== ChannelMethod.invoke) return;
    const id = message.id as number;
    const answering = new ChannelAnswering(
      peer,
      id,
      this.#seen,
      () => work.delete(id),
      () => void this.#break(),
    );
    work.set(id, answering);
    const headers = (message.params as { headers?: Record<string, string> }).headers ?? {};
    const left = headers['reach-deadline-ms'];
    void act(this.#seen, this.#behaviour, { body: payload, headers, deadlineMs: left === undefined ? null : Number(left) }, answering);
  }
}

class ChannelAnswering implements Answering {
  readonly #peer: ChannelPeer;
  readonly #id: number;
  readonly #seen: Seen;
  readonly #done: () => void;
  readonly #break: () => void;
  isGone = false;
  #hasHead = false;
  /** What may still be sent ahead. */
  #window = WINDOW_BYTES;
  #room: () => void = () => undefined;

  constructor(peer: ChannelPeer, id: number, seen: Seen, done: () => void, breaks: () => void) {
    this.#peer = peer;
    this.#id = id;
    this.#seen = seen;
    this.#done = done;
    this.#break = breaks;
  }

  credit(bytes: number): void {
    this.#window += bytes;
    this.#room();
  }

  gone(): void {
    if (this.isGone) return;
    this.isGone = true;
    this.#seen.gone++;
    this.#room();
  }

  answer(json: string): void {
    this.#result(`{"payload":${json}}`);
  }

  empty(): void {
    this.#result('{"status":204}');
  }

  fail(whose: 'theirs' | 'ours', detail: unknown): void {
    const data = JSON.stringify({ status: whose === 'theirs' ? 422 : 500, payload: detail });
    this.#done();
    this.#peer.send(`{"jsonrpc":"2.0","id":${this.#id},"error":{"code":-32000,"message":"no","data":${data}}}`);
  }

  sure(): void {
    this.#result('{"payload":[],"headers":{"reach-definitely-success":"true"}}');
  }

  die(): void {
    this.#break();
  }

  halve(): void {
    throw new CannotDo('a message comes whole or not at all');
  }

  malformed(): void {
    this.#result('["this is no answer"]');
  }

  async write(line: string): Promise<void> {
    if (!this.#hasHead) {
      this.#hasHead = true;
      const params = `{"id":${this.#id},"content_type":"application/x-ndjson"}`;
      this.#peer.send(`{"jsonrpc":"2.0","method":"${ChannelMethod.head}","params":${params}}`);
    }
    const bytes = Buffer.from(`${line}\n`);
    while (this.#window < bytes.length && !this.isGone)
      await new Promise<void>((done) => {
        this.#room = done;
      });
    if (this.isGone) return;
    this.#window -= bytes.length;
    this.#peer.sendData(this.#id, bytes);
  }

  end(): void {
    this.#result('{}');
  }

  snap(): void {
    this.#break();
  }

  #result(json: string): void {
    this.#done();
    if (!this.isGone) this.#peer.send(`{"jsonrpc":"2.0","id":${this.#id},"result":${json}}`);
  }
}

export const channelFixture: TransportFixture = {
  type: 'channel',
  errorStatus: { theirs: 422, ours: 500 },
  knowsPresence: true,
  cannot: { halves: 'a message comes whole or not at all' },
  start: (_t, seen) => Promise.resolve(new ChannelAgents(seen)),
};
