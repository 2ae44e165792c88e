/** Messages by the ways in, with a script behind the door: what is refused looks the same everywhere, and nobody who leaves is waited for. */
import { type IncomingHttpHeaders, request as httpRequest } from 'node:http';
import t, { type Test } from 'tap';
import type { VirtualClock } from '../../../../base/virtual-clock.ts';
import { Code } from '../../../../proto/wire/codes.ts';
import { grpcPort } from '../../../../sidecar/accept/grpc.ts';
import { httpPort } from '../../../../sidecar/accept/http.ts';
import type { Asking as Leaving } from '../../../../sidecar/inbox/asking.ts';
import type { SendDoor, Submission, Submitted, TaskView } from '../../../../sidecar/send/door.ts';
import { ScriptedFront } from '../../../support/front.ts';
import { GrpcClient } from '../../../support/grpc-client.ts';
import { waitUntil } from '../../../support/settle.ts';

t.setTimeout(20_000);

const NAME = 'crm.order.query';
const RATE = { limit: 3, remaining: 0, resetMs: 2_500 };

/** Answers as it is told to. */
class ScriptedSend implements SendDoor {
  readonly submissions: Submission[] = [];
  answer: (submission: Submission) => Submitted;
  view: TaskView | null = null;
  /** Until it settles nothing is known. */
  lookedUp: Promise<void> = Promise.resolve();
  watchers = 0;
  hear: (view: TaskView) => void = () => undefined;

  constructor(answer: (submission: Submission) => Submitted) {
    this.answer = answer;
  }
  submit(submission: Submission): Promise<Submitted> {
    this.submissions.push(submission);
    return Promise.resolve(this.answer(submission));
  }
  async task(): Promise<TaskView | null> {
    await this.lookedUp;
    return this.view;
  }
  async watch(_principal: unknown, _taskId: string, hear: (view: TaskView) => void): Promise<{ close(): void } | null> {
    await this.lookedUp;
    if (this.view === null) return null;
    this.watchers++;
    this.hear = hear;
    hear(this.view);
    return { close: () => void this.watchers-- };
  }
  cancel(): Promise<'unknown'> {
    return Promise.resolve('unknown');
  }
  rate(): typeof RATE {
    return RATE;
  }
  setRate(): void {}
}

const accepted: Extract<Submitted, { ok: true }> = {
  ok: true,
  taskId: 'abcdefgh1',
  powerId: 'k',
  durable: 'stream',
  state: 'accepted',
  capability: NAME,
  version: '2.1.0',
  lane: 'normal',
  rule: null,
  traceId: 'a'.repeat(32),
};
const tooFast: Submitted = {
  ok: false,
  code: Code.rate_limited,
  detail: 'shop.chat.1 may submit 3 messages a second, 3 at once',
  retryAfterMs: 1_234,
  ambiguous: false,
  rate: RATE,
};
const inDoubt: Submitted = {
  ok: false,
  code: Code.delivery_unavailable,
  detail: 'it is not certain whether it was stored',
  retryAfterMs: 2_000,
  ambiguous: true,
  rate: null,
};

async function open(t: Test, send: SendDoor, clock?: VirtualClock) {
  const front = new ScriptedFront({ script: (call, stage) => stage.answer(call, 200, '{}'), ...(clock === undefined ? {} : { clock }) });
  front.send = send;
  const port = httpPort(front);
  await port.open();
  t.teardown(() => port.close(200));
  return { front, port: port.address.port };
}

const HEAD = { authorization: 'Bearer good', 'content-type': 'application/json' };

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

interface Asking {
  readonly method?: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
}

function ask(port: number, { method = 'GET', path, headers, body }: Asking): Promise<Answer> {
  return new Promise((done, failed) => {
    const request = httpRequest({ host: '127.0.0.1', port, method, path, headers, agent: false }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', failed);
      response.on('end', () => done({ status: response.statusCode ?? 0, headers: response.headers, body: Buffer.concat(chunks) }));
    });
    request.on('error', failed);
    request.end(body);
  });
}

