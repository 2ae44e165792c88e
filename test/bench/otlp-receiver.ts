/** A collector that takes every request and looks at nothing: what the sending costs is measured, not the receiving. Says `{port}` to who started it. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

const server = createServer({ keepAliveTimeout: 120_000 }, (request, response) => {
  request.on('data', () => {});
  request.on('end', () => {
    response.writeHead(200, { 'content-length': '0' });
    response.end();
  });
});

server.listen(0, '127.0.0.1', 511, () => process.send?.({ port: (server.address() as AddressInfo).port }));
