// An agent that answers: plain HTTP on its own localhost, which is that of its sidecar too. It knows nothing of Agent-Reach.
import { createServer } from 'node:http';

const say = (line) => process.stdout.write(`${line}\n`);

const server = createServer((request, response) => {
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('end', () => {
    response.setHeader('content-type', 'application/json');
    if (request.url === '/health') return response.end('{"ok":true}');
    const asked = chunks.length === 0 ? {} : JSON.parse(Buffer.concat(chunks).toString('utf8'));
    response.end(JSON.stringify({ order: asked.order ?? null, state: 'shipped' }));
  });
});
server.listen(Number(process.env.PORT ?? 8080), '127.0.0.1', () => say('the order agent is there'));
process.on('SIGTERM', () => server.close(() => process.exit(0)));
