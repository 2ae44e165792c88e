/**
 * The hub that one would write first, to be compared with: one process, WebSocket connections, JSON parsed and written at each step, the
 * NATS client's own publish with an awaited acknowledgement, its `consume`, and no claims, rules, lanes, policies or inboxes
 * beyond a stream of results. It speaks as much of the channel's protocol as the load needs.
 *
 * Arguments: NATS address, how many connections may be handed work (the last of them).
 */
import { createServer } from 'node:http';
import { AckPolicy, connect, RetentionPolicy, StringCodec } from 'nats';
import { type WebSocket, WebSocketServer } from 'ws';

const [url = '', workersText = '1'] = process.argv.slice(2);
const workers = Number(workersText);
const TASKS = 'HUB_TASKS';
const RESULTS = 'HUB_RESULTS';
const CONSUMER = 'hub';
const AT_ONCE = 2_000;

const text = StringCodec();
const nats = await connect({ servers: url });
const manager = await nats.jetstreamManager();
await manager.streams.add({ name: TASKS, subjects: ['hub.tasks'], retention: RetentionPolicy.Workqueue });
await manager.streams.add({ name: RESULTS, subjects: ['hub.results'] });
await manager.consumers.add(TASKS, { durable_name: CONSUMER, ack_policy: AckPolicy.Explicit, max_ack_pending: 20_000 });
const jetstream = nats.jetstream();

const sockets: WebSocket[] = [];
const waiting = new Map<number, (result: unknown) => void>();
let nextId = 0;
let nextWorker = 0;

interface Said {
  readonly id?: string | number;
  readonly method?: string;
  readonly params?: { readonly payload?: unknown };
  readonly result?: unknown;
}

async function heard(socket: WebSocket, index: number, said: Said): Promise<void> {
  if (said.method === 'reach.hello' || said.method === 'reach.resume')
    socket.send(JSON.stringify({ jsonrpc: '2.0', result: {}, id: said.id }));
  else if (said.method === 'reach.cast') {
    await jetstream.publish('hub.tasks', text.encode(JSON.stringify({ from: index, payload: said.params?.payload })));
    socket.send(JSON.stringify({ jsonrpc: '2.0', result: { accepted: true }, id: said.id }));
  } else if (said.method === undefined && typeof said.id === 'number') {
    waiting.get(said.id)?.(said.result);
    waiting.delete(said.id);
  }
}

const server = createServer();
new WebSocketServer({ server }).on('connection', (socket) => {
  const index = sockets.push(socket) - 1;
  socket.on('message', (data) => void heard(socket, index, JSON.parse(String(data)) as Said));
});
server.listen(0, '127.0.0.1', 8_192, () => {
  const address = server.address();
  process.stdout.write(`listens on http://127.0.0.1:${typeof address === 'object' ? (address?.port ?? 0) : 0}\n`);
});

const consumer = await jetstream.consumers.get(TASKS, CONSUMER);
for await (const message of await consumer.consume({ max_messages: AT_ONCE })) {
  const task = JSON.parse(text.decode(message.data)) as { from: number; payload: unknown };
  const id = nextId++;
  const worker = sockets[sockets.length - 1 - (nextWorker++ % workers)];
  const answered = new Promise((done) => waiting.set(id, done));
  worker?.send(JSON.stringify({ jsonrpc: '2.0', id, method: 'reach.invoke', params: { payload: task.payload } }));
  void answered.then(async (result) => {
    const { seq } = await jetstream.publish('hub.results', text.encode(JSON.stringify({ to: task.from, result })));
    sockets[task.from]?.send(JSON.stringify({ jsonrpc: '2.0', method: 'reach.message', params: { seq, state: 'done' } }));
    message.ack();
  });
}
