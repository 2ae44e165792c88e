/** `POST /rpc`, as any JSON-RPC 2.0 client over HTTP asks it. */
import { CODES } from '../../../proto/wire/codes.ts';
import { Rig, TOKEN } from '../rig.ts';
import { askRaw, headersOf } from './http.ts';
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

const NO_STREAM = 'JSON-RPC over HTTP has one whole answer to a request; a stream is refused with words, and a channel has it';

export class RpcWay implements WayClient {
  readonly #rig: Rig;
  #lastId = 0;
  constructor(rig: Rig) {
    this.#rig = rig;
  }

  async call(ask: Ask): Promise<Told | null> {
    const answer = await this.#ask(ask.capability, ask.payload ?? '{}', ask);
    if (answer === null) return null;
    if ('result' in answer) return toldOf(answer['result']);
    const error = answer['error'] as { code: number; data: { code: number } };
    const told = toldOf(error.data);
    const due = CODES.find((entry) => entry.code === told.code)?.jsonRpc;
    if (error.code !== due) throw new Error(`error.code is ${error.code}, and ${told.code} maps to ${due}`);
    return told;
  }

  stream(): Promise<ToldStream> {
    return Promise.reject(new Error(NO_STREAM));
  }

  async explain(ask: Ask): Promise<Explained> {
    const answer = await this.#ask('reach.explain', JSON.stringify({ capability: ask.capability }), ask);
    const { would_serve: serves, refusal } = (answer as Record<string, unknown>)['result'] as {
      would_serve: { provider: string } | null;
      refusal: { code: number } | null;
    };
    return { provider: serves?.provider ?? null, code: refusal?.code ?? 0 };
  }

  async cast({ capability, payload, headers }: Cast): Promise<ToldCast> {
    const answer = await this.#ask(
      'reach.cast',
      `{"capability":${JSON.stringify(capability)},"payload":${payload},"headers":${JSON.stringify(headers)}}`,
      {
        capability,
      },
    );
    return toldCastOf(
      (answer as Record<string, unknown>)['result'] ?? ((answer as Record<string, { data: unknown }>)['error'] as { data: unknown }).data,
    );
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  async #ask(method: string, params: string, ask: Ask): Promise<Record<string, unknown> | null> {
    const id = ++this.#lastId;
    const body = `{"jsonrpc":"2.0","id":${id},"method":${JSON.stringify(method)},"params":${params}}`;
    const token = ask.token === undefined ? TOKEN : ask.token;
    try {
      const { status, text } = await askRaw({
        host: '127.0.0.1',
        port: this.#rig.port,
        path: '/rpc',
        headers: {
          'content-type': 'application/json',
          'content-length': String(Buffer.byteLength(body)),
          ...(token === null ? {} : { authorization: `Bearer ${token}` }),
          ...headersOf(ask),
        },
        body,
        ...(ask.leave === undefined ? {} : { leave: ask.leave }),
      });
      const answer = JSON.parse(text) as Record<string, unknown>;
      if (status !== 200 || answer['jsonrpc'] !== '2.0' || answer['id'] !== id) throw new Error(`HTTP ${status}: ${text.slice(0, 300)}`);
      return answer;
    } catch (error) {
      if (ask.leave !== undefined) return null;
      throw error;
    }
  }
}

export const jsonRpcWay: WayFixture = {
  cannot: { stream_whole: NO_STREAM, stream_cut: NO_STREAM, stream_left: NO_STREAM, stream_refused: NO_STREAM },
  async start(t, table): Promise<StartedWay> {
    const rig = await Rig.start(t as Parameters<typeof Rig.start>[0], { table: table() });
    return { rig, others: [], client: new RpcWay(rig) };
  },
};
