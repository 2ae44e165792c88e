/**
 * The provider of the stream bench: `POST /crm.report.export?mib=256` answers that many MiB in pieces of 64 KiB as fast as they are
 * taken; without `mib` one piece and the end. Says `{port}` to who started it.
 */
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { CHUNK_BYTES } from './figures.ts';

const CHUNK = Buffer.alloc(CHUNK_BYTES, 'Agent-Reach ');
const SMALL = Buffer.from('{"word":"first"}\n');

function send(response: ServerResponse, left: number): void {
  for (let pieces = left; pieces > 0; pieces--) {
    if (response.write(CHUNK)) continue;
    response.once('drain', () => send(response, pieces - 1));
    return;
  }
  response.end();
}

const server = createServer({ keepAliveTimeout: 120_000 }, (request, response) => {
  let body = '';
  request.setEncoding('utf8');
  request.on('data', (text: string) => {
    body += text;
  });
  request.on('end', () => {
    const { mib } = JSON.parse(body) as { mib: number };
    response.writeHead(200, { 'content-type': 'application/octet-stream' });
    if (mib > 0) send(response, (mib * 1_048_576) / CHUNK_BYTES);
    else response.end(SMALL);
  });
});

server.listen(0, '127.0.0.1', 511, () => process.send?.({ port: (server.address() as AddressInfo).port }));
