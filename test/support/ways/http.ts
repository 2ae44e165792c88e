/** `POST /v1/invoke` and `/v1/stream`, as a plain HTTP client asks them. */
import { request as httpRequest } from 'node:http';
import { eventsIn, openReading } from '../reading.ts';
import { type Asking, Rig } from '../rig.ts';
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

export function headersOf(ask: Ask): Record<string, string> {
  return {
    ...(ask.deadlineMs === undefined ? {} : { 'reach-deadline-ms': String(ask.deadlineMs) }),
    ...(ask.key === undefined ? {} : { 'idempotency-key': ask.key }),
    ...(ask.traceparent === undefined ? {} : { traceparent: ask.traceparent }),
  };
}

export class HttpWay implements WayClient {
  readonly #rig: Rig;
  constructor(rig: Rig) {
    this.#rig = rig;
  }

  async call(ask: Ask): Promise<Told | null> {
    const asking: Asking = {
      body: ask.payload ?? '{}',
      headers: headersOf(ask),
      ...(ask.token === undefined ? {} : { token: ask.token }),
      ...(ask.leave === undefined ? {} : { hangUp: ask.leave }),
    };
    try {
      const { json, status, headers } = await this.#rig.invoke(encodeURIComponent(ask.capability), asking);
      const told = toldOf(json);
      if (told.code === 0 && status !== 200) throw new Error(`a success with HTTP ${status}`);
      if (told.code !== 0 && headers['content-type'] !== 'application/problem+json') throw new Error('a failure is no problem document');
      return told;
    } catch (error) {
      if (ask.leave !== undefined) return null;
      throw error;
    }
  }

  async stream(ask: Ask): Promise<ToldStream> {
    const reading = await openReading(this.#rig, encodeURIComponent(ask.capability), {
      events: true,
      headers: { ...headersOf(ask), ...(ask.token == null ? {} : { authorization: `Bearer ${ask.token}` }) },
      ...(ask.payload === undefined ? {} : { payload: JSON.parse(ask.payload) as unknown }),
    });
    if (ask.leaveAfterFirst === true) {
      await reading.until(1);
      reading.leave();
      return { how: 'left', text: '', code: null };
    }
    const { text } = await reading.rest();
    if (reading.headers['content-type'] !== 'text/event-stream; charset=utf-8')
      return { how: 'refused', text: '', code: Number(reading.headers['reach-code'] ?? JSON.parse(text).code) };
    const events = eventsIn(text);
    const last = events.at(-1);
    const code = Number(JSON.parse(last?.data ?? '{}').code);
    const lines = events.slice(0, -1).map(({ data }) => data);
    return { how: last?.event === 'end' ? 'whole' : 'cut', text: lines.join('\n'), code };
  }

  async explain(ask: Ask): Promise<Explained> {
    const { json } = await this.#rig.ask(`/v1/explain/${encodeURIComponent(ask.capability)}`);
    return { provider: json.would_serve?.provider ?? null, code: json.refusal?.code ?? 0 };
  }

  async cast({ capability, payload, headers }: Cast): Promise<ToldCast> {
    const path = `/v1/cast/${encodeURIComponent(capability)}`;
    const { json, status, headers: came } = await this.#rig.ask(path, { method: 'POST', body: payload, headers });
    const told = toldCastOf(json);
    if (told.code === 0 && (status !== 202 || came['location'] !== `/v1/tasks/${json.task_id}`))
      throw new Error(`accepted with HTTP ${status}`);
    return told;
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

/** A request of any shape, its answer whole; rejects when the connection breaks. */
export interface RawAsking {
  readonly host: string;
  readonly port: number;
  readonly path: string;
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly leave?: Promise<void>;
}

export interface RawAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
}

export function askRaw(asking: RawAsking): Promise<RawAnswer> {
  return new Promise((done, fail) => {
    const request = httpRequest(
      {
        host: asking.host,
        port: asking.port,
        path: asking.path,
        method: asking.method ?? 'POST',
        agent: false,
        headers: asking.headers ?? {},
      },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('error', fail);
        response.on('end', () =>
          done({ status: response.statusCode ?? 0, headers: response.headers, text: Buffer.concat(chunks).toString('utf8') }),
        );
      },
    );
    request.on('error', fail);
    void asking.leave?.then(() => request.destroy(new Error('left')));
    request.end(asking.body);
  });
}

export const httpWay: WayFixture = {
  cannot: {},
  async start(t, table): Promise<StartedWay> {
    const rig = await Rig.start(t as Parameters<typeof Rig.start>[0], { table: table() });
    return { rig, others: [], client: new HttpWay(rig) };
  },
};
