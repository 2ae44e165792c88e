/** sdk/typescript/serve/handlers.ts, answer-headers.ts and running.ts: what a handler gives, as an answer and on the channel. */
import t, { type Test } from 'tap';
import { Header } from '../../../../../proto/wire/headers.ts';
import { AgentError } from '../../../../../sdk/typescript/index.ts';
import { settingsOf } from '../../../../../sdk/typescript/options.ts';
import type { Context } from '../../../../../sdk/typescript/serve/context.ts';
import { type Answer, Handlers } from '../../../../../sdk/typescript/serve/handlers.ts';
import { Offer } from '../../../../../sdk/typescript/serve/offer.ts';
import { Running } from '../../../../../sdk/typescript/serve/running.ts';

interface Made {
  readonly answer: Answer;
  /** What it logged. */
  readonly lines: readonly string[];
}

async function made(handler: (context: Context) => unknown): Promise<Made> {
  const lines: string[] = [];
  const handlers = new Handlers(settingsOf({ url: 'http://127.0.0.1:1', token: 'x', log: (line) => lines.push(line) }));
  handlers.add(new Offer('a.b.c@1.0.0', {}), (_payload: never, context: Context) => handler(context));
  const signal = new AbortController().signal;
  return { answer: await handlers.run({ capability: 'a.b.c', version: '1.0.0', payload: null, headers: {}, signal }), lines };
}

async function bytesOf({ body }: Answer): Promise<Buffer> {
  if (body.kind === 'json') return Buffer.from(body.text);
  if (body.kind === 'bytes') return body.bytes;
  const all: Buffer[] = [];
  for (let step = await body.chunks.next(); step.done !== true; step = await body.chunks.next()) all.push(step.value);
  return Buffer.concat(all);
}

const textOf = async (handler: (context: Context) => unknown): Promise<string> =>
  (await bytesOf((await made(handler)).answer)).toString('utf8');

t.test('a plain generator is a stream, as an async one is', async (t) => {
  const { answer } = await made(function* () {
    yield 'one ';
    yield 'two';
  });
  t.strictSame(
    [answer.body.kind, answer.contentType, (await bytesOf(answer)).toString()],
    ['stream', 'text/plain; charset=utf-8', 'one two'],
  );
  t.equal(await textOf(() => [{ a: 1 }, [2]].values()), '{"a":1}\n[2]\n');
  t.equal(await textOf(() => [1, 2]), '[1,2]', 'a list is a value');
  t.equal((await made(() => [].values())).answer.contentType, 'application/octet-stream', 'an empty stream');
  let isClosed = false;
  const left = await made(function* () {
    try {
      yield 1;
      yield 2;
    } finally {
      isClosed = true;
    }
  });
  if (left.answer.body.kind === 'stream') await left.answer.body.chunks.return?.();
  t.ok(isClosed, 'and is closed when nobody reads on');
});

t.test('what JSON would write as something else is a failure of the agent, not a success with other words', async (t) => {
  const refused: readonly (readonly [unknown, RegExp])[] = [
    [{ balance: Number.NaN }, /NaN at "balance" has no form in JSON/],
    [new Map([[1, 2]]), /kind Map has no form/],
    [new ArrayBuffer(4), /kind ArrayBuffer has no form/],
    [1n, /BigInt/],
  ];
  for (const [value, words] of refused) {
    const { answer, lines } = await made(() => value);
    t.strictSame([answer.status, (await bytesOf(answer)).toString()], [500, '{"error":"the agent failed"}']);
    t.match(lines.join(), words);
  }
  const pieces = await made(function* () {
    yield { n: 1 };
    yield { n: Number.NaN };
  });
  await t.rejects(bytesOf(pieces.answer), /NaN at "n"/, 'in a stream it is a cut');
  t.equal(
    await textOf(() => {
      throw new AgentError(422, { rows: 3, ratio: Number.NaN });
    }),
    '{"rows":3,"ratio":null}',
    'the agent’s own error is told all the same',
  );
  const status = async (data: unknown): Promise<number> =>
    (
      await made(() => {
        throw new AgentError(409, data);
      })
    ).answer.status;
  const circle: Record<string, unknown> = {};
  circle['again'] = circle;
  for (const data of [1n, circle, () => 1, new Map()]) t.equal(await status(data), 409);
});

