/**
 * The sidecar as `http_proxy` of a client that knows nothing of it. The agent's own answer comes back, and what the sidecar
 * knows in headers; the name of an agent's own error is not among them, and is read from the table of codes.
 */
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { codeEntry } from '../../../proto/wire/codes.ts';
import { Rig, TOKEN } from '../rig.ts';
import { headersOf } from './http.ts';
import { pathOf } from './table.ts';
import {
  type Ask,
  type Explained,
  type StartedWay,
  type Told,
  type ToldCast,
  type ToldStream,
  toldOf,
  type WayClient,
  type WayFixture,
} from './way.ts';

class ProxyWay implements WayClient {
  readonly #rig: Rig;
  constructor(rig: Rig) {
    this.#rig = rig;
  }

  async call(ask: Ask): Promise<Told | null> {
    try {
      const response = await this.#open(ask);
      const { text } = await readAll(response);
      return told(response, text);
    } catch (error) {
      if (ask.leave !== undefined) return null;
      throw error;
    }
  }

  async stream(ask: Ask): Promise<ToldStream> {
    const response = await this.#open(ask);
    if (response.headers['reach-code'] !== '0')
      return { how: 'refused', text: '', code: told(response, (await readAll(response)).text).code };
    if (ask.leaveAfterFirst === true) {
      await new Promise((done) => response.once('data', done));
      response.destroy();
      return { how: 'left', text: '', code: null };
    }
    const { text, cut } = await readAll(response);
    return { how: cut ? 'cut' : 'whole', text, code: cut ? null : 0 };
  }

  explain(): Promise<Explained> {
    return Promise.reject(new Error('a proxy has no words for it'));
  }

  cast(): Promise<ToldCast> {
    return Promise.reject(new Error('a request to a proxy has an answer'));
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  #open(ask: Ask): Promise<IncomingMessage> {
    const [name = '', range] = ask.capability.split('@');
    const body = ask.payload ?? '{}';
    const token = ask.token === undefined ? TOKEN : ask.token;
    return new Promise((done, fail) => {
      const request = httpRequest(
        {
          host: '127.0.0.1',
          port: this.#rig.port,
          path: `http://${name}${pathOf(name)}`,
          method: 'POST',
          agent: false,
          headers: {
            host: name,
            'content-type': 'application/json',
            'content-length': Buffer.byteLength(body),
            ...(token === null ? {} : { 'proxy-authorization': `Bearer ${token}` }),
            ...(range === undefined ? {} : { 'reach-range': range }),
            ...headersOf(ask),
          },
        },
        done,
      );
      request.on('error', fail);
      void ask.leave?.then(() => request.destroy(new Error('left')));
      request.end(body);
    });
  }
}

function readAll(response: IncomingMessage): Promise<{ readonly text: string; readonly cut: boolean }> {
  return new Promise((done) => {
    const chunks: Buffer[] = [];
    response.on('data', (chunk: Buffer) => chunks.push(chunk));
    response.on('error', () => undefined);
    response.on('close', () => done({ text: Buffer.concat(chunks).toString('utf8'), cut: !response.complete }));
  });
}

/** A problem document, or the agent's own answer with the rest in headers. */
function told(response: IncomingMessage, text: string): Told {
  const { headers } = response;
  if (headers['content-type'] === 'application/problem+json') {
    const problem = toldOf(JSON.parse(text));
    const shown = headers['reach-code'];
    if (shown !== undefined && Number(shown) !== problem.code) throw new Error(`Reach-Code is ${shown} beside ${text}`);
    return problem;
  }
  const code = Number(headers['reach-code']);
  const entry = codeEntry(code);
  return {
    code,
    name: code === 0 ? '' : entry.name,
    status: response.statusCode ?? 0,
    data: text === '' ? null : JSON.parse(text),
    provider: textOf(headers['reach-provider']),
    version: textOf(headers['reach-version']),
    degraded: headers['reach-degraded'] === 'true',
    definitelySuccess: headers['reach-definitely-success'] === 'true',
    retryable: code !== 0 && entry.retryable,
    ambiguous: headers['reach-ambiguous'] === 'true',
    traceId: textOf(headers['reach-trace-id']) ?? '',
  };
}

function textOf(value: string | string[] | undefined): string | null {
  return typeof value === 'string' ? value : null;
}

export const proxyWay: WayFixture = {
  cannot: {
    bad_name: 'a host that is no capability is no name either: it is refused as nobody (2001)',
    cast: 'a request to a proxy has an answer; POST /v1/cast takes messages',
    explain: 'a request to a proxy is one for the agent; GET /v1/explain asks',
  },
  async start(t, table): Promise<StartedWay> {
    const rig = await Rig.start(t as Parameters<typeof Rig.start>[0], { table: table() });
    return { rig, others: [], client: new ProxyWay(rig) };
  },
};
