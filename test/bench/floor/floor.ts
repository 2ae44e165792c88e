/**
 * The floor: what passing JSON through costs at all. A bare fastify + undici server written in the straightforward,
 * documented way (default JSON parser, `pool.request`, `reply.send(object)`), with no policy of any kind. The sidecar's
 * CPU per call is held against it, so this file is pinned: a change here changes what every earlier figure meant.
 *
 *     node floor.js --port 7001 --target http://127.0.0.1:7002/crm.order.query
 *
 * Prints one line `{"floor":"listening","port":…}` and answers `cpu` messages of a parent process with its CPU time.
 */
import { parseArgs } from 'node:util';
import { fastify } from 'fastify';
import { Pool } from 'undici';

const { values } = parseArgs({
  options: { port: { type: 'string' }, target: { type: 'string' }, connections: { type: 'string', default: '16' } },
});
if (values.port === undefined || values.target === undefined) {
  process.stderr.write('usage: floor --port <port> --target <url> [--connections <n>]\n');
  process.exit(2);
}
const target = new URL(values.target);
const pool = new Pool(target.origin, { connections: Number(values.connections) });
const app = fastify({ logger: false });

app.post('/v1/invoke/*', async (request, reply) => {
  const { statusCode, body } = await pool.request({
    method: 'POST',
    path: target.pathname,
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(request.body),
  });
  return reply.code(statusCode).send(await body.json());
});

await app.listen({ host: '127.0.0.1', port: Number(values.port) });
const address = app.server.address();
process.stdout.write(
  `${JSON.stringify({ floor: 'listening', port: typeof address === 'object' && address !== null ? address.port : 0 })}\n`,
);

process.on('message', (message) => {
  if (message !== 'cpu') return;
  const { user, system } = process.cpuUsage();
  process.send?.({ cpu_us: user + system, rss: process.memoryUsage().rss });
});

async function stop(): Promise<void> {
  await app.close();
  await pool.close();
  process.exit(0);
}
process.once('SIGTERM', () => void stop());
process.once('SIGINT', () => void stop());
