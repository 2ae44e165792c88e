/**
 * The floor of the stream bench: a bare Node pass-through, `upstream.pipe(response)` with a keep-alive agent, written in the
 * straightforward way and with no policy of any kind. What a sidecar carries per second is held against it.
 *
 *     node pipe.js <url of the provider>
 */
import { Agent, createServer, request as ask } from 'node:http';
import type { AddressInfo } from 'node:net';
import { pipeline } from 'node:stream';

const target = process.argv[2];
if (target === undefined) {
  process.stderr.write('usage: pipe <url>\n');
  process.exit(2);
}
const agent = new Agent({ keepAlive: true });

const server = createServer({ keepAliveTimeout: 120_000 }, (request, response) => {
  const headers = { 'content-type': 'application/json', 'content-length': request.headers['content-length'] ?? '0' };
  const upstream = ask(target, { method: 'POST', agent, headers }, (answer) => {
    response.writeHead(answer.statusCode ?? 502, { 'content-type': answer.headers['content-type'] ?? '' });
    pipeline(answer, response, () => {});
  });
  upstream.on('error', () => response.destroy());
  request.pipe(upstream);
});

server.listen(0, '127.0.0.1', 511, () => process.send?.({ port: (server.address() as AddressInfo).port }));
