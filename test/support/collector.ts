/** A collector for OTLP over HTTP inside the test's process: keeps what it is sent, and answers as it is told. */
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gunzipSync } from 'node:zlib';
import type { Test } from 'tap';
import { type ReadRequest, type ReadSpan, readOtlp } from './otlp-reading.ts';

interface CollectorAnswer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array;
}

const TAKEN: CollectorAnswer = { status: 200 };

export class Collector {
  readonly requests: ReadRequest[] = [];
  readonly heads: IncomingHttpHeaders[] = [];
  readonly paths: string[] = [];
  url = '';
  /** What the next requests are answered; then 200. */
  answers: CollectorAnswer[] = [];

  static async start(t: Test): Promise<Collector> {
    const collector = new Collector();
    const server = createServer((request, response) => {
      const parts: Buffer[] = [];
      request.on('data', (part: Buffer) => parts.push(part));
      request.on('end', () => {
        const body = Buffer.concat(parts);
        const answer = collector.answers.shift() ?? TAKEN;
        collector.heads.push(request.headers);
        collector.paths.push(request.url ?? '');
        if (answer.status === 200)
          collector.requests.push(readOtlp(request.headers['content-encoding'] === 'gzip' ? gunzipSync(body) : body));
        response.writeHead(answer.status, answer.headers ?? {}).end(answer.body);
      });
    });
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    collector.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    t.teardown(() => {
      server.closeAllConnections();
      server.close();
    });
    return collector;
  }

  get spans(): readonly ReadSpan[] {
    return this.requests.flatMap(({ spans }) => spans);
  }

  of(traceId: string): readonly ReadSpan[] {
    return this.spans.filter((span) => span.traceId === traceId);
  }
}
