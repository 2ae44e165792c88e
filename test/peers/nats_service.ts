/**
 * A weather service on NATS by the micro convention, with the Node client's own services API. It knows nothing of Agent-Reach.
 *
 * Usage: nats_service.ts <nats url>. Says {"id": …} in one line when it serves.
 */
import { connect, ServiceError } from 'nats';

const connection = await connect({ servers: process.argv[2] ?? '', name: 'weather' });
const service = await connection.services.add({ name: 'weather', version: '2.1.0', description: 'What the sky does', queue: 'weather' });
service.addEndpoint('now', {
  subject: 'weather.now',
  handler: (error, message) => {
    if (error !== null) return;
    const { city } = JSON.parse(message.string()) as { city?: string };
    if (city === 'nowhere') message.respondError(404, 'no such city', Buffer.from(JSON.stringify({ city })));
    else if (city === 'storm') throw new ServiceError(503, 'the instruments are down');
    else message.respond(JSON.stringify({ city, sky: 'blau ☀' }));
  },
});
process.once('SIGTERM', () => void connection.close());
process.stdout.write(`${JSON.stringify({ id: service.info().id })}\n`);
