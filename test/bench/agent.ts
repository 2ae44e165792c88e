/**
 * The provider: a bare node:http server that reads the question and answers 1 KiB of JSON, at `/rpc` as the result of a
 * JSON-RPC request. Says `{port}` to who started it.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { ANSWER } from './payload.ts';

const HEAD = { 'content-type': 'application/json', 'content-length': String(ANSWER.length) };

const server = createServer({ keepAliveTimeout: 120_000 }, (request, response) => {
  if (request.url === '/rpc') {
    answerRpc(request, response);
    return;
  }
  request.on('data', () => {});
  request.on('end', () => {
    response.writeHead(200, HEAD);
    response.end(ANSWER);
  });
});

/** The id is all that is read of the request. */
const ID = /"id":("[^"]*"|\d+)/;

function answerRpc(request: IncomingMessage, response: ServerResponse): void {
  let asked = '';
  request.setEncoding('latin1');
  request.on('data', (chunk: string) => (asked += chunk));
  request.on('end', () => {
    const body = `{"jsonrpc":"2.0","id":${ID.exec(asked)?.[1] ?? 'null'},"result":${ANSWER.toString('latin1')}}`;
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': String(body.length) });
    response.end(body, 'latin1');
  });
}

server.listen(0, '127.0.0.1', 511, () => process.send?.({ port: (server.address() as AddressInfo).port }));
