/** An agent's channel, used to call; what carries its frames is somebody else's affair. */
import { CODES } from '../../../proto/wire/codes.ts';
import { ChannelMethod } from '../../../proto/wire/channel.ts';
import { Frame } from '../../../proto/wire/frames.ts';
import { ChannelPeer, refusedDial } from '../channel-peer.ts';
import { Rig, TOKEN } from '../rig.ts';
import { headersOf } from './http.ts';
import {
  type Ask,
  type Explained,
  type StartedWay,
  type Told,
  type Cast,
  type ToldCast,
  toldCastOf,
  type ToldStream,
  toldOf,
  type WayClient,
  type WayFixture,
} from './way.ts';

/** The agent's end of an open channel. */
export type CallingPeer = Pick<ChannelPeer, 'ask' | 'send' | 'close'>;

/** Dials in; what comes in binary frames goes to `frame`. */
export type Dial = (frame: FrameListener) => Promise<CallingPeer>;

export class ChannelWay implements WayClient {
  readonly #peer: CallingPeer;
  readonly #refused: (token: string) => Promise<Told>;
  readonly #frames: (listener: FrameListener | null) => void;

  private constructor(peer: CallingPeer, refused: (token: string) => Promise<Told>, frames: (listener: FrameListener | null) => void) {
    this.#peer = peer;
    this.#refused = refused;
    this.#frames = frames;
  }

  /** @param refused what somebody with this token is told who dials in */
  static async open(dial: Dial, refused: (token: string) => Promise<Told>): Promise<ChannelWay> {
    let listener: FrameListener | null = null;
    const peer = await dial((type, stream, payload) => listener?.(type, stream, payload));
    return new ChannelWay(peer, refused, (next) => {
      listener = next;
    });
  }

  async call(ask: Ask): Promise<Told | null> {
    // A credential belongs to a channel, not to a call: another one dials in anew.
    if (typeof ask.token === 'string') return await this.#refused(ask.token);
    const { id, answer } = this.#peer.ask(ChannelMethod.invoke, paramsOf(ask));
    if (ask.leave !== undefined) {
      // Who takes a request back is told nothing more of it.
      const first = await Promise.race([answer, ask.leave.then(() => null)]);
      if (first === null) {
        this.#peer.send(`{"jsonrpc":"2.0","method":"${ChannelMethod.cancel}","params":{"id":${id}}}`);
        return null;
      }
    }
    const { result, error } = await answer;
    if (error === undefined) return toldOf(result);
    const told = toldOf(error.data);
    const due = CODES.find((entry) => entry.code === told.code)?.jsonRpc;
    if (error.code !== due) throw new Error(`error.code is ${error.code}, and ${told.code} maps to ${due}`);
    return told;
  }

  async stream(ask: Ask): Promise<ToldStream> {
    const chunks: Buffer[] = [];
    let number = 0;
    // Several frames may be read at once, and whoever waits for the head goes on only after all of them.
    const early: [number, number, Buffer][] = [];
    let hear: FrameListener = () => undefined;
    const over = new Promise<ToldStream>((done) => {
      hear = (type, stream, payload) => {
        if (number === 0) early.push([type, stream, payload]);
        if (stream !== number) return;
        if (type === Frame.data) {
          chunks.push(payload);
          if (ask.leaveAfterFirst !== true) return;
          this.#peer.send(`{"jsonrpc":"2.0","method":"${ChannelMethod.cancel}","params":{"stream":${stream}}}`);
          done({ how: 'left', text: '', code: null });
        } else if (type === Frame.end || type === Frame.error)
          done({
            how: type === Frame.end ? 'whole' : 'cut',
            text: Buffer.concat(chunks).toString('utf8'),
            code: Number(JSON.parse(payload.toString('utf8')).code),
          });
      };
    });
    this.#frames(hear);
    const { result, error } = await this.#peer.ask(ChannelMethod.stream, paramsOf(ask)).answer;
    if (error !== undefined) return { how: 'refused', text: '', code: Number(error.data.code) };
    number = result.stream as number;
    for (const [type, stream, payload] of early) hear(type, stream, payload);
    const told = await over;
    this.#frames(null);
    return told;
  }

  async explain(ask: Ask): Promise<Explained> {
    const { result } = await this.#peer.ask(ChannelMethod.explain, JSON.stringify({ capability: ask.capability })).answer;
    return { provider: result.would_serve?.provider ?? null, code: result.refusal?.code ?? 0 };
  }

  async cast({ capability, payload, headers }: Cast): Promise<ToldCast> {
    const params = `{"target":{"capability":${JSON.stringify(capability)}},"payload":${payload},"headers":${JSON.stringify(headers)}}`;
    const { result, error } = await this.#peer.ask(ChannelMethod.cast, params).answer;
    return toldCastOf(error === undefined ? result : error.data);
  }

  close(): Promise<void> {
    return this.#peer.close();
  }
}

export type FrameListener = (type: number, stream: number, payload: Buffer) => void;

function paramsOf(ask: Ask): string {
  return `{"capability":${JSON.stringify(ask.capability)},"payload":${ask.payload ?? '{}'},"headers":${JSON.stringify(headersOf(ask))}}`;
}

export const channelWay: WayFixture = {
  cannot: {},
  async start(t, table): Promise<StartedWay> {
    const rig = await Rig.start(t as Parameters<typeof Rig.start>[0], { table: table() });
    const client = await ChannelWay.open(
      (frame) => ChannelPeer.dial(rig.url, TOKEN, false, { frame }),
      async (token) => toldOf(await refusedDial(rig.url, token)),
    );
    return { rig, others: [], client };
  },
};
