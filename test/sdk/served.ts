/**
 * What an agent of an SDK must do, whichever language it is in and whichever way it serves: one list, run for each. The
 * table it needs, and the assertions.
 */
import type { Test } from 'tap';
import { Reach, type ReachError } from '../../sdk/typescript/index.ts';
import { type Rig, TOKEN } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';

export type Language = 'node' | 'python';

const WORK = ['echo', 'fail', 'count', 'hang', 'hang_stream', 'seen', 'relay', 'relay_stream', 'big', 'definite', 'words'] as const;

export const AGENT: Readonly<Record<Language, string>> = { node: 'sdk.node.1', python: 'sdk.python.1' };
export const CALLERS: Readonly<Record<string, string>> = { 'sdk.node.1': 'token-of-node', 'sdk.python.1': 'token-of-python' };
export const tokenOf = (language: Language): string => CALLERS[AGENT[language]] as string;

/** @param ports of the agents that serve on one; 0 = the channel */
export function tableOf(ports: Readonly<Partial<Record<Language, number>>>, more = ''): string {
  const languages = Object.keys(ports) as Language[];
  const contracts = languages.flatMap((language) =>
    WORK.map((work) => `  - {name: ${language}.work.${work}, version: 1.0.0, acl: public}`),
  );
  const providers = languages.map((language) => {
    const port = ports[language] as number;
    const endpoint = port === 0 ? '{type: channel}' : `{type: http, address: "http://127.0.0.1:${port}"}`;
    const offers = WORK.map((work) => `${language}.work.${work}@1.0.0`).join(', ');
    return `  - {agent_id: ${AGENT[language]}, offers: [${offers}], endpoint: ${endpoint}}`;
  });
  return `contracts:\n${contracts.join('\n')}\nproviders:\n${providers.join('\n')}\n${more}`;
}

// biome-ignore lint/suspicious/noExplicitAny: a test looks into whatever came
type Any = any;

export async function servesAsItShould(t: Test, rig: Rig, language: Language): Promise<void> {
  const reach = new Reach({ url: rig.url, token: TOKEN });
  t.teardown(() => reach.close());
  const work = (name: string): string => `${language}.work.${name}`;
  const seen = async (): Promise<Any> => (await reach.invoke<Any>(work('seen'))).data;

  await t.test('a call brings the payload and all that is known of it', async (t) => {
    const options = { deadlineMs: 5_000, idempotencyKey: 'k-1', sequenceId: 's-1', headers: { 'x-own': 'mine' } };
    const { data, provider, status, traceId } = await reach.invoke<Any>(`${work('echo')}@^1.0`, { ä: [1, null, '😀'] }, options);
    t.match(data, {
      payload: { ä: [1, null, '😀'] },
      capability: work('echo'),
      version: '1.0.0',
      caller: 'support.planner.1',
      idempotency_key: 'k-1',
      sequence_id: 's-1',
      own: 'mine',
      trace_id: traceId,
      path: `${AGENT[language]}>${work('echo')}`,
    });
    t.ok(data.left_ms > 3_000 && data.left_ms <= 5_000, `${data.left_ms} ms are left of 5000`);
    t.strictSame([provider, status], [AGENT[language], 200]);
  });

  await t.test('payloads of other kinds arrive as they are', async (t) => {
    t.equal((await reach.invoke<Any>(work('echo'))).data.payload, null);
    t.match((await reach.invoke<Any>(work('echo'), Buffer.alloc(1_000))).data, {
      payload: { bytes: 1_000 },
      content_type: 'application/octet-stream',
    });
    t.match((await reach.invoke<Any>(work('echo'), Buffer.from('grüß'), { contentType: 'text/plain' })).data, { payload: 'grüß' });
  });

  await t.test('its own error comes through with status and data, and a crash says nothing of its inside', async (t) => {
    const error = await reach.invoke(work('fail'), { status: 422, why: 'no such order' }).catch((raised: ReachError) => raised);
    t.match(error, { name: 'provider_error', code: 6001, data: { why: 'no such order' }, retryable: false, ambiguous: false });
    // … also when it answers what no JSON can say, or gives up something of its own.
    for (const how of ['crash', 'unfit', 'gives_up']) {
      const result = await reach.call(work('fail'), { [how]: true }, { deadlineMs: 2_000 });
      t.match(result, { ok: false, code: 6001, status: 500, data: { error: 'the agent failed' } }, how);
      t.notMatch(JSON.stringify(result), /secret/);
    }
  });

  await t.test('a definite success is one, whatever its status', async (t) => {
    t.match(await reach.call(work('definite')), { ok: true, status: 404, definitelySuccess: true, data: { found: null } });
  });

  await t.test('a streamed answer comes piece by piece and ends as an end', async (t) => {
    const began = performance.now();
    const stream = reach.stream(work('count'), { n: 4, pause_ms: 250 });
    const pieces: string[] = [];
    let firstAt = 0;
    for await (const piece of stream) {
      if (pieces.push(piece) === 1) firstAt = performance.now() - began;
    }
    t.equal(pieces.join(''), '0 1 2 3 ');
    t.ok(firstAt < performance.now() - began - 100, 'the first was there long before the last');
    t.match(stream.result, { ok: true, provider: AGENT[language] });
    t.match(await stream.head(), { status: 200, contentType: /^text\/plain/, provider: AGENT[language] });
    const values: unknown[] = [];
    for await (const value of reach.stream(work('count'), { n: 3, kind: 'json' }).messages()) values.push(value);
    t.strictSame(values, [{ i: 0 }, { i: 1 }, { i: 2 }]);
    t.equal((await reach.invoke(work('count'), { n: 3 })).data, '0 1 2 ', 'and whole, for who asks so');
  });

  await t.test('answers of many callers at once are kept apart', async (t) => {
    const asked = Array.from({ length: 40 }, (_, i) => [i, -i]);
    const told = await Promise.all(
      asked.map(async (words) => {
        let text = '';
        for await (const piece of reach.stream(work('words'), { words })) text += piece;
        return [text, (await reach.invoke<Any>(work('echo'), words)).data.payload];
      }),
    );
    t.strictSame(
      told,
      asked.map((words) => [`${words[0]} 2\n${words[1]} 2\n`, words]),
    );
  });

  await t.test('a stream that breaks is a cut, and before its first piece an ordinary error', async (t) => {
    const pieces: string[] = [];
    const reading = (async () => {
      for await (const piece of reach.stream(work('count'), { n: 9, break_at: 2, pause_ms: 20 })) pieces.push(piece);
    })();
    await t.rejects(reading, { code: 1006, name: 'stream_interrupted' });
    t.equal(pieces.join(''), '0 1 ');
    await t.rejects(reach.stream(work('count'), { n: 9, break_at: 0 }).head(), { code: 6001, data: { at: 0 } });
  });

  await t.test('a reader that stops reading stops the agent, and gets all when it goes on', async (t) => {
    const before = (await seen()).pulled;
    const size = 65_536;
    const stream = reach.stream(work('count'), { n: 400, kind: 'bytes', size }).bytes();
    let bytes = ((await stream.next()).value as Buffer).length;
    await new Promise((done) => setTimeout(done, 700));
    const pulled = (await seen()).pulled - before;
    t.ok(pulled < 200, `${pulled} of 400 pieces were made while nobody read`);
    for await (const piece of stream) bytes += piece.length;
    t.equal(bytes, 400 * size);
  });

  await t.test('large answers come whole', async (t) => {
    const text = (await reach.invoke<Any>(work('big'), { bytes: 3_000_000 })).data.text;
    t.equal(text.length, 3_000_000);
    const raw = (await reach.invoke<Any>(work('big'), { bytes: 3_000_000, raw: true })).data;
    t.equal(Buffer.from(raw.base64, 'base64').length, 3_000_000);
  });

  await t.test('when nobody waits any more the handler is cancelled', async (t) => {
    const { hung, cancelled } = await seen();
    const leaving = new AbortController();
    const left = reach.call(work('hang'), {}, { signal: leaving.signal });
    await waitUntil('it hangs', async () => (await seen()).hung === hung + 1);
    leaving.abort();
    t.match(await left, { code: 5003, error: { name: 'cancelled' } });
    t.match(await reach.call(work('hang'), {}, { deadlineMs: 100 }), { code: 5001 });
    await waitUntil('both are cancelled', async () => (await seen()).cancelled === cancelled + 2);
    for await (const piece of reach.stream(work('hang_stream'), {})) {
      t.equal(piece, 'first');
      break;
    }
    await waitUntil('the stream is given up', async () => (await seen()).cancelled === cancelled + 3);
  });
}