function rpc(port: number, messages: unknown): Promise<Answer> {
  return ask(port, { method: 'POST', path: '/rpc', headers: HEAD, body: JSON.stringify(messages) });
}

t.test('a message that is refused says the same by HTTP, JSON-RPC and gRPC: code, marks, when to come back, and the rate', async (t) => {
  const send = new ScriptedSend(() => tooFast);
  const { front, port } = await open(t, send);
  const grpc = grpcPort(front, { listen: { host: '127.0.0.1', port: 0 }, streams: 10 });
  await grpc.open();
  const client = new GrpcClient(`127.0.0.1:${grpc.address.port}`);
  t.teardown(async () => {
    client.close();
    await grpc.close(200);
  });
  const byHttp = await ask(port, { method: 'POST', path: `/v1/cast/${NAME}`, headers: HEAD, body: '{}' });
  t.equal(byHttp.status, 429);
  const rates = { 'ratelimit-limit': '3', 'ratelimit-remaining': '0', 'ratelimit-reset': '3' };
  t.match(byHttp.headers, { ...rates, 'retry-after': '2', 'reach-retry-after-ms': '1234' });
  const problem = JSON.parse(byHttp.body.toString()) as Record<string, unknown>;
  t.match(problem, { code: 3004, retryable: true, ambiguous: false, retry_after_ms: 1_234 });

  const byRpc = JSON.parse(
    (await rpc(port, { jsonrpc: '2.0', id: 1, method: 'reach.cast', params: { capability: NAME, payload: {} } })).body.toString(),
  ) as { error: { data: unknown } };
  t.strictSame(byRpc.error.data, problem);

  const byGrpc = await client.unary('/agentreach.v1.Reach/Cast', { capability: NAME, json: '{}' }, { token: 'good' });
  t.match(byGrpc.trailers, { ...rates, 'reach-code': '3004', 'reach-retry-after-ms': '1234' });

  send.answer = () => inDoubt;
  const uncertain = await ask(port, { method: 'POST', path: `/v1/cast/${NAME}`, headers: HEAD, body: '{}' });
  t.match(JSON.parse(uncertain.body.toString()), {
    code: 7001,
    ambiguous: true,
    retryable: false,
    error: { ambiguous: true, retryable: false },
  });
  const inTrailers = await client.unary('/agentreach.v1.Reach/Cast', { capability: NAME, json: '{}' }, { token: 'good' });
  t.match(inTrailers.trailers, { 'reach-code': '7001', 'reach-ambiguous': 'true' });
});

t.test('notifications that are not accepted are told by status and headers, in a batch as alone', async (t) => {
  let left = 2;
  const send = new ScriptedSend(() => (left-- > 0 ? accepted : tooFast));
  const { port } = await open(t, send);
  const note = { jsonrpc: '2.0', method: NAME, params: {} };

  const silent = await rpc(port, [note, note]);
  t.equal(silent.status, 204);
  t.equal(silent.headers['reach-code'], undefined);

  left = 1;
  const lost = await rpc(port, [note, note, note]);
  t.equal(lost.status, 429);
  t.equal(lost.body.length, 0, 'and nothing is answered');
  t.match(lost.headers, { 'reach-code': '3004', 'retry-after': '2', 'ratelimit-remaining': '0' });
  t.match(
    decodeURIComponent(String(lost.headers['reach-detail'])),
    /^2 of 3 notifications were not accepted, the last because: shop.chat.1/,
  );

  left = 0;
  const beside = await rpc(port, [note, { jsonrpc: '2.0', id: 1, method: NAME, params: {} }]);
  t.equal(beside.status, 200, 'there is an answer');
  t.equal((JSON.parse(beside.body.toString()) as unknown[]).length, 1);
  t.match(beside.headers, { 'reach-code': '3004' });
  t.match(decodeURIComponent(String(beside.headers['reach-detail'])), /^shop.chat.1/);

  t.equal((await rpc(port, note)).status, 429);
});

