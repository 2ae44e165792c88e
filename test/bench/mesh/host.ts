/** The answering end of the mesh bench, on one port for each protocol. Says its ports to who started it. */
import { createServer } from 'node:http';
import { createServer as createHttp2, type ServerHttp2Stream } from 'node:http2';
import type { AddressInfo, Server as NetServer } from 'node:net';
import type { Writable } from 'node:stream';
import { Server, ServerCredentials, type ServerUnaryCall, type ServerWritableStream, type sendUnaryData } from '@grpc/grpc-js';
import { SERVICE } from './grpc-service.ts';
import { ANSWER, CHUNK, CHUNK_BYTES, STREAM_PATH } from './hop.ts';

function pour(out: Writable, left: number): void {
  for (let pieces = left; pieces > 0; pieces--) {
    if (out.write(CHUNK)) continue;
    out.once('drain', () => pour(out, pieces - 1));
    return;
  }
  out.end();
}

const piecesIn = (body: string): number => Number(body) / CHUNK_BYTES;

const http1 = createServer({ keepAliveTimeout: 120_000 }, (request, response) => {
  let body = '';
  request.on('data', (chunk: Buffer) => {
    body += chunk.toString('latin1');
  });
  request.on('end', () => {
    if (request.url === STREAM_PATH) {
      response.writeHead(200, { 'content-type': 'application/octet-stream', 'reach-code': '0' });
      pour(response, piecesIn(body));
    } else {
      response.writeHead(200, { 'content-type': 'application/json', 'reach-code': '0', 'content-length': String(ANSWER.length) });
      response.end(ANSWER);
    }
  });
});

const http2 = createHttp2();
http2.on('stream', (stream: ServerHttp2Stream, headers) => {
  let body = '';
  stream.on('data', (chunk: Buffer) => {
    body += chunk.toString('latin1');
  });
  stream.on('end', () => {
    if (headers[':path'] === STREAM_PATH) {
      stream.respond({ ':status': 200, 'content-type': 'application/octet-stream', 'reach-code': '0' });
      pour(stream, piecesIn(body));
    } else {
      stream.respond({ ':status': 200, 'content-type': 'application/json', 'reach-code': '0' });
      stream.end(ANSWER);
    }
  });
});

const grpc = new Server();
grpc.addService(SERVICE, {
  invoke: (_call: ServerUnaryCall<Buffer, Buffer>, done: sendUnaryData<Buffer>) => done(null, ANSWER),
  stream: (call: ServerWritableStream<Buffer, Buffer>) => pour(call, piecesIn(call.request.toString('latin1'))),
});

function listen(server: NetServer | ReturnType<typeof createHttp2>): Promise<number> {
  return new Promise((done) => server.listen(0, '127.0.0.1', () => done((server.address() as AddressInfo).port)));
}

const grpcPort = await new Promise<number>((done, failed) => {
  grpc.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, port) => (error === null ? done(port) : failed(error)));
});
process.send?.({ http1: await listen(http1), http2: await listen(http2), grpc: grpcPort });
