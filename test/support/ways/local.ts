/** A caller inside the process: the calls of the embedded library, without a socket. */
import { ReachError, type Result } from '../../../sidecar/embed/result.ts';
import { Calls } from '../../../sidecar/embed/calls.ts';
import { Casts } from '../../../sidecar/embed/casts.ts';
import type { CallOptions } from '../../../sidecar/embed/options.ts';
import { LocalHub } from '../../../sidecar/transports/local-hub.ts';
import { CALLER, Rig } from '../rig.ts';
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

class LocalWay implements WayClient {
  readonly #calls: Calls;
  readonly #casts: Casts;
  constructor(rig: Rig) {
    this.#calls = new Calls(rig.started.front, CALLER);
    this.#casts = new Casts(rig.started.front, this.#calls);
  }

  async call(ask: Ask): Promise<Told | null> {
    const result = await this.#calls.invoke(ask.capability, payloadOf(ask), optionsOf(ask));
    return ask.leave !== undefined && result.code === 5003 ? null : toldOf(result);
  }

  async stream(ask: Ask): Promise<ToldStream> {
    const stream = this.#calls.stream(ask.capability, payloadOf(ask), optionsOf(ask));
    const chunks: Buffer[] = [];
    let begun = false;
    try {
      await stream.head();
      begun = true;
      for await (const chunk of stream) {
        if (ask.leaveAfterFirst === true) return { how: 'left', text: '', code: null };
        chunks.push(chunk);
      }
    } catch (error) {
      if (!(error instanceof ReachError)) throw error;
      return { how: begun ? 'cut' : 'refused', text: Buffer.concat(chunks).toString('utf8'), code: error.code };
    }
    return { how: 'whole', text: Buffer.concat(chunks).toString('utf8'), code: (stream.result as Result<null>).code };
  }

  explain(ask: Ask): Promise<Explained> {
    const { would_serve: serves, refusal } = this.#calls.explain(ask.capability, undefined, optionsOf(ask));
    return Promise.resolve({ provider: serves?.provider ?? null, code: refusal?.code ?? 0 });
  }

  async cast({ capability, payload, headers }: Cast): Promise<ToldCast> {
    const came = await this.#casts.cast(capability, JSON.parse(payload), { headers });
    return toldCastOf(came.ok ? { ...came, code: undefined } : came);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

function payloadOf(ask: Ask): unknown {
  return JSON.parse(ask.payload ?? '{}');
}

function optionsOf(ask: Ask): CallOptions {
  const { deadlineMs, key, leave, traceparent } = ask;
  const controller = new AbortController();
  void leave?.then(() => controller.abort());
  return {
    ...(deadlineMs === undefined ? {} : { deadlineMs }),
    ...(key === undefined ? {} : { powerId: key }),
    ...(traceparent === undefined ? {} : { headers: { traceparent } }),
    ...(leave === undefined ? {} : { signal: controller.signal }),
  };
}

export const localWay: WayFixture = {
  cannot: { unauthenticated: 'a caller inside the process is named when it starts; it has nothing to prove' },
  async start(t, table): Promise<StartedWay> {
    const rig = await Rig.start(t as Parameters<typeof Rig.start>[0], { table: table(), local: new LocalHub() });
    return { rig, others: [], client: new LocalWay(rig) };
  },
};