const VIEW: TaskView = {
  taskId: 'abcdefgh1',
  powerId: 'k',
  capability: NAME,
  state: 'accepted',
  lane: 'normal',
  acceptedAtMs: 1,
  events: [],
  result: null,
};

t.test('a client that leaves while its task is looked up is not waited for, and hears of nothing', async (t) => {
  for (const accept of ['text/event-stream', 'application/json']) {
    const send = new ScriptedSend(() => accepted);
    send.view = VIEW;
    let found = (): void => undefined;
    send.lookedUp = new Promise<void>((done) => (found = done));
    const { front, port } = await open(t, send);
    const request = httpRequest({
      port,
      host: '127.0.0.1',
      path: '/v1/tasks/abcdefgh1?wait=60s',
      headers: { ...HEAD, accept },
      agent: false,
    });
    request.on('error', () => undefined);
    request.end();
    await waitUntil('it is looked up', () => front.waiting.size === 1);
    request.destroy();
    await new Promise((done) => setTimeout(done, 50));
    found();
    await waitUntil('nobody waits', () => front.waiting.size === 0 && send.watchers === 0);
    t.equal(send.watchers, 0, accept);
  }
});

t.test('events of a task end with its end, and a client that leaves between them is let go', async (t) => {
  const send = new ScriptedSend(() => accepted);
  send.view = VIEW;
  const { front, port } = await open(t, send);
  const answer = ask(port, { path: '/v1/tasks/abcdefgh1', headers: { ...HEAD, accept: 'text/event-stream' } });
  await waitUntil('it watches', () => send.watchers === 1);
  send.hear({ ...VIEW, state: 'received' });
  send.hear({ ...VIEW, state: 'done', result: Buffer.from('{"a":\n1}') });
  const text = (await answer).body.toString();
  t.strictSame(
    [...text.matchAll(/"state":"(\w+)"/g)].map(([, state]) => state),
    ['accepted', 'received', 'done'],
  );
  t.equal(send.watchers, 0);
  const leaving = httpRequest({
    port,
    host: '127.0.0.1',
    path: '/v1/tasks/abcdefgh1',
    headers: { ...HEAD, accept: 'text/event-stream' },
    agent: false,
  });
  leaving.on('error', () => undefined);
  leaving.end();
  await waitUntil('it watches', () => send.watchers === 1);
  leaving.destroy();
  await waitUntil('it is let go', () => send.watchers === 0 && front.waiting.size === 0);
});

t.test('a client that leaves while it waits for its inbox is let go; one that a stop ends gets its empty page', async (t) => {
  const { front, port } = await open(t, new ScriptedSend(() => accepted));
  const waiting: Leaving[] = [];
  front.inbox = {
    read: (_agent, _from, _limit, _waitMs, asking) =>
      new Promise((done) => {
        if (asking === undefined) throw new Error('it cannot leave');
        waiting.push(asking);
        asking.waiting = { wake: () => done({ ok: true, entries: [], next: 1, floor: 0 }) };
      }),
    follow: () => Promise.reject(new Error('not asked for')),
    acknowledge: () => Promise.reject(new Error('not asked for')),
  };
  const path = '/v1/inbox?wait=60s';
  const leaving = httpRequest({ host: '127.0.0.1', port, path, headers: HEAD, agent: false });
  leaving.on('error', () => undefined);
  leaving.end();
  await waitUntil('it waits', () => waiting.length === 1);
  leaving.destroy();
  await waitUntil('it is let go', () => waiting[0]?.isGone === true);
  const stopped = ask(port, { path, headers: HEAD });
  await waitUntil('the next one waits', () => waiting.length === 2);
  t.equal(waiting[1]?.isGone, false);
  waiting[1]?.cancel();
  t.match(JSON.parse((await stopped).body.toString()), { entries: [] });
});
