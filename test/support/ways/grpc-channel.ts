/** The channel over gRPC, used to call: the frames of a WebSocket channel, one in each message. */
import { CHANNEL_WIRE, ChannelMethod } from '../../../proto/wire/channel.ts';
import { readFrame } from '../../../proto/wire/frame-reader.ts';
import type { ChannelMessage } from '../channel-peer.ts';
import { GrpcClient, type Talk } from '../grpc-client.ts';
import { Rig, TOKEN } from '../rig.ts';
import { type CallingPeer, ChannelWay, type FrameListener } from './channel.ts';
import { told } from './grpc.ts';
import type { StartedWay, WayFixture } from './way.ts';

const PATH = '/agentreach.v1.Reach/Channel';

class GrpcPeer implements CallingPeer {
  readonly #client: GrpcClient;
  readonly #talk: Talk;
  readonly #frame: FrameListener;
  readonly #waiting = new Map<number, (message: ChannelMessage) => void>();
  #lastId = 0;

  private constructor(client: GrpcClient, frame: FrameListener) {
    this.#client = client;
    this.#frame = frame;
    this.#talk = client.talk(PATH, { token: TOKEN }, (message) => this.#heard(message as { text: string; binary: Buffer }));
  }

  static async dial(address: string, frame: FrameListener): Promise<GrpcPeer> {
    const peer = new GrpcPeer(new GrpcClient(address), frame);
    const { error } = await peer.ask(ChannelMethod.hello, JSON.stringify({ wire: CHANNEL_WIRE, serve: false })).answer;
    if (error !== undefined) throw new Error(`hello was refused: ${JSON.stringify(error)}`);
    return peer;
  }

  ask(method: string, params: string): { readonly id: number; readonly answer: Promise<ChannelMessage> } {
    const id = ++this.#lastId;
    const answer = new Promise<ChannelMessage>((done) => this.#waiting.set(id, done));
    this.send(`{"jsonrpc":"2.0","id":${id},"method":${JSON.stringify(method)},"params":${params}}`);
    return { id, answer };
  }

  send(text: string): void {
    this.#talk.write({ text });
  }

  async close(): Promise<void> {
    this.#talk.end();
    const { status, message } = await this.#talk.outcome;
    this.#client.close();
    if (status !== 0) throw new Error(`the channel ended with status ${status}: ${message}`);
  }

  #heard({ text, binary }: { text: string; binary: Buffer }): void {
    if (binary.length > 0) {
      const frame = readFrame(binary);
      if (typeof frame === 'string') throw new Error(frame);
      this.#frame(frame.type, frame.number, frame.payload);
      return;
    }
    const message = JSON.parse(text) as ChannelMessage;
    if (message.method !== undefined || message.id === undefined) return;
    const tell = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    tell?.(message);
  }
}

export const grpcChannelWay: WayFixture = {
  cannot: {},
  way: 'channel',
  async start(t, table): Promise<StartedWay> {
    const rig = await Rig.start(t as Parameters<typeof Rig.start>[0], {
      table: table(),
      settings: '  grpc: {listen: "127.0.0.1:0"}',
    });
    const address = rig.started.grpcAddress as string;
    const client = await ChannelWay.open(
      (frame) => GrpcPeer.dial(address, frame),
      async (token) => {
        const stranger = new GrpcClient(address);
        const outcome = await stranger.talk(PATH, { token }, () => undefined).outcome;
        stranger.close();
        return told(outcome);
      },
    );
    return { rig, others: [], client };
  },
};