/** Calls `from`, which calls `to`: time, trace and path go along. */
export async function passesOn(t: Test, rig: Rig, from: Language, to: Language): Promise<void> {
  const reach = new Reach({ url: rig.url, token: TOKEN });
  t.teardown(() => reach.close());
  const { data, traceId } = await reach.invoke<Any>(
    `${from}.work.relay`,
    { target: `${to}.work.echo@^1.0`, payload: { order: 7 } },
    { deadlineMs: 4_000, sequenceId: 'talk-7' },
  );
  t.match(data, {
    trace_id: traceId,
    provider: AGENT[to],
    data: { payload: { order: 7 }, caller: AGENT[from], trace_id: traceId, sequence_id: 'talk-7' },
  });
  t.ok(data.data.left_ms <= data.left_ms + 200 && data.data.left_ms > 2_000 && data.data.left_ms <= 4_000, `${data.data.left_ms} ms left`);
  t.equal(data.data.path, `${AGENT[from]}>${from}.work.relay, ${AGENT[to]}>${to}.work.echo`);
  const ask = { target: `${to}.work.count`, payload: { n: 3, pause_ms: 5 } };
  let text = '';
  for await (const piece of reach.stream(`${from}.work.relay_stream`, ask)) text += piece;
  t.equal(text, '0 1 2 ');
  const cut = { target: `${to}.work.count`, payload: { n: 3, break_at: 1, pause_ms: 5 } };
  let got = '';
  const reading = (async () => {
    for await (const piece of reach.stream(`${from}.work.relay_stream`, cut)) got += piece;
  })();
  await t.rejects(reading, { code: 1006 }, 'a cut stays one');
  t.equal(got, '0 ');
  const failed = await reach.call(`${from}.work.relay`, { target: `${to}.work.fail`, payload: { status: 418, why: 'tea' } });
  t.match(failed, { code: 6001, status: 502, data: { error: { code: 6001, name: 'provider_error' } } });
  // Each asks itself through the other: the circle is named.
  const circle = { target: `${from}.work.relay`, payload: { target: `${to}.work.echo`, payload: 1 } };
  const looped = await reach.call<Any>(`${to}.work.relay`, {
    target: `${from}.work.relay`,
    payload: { target: `${to}.work.relay`, payload: circle },
  });
  t.match(looped.data, { error: { code: 6001 } });
  t.match(JSON.stringify(rig.logged), /loop_detected|is already in the path/);
}