t.test('a character whose halves lie on two pieces comes through whole', async (t) => {
  const halves = (...pieces: unknown[]): Promise<string> => textOf(() => pieces.values());
  t.equal(await halves('hi \ud83d', '\ude42!'), 'hi 🙂!');
  t.equal(await halves('\ud83d', '', '\ude42'), '🙂');
  t.equal(await halves('a\ud83d'), 'a\ufffd', 'a half that stays alone is one mark');
  t.equal(await halves('a\ud83d', Buffer.from('b')), 'a\ufffdb');
});

t.test('headers of an answer go as text, and one that cannot be sent is left out and told', async (t) => {
  const { answer, lines } = await made((context) => {
    const given = context.answerHeaders as Record<string, unknown>;
    given['X-City'] = 'Kraków → Łódź';
    given['x-count'] = 5;
    given['x-fresh'] = true;
    given['x-two'] = 'a\r\nx-evil: 1';
    given['x-none'] = null;
    given['x-map'] = { a: 1 };
    given['no name'] = 'x';
    given['Content-Length'] = '3';
    given['transfer-encoding'] = 'chunked';
    context.answerType = 'text/plain; title=Łódź';
    context.definitelySuccess = true;
    return 'done';
  });
  const wire = (text: string): string => Buffer.from(text).toString('latin1');
  t.strictSame(answer.headers, {
    'x-city': wire('Kraków → Łódź'),
    'x-count': '5',
    'x-fresh': 'true',
    [Header.definitelySuccess]: 'true',
  });
  t.equal(answer.contentType, wire('text/plain; title=Łódź'));
  t.strictSame(
    lines.map((line) => /^the answer to a\.b\.c goes without the header "(.+)": ./.exec(line)?.[1]),
    ['x-two', 'x-none', 'x-map', 'no name', 'Content-Length', 'transfer-encoding'],
  );
  const odd = await made((context) => {
    context.answerType = 'text/\0';
    for (let i = 0; i < 70; i++) context.answerHeaders[`x-${i}`] = 'v';
    context.answerHeaders['x-long'] = 'v'.repeat(20_000);
    return { a: 1 };
  });
  t.equal(odd.answer.contentType, 'application/json', 'a type that cannot be sent gives way to that of the body');
  t.equal(Object.keys(odd.answer.headers).length, 60);
  t.equal(odd.lines.length, 12, 'each that is too much is named');
  const long = await made((context) => {
    context.answerHeaders['x-long'] = 'v'.repeat(20_000);
    context.answerHeaders['x-short'] = 'v';
  });
  t.strictSame(Object.keys(long.answer.headers), ['x-short']);
});

/** The other end of the connection: the messages and the data that came. */
async function sent(t: Test, answer: Answer, maxMessageBytes: number): Promise<{ messages: Record<string, unknown>[]; data: string }> {
  const messages: Record<string, unknown>[] = [];
  const data: Buffer[] = [];
  const wire = {
    text: (message: object): void => {
      t.ok(JSON.stringify(message).length <= maxMessageBytes, 'no message is above the limit');
      messages.push(message as Record<string, unknown>);
    },
    binary: (_head: Buffer, payload: Buffer): void => {
      data.push(payload);
      running.credited(payload.length);
    },
  };
  const running = new Running(7, wire, 1_000, maxMessageBytes);
  await running.answer(answer);
  return { messages, data: Buffer.concat(data).toString('utf8') };
}

t.test('an answer above what a message may hold goes in frames, an error as well', async (t) => {
  const rows = 'x'.repeat(20_000);
  const fails = (): never => {
    throw new AgentError(422, { rows });
  };
  const error = await sent(t, (await made(fails)).answer, 10_000);
  t.match(error.messages, [
    { method: 'reach.head', params: { id: 7, status: 422, content_type: 'application/json' } },
    { id: 7, result: {} },
  ]);
  t.equal(error.data, JSON.stringify({ rows }));
  const short = await sent(t, (await made(fails)).answer, 100_000);
  t.match(short.messages, [{ id: 7, error: { code: -32000, data: { status: 422, payload: { rows } } } }]);
  const bytes = await sent(t, (await made(() => Buffer.alloc(20_000, 'y'))).answer, 10_000);
  t.strictSame([bytes.messages.length, bytes.data.length], [2, 20_000]);
});
