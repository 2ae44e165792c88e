/** The provider: a bare node:http server that reads the question and answers 1 KiB of JSON. Says `{port}` to who started it. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { ANSWER } from './payload.ts';

const HEAD = { 'content-type': 'application/json', 'content-length': String(ANSWER.length) };

const server = createServer({ keepAliveTimeout: 120_000 }, (request, response) => {
  request.on('data', () => {});
  request.on('end', () => {
    response.writeHead(200, HEAD);
    response.end(ANSWER);
  });
});

server.listen(0, '127.0.0.1', 511, () => process.send?.({ port: (server.address() as AddressInfo).port }));
