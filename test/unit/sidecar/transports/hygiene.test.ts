import t from 'tap';
import {
  forwardRequestHeaders,
  hasForbiddenCharacter,
  isHeaderName,
  MAX_FORWARDED_BYTES,
  MAX_FORWARDED_HEADERS,
  namedInConnection,
  responseHeaders,
} from '../../../../sidecar/transports/hygiene.ts';

type View = Readonly<Record<string, string | string[] | undefined>>;

function forwarded(incoming: View, own: readonly string[] = [], fixed: ReadonlySet<string> | null = null): string[] | string {
  const out: string[] = [];
  const refusal = forwardRequestHeaders(incoming, own, fixed, out);
  return refusal === '' ? out : refusal;
}

t.test("what of the caller's headers is passed on", async (t) => {
  const table: [string, View, string[]][] = [
    [
      'ordinary ones pass as they are',
      { accept: 'application/json', 'x-a': '1', 'user-agent': 'u', 'content-encoding': 'gzip' },
      ['accept', 'application/json', 'x-a', '1', 'user-agent', 'u', 'content-encoding', 'gzip'],
    ],
    ['one sent twice passes twice', { 'x-a': ['1', '2'] }, ['x-a', '1', 'x-a', '2']],
    ['an undefined value is none', { 'x-a': undefined }, []],
    [
      'hop-by-hop ones stay',
      {
        connection: 'keep-alive',
        'keep-alive': 'timeout=9',
        te: 'trailers',
        trailer: 'x',
        'transfer-encoding': 'chunked',
        upgrade: 'foo',
        'http2-settings': 'x',
      },
      [],
    ],
    ['proxy ones stay, known or not', { 'proxy-authorization': 'x', 'proxy-connection': 'x', 'proxy-anything': 'x' }, []],
    [
      "framing, host and type are the client's and the adapter's",
      { host: 'h', 'content-length': '3', 'content-type': 'text/plain', expect: '100-continue' },
      [],
    ],
    ['credentials to us stay', { authorization: 'Bearer x', cookie: 'a=b' }, []],
    ['compression is not asked for', { 'accept-encoding': 'gzip' }, []],
    ['our names stay, whatever follows the prefix', { 'reach-caller': 'x', 'reach-': 'x', 'reach-made-up': 'x' }, []],
    ['a name that only begins alike passes', { reach: 'x', reachable: 'y' }, ['reach', 'x', 'reachable', 'y']],
    ['the trace is ours', { traceparent: 'x', tracestate: 'y' }, []],
    [
      'what Connection names stays, in any case and spacing',
      { connection: 'X-Custom ,  x-other,', 'x-custom': '1', 'x-other': '2', 'x-third': '3' },
      ['x-third', '3'],
    ],
    ['Connection sent twice', { connection: ['x-a', 'close, x-b'], 'x-a': '1', 'x-b': '2', 'x-c': '3' }, ['x-c', '3']],
    ['an empty view gives nothing', {}, []],
  ];
  for (const [name, incoming, wanted] of table) t.same(forwarded(incoming), wanted, name);
});

t.test('what the sidecar or the target sets is not sent a second time', async (t) => {
  t.same(forwarded({ 'idempotency-key': 'theirs', 'x-a': '1' }, ['idempotency-key', 'ours']), ['x-a', '1']);
  t.same(
    forwarded({ 'idempotency-key': 'theirs' }, ['reach-path', 'idempotency-key']),
    ['idempotency-key', 'theirs'],
    'a value is not a name',
  );
  t.same(forwarded({ 'x-api-key': 'theirs', 'x-a': '1' }, [], new Set(['x-api-key'])), ['x-a', '1']);
});

t.test('headers that cannot or should not be sent are refused with words that name them', async (t) => {
  for (const bad of ['a\r\nx: y', 'a\nb', 'a\0b', '\x7f', '\x1b[0m', 'snow \u2603']) {
    t.match(forwarded({ 'x-a': bad }), '"x-a"');
    t.match(forwarded({ 'x-a': ['fine', bad] }), '"x-a"');
    t.equal(hasForbiddenCharacter(bad), true);
  }
  for (const good of ['', 'a\tb', 'caf\u00e9', '~!@#$%^&*()']) t.equal(hasForbiddenCharacter(good), false);
  t.match(forwarded({ 'x-a': 'a'.repeat(MAX_FORWARDED_BYTES) }), `limit of ${MAX_FORWARDED_BYTES}`);
  const many = Object.fromEntries(Array.from({ length: MAX_FORWARDED_HEADERS + 1 }, (_, i) => [`x-${i}`, '1']));
  t.match(forwarded(many), `limit of ${MAX_FORWARDED_HEADERS}`);
  t.match(forwarded({ 'x-a': 'a\nb', authorization: 's3cret\n' }), /^(?!.*s3cret)/, 'no value is shown');
});

t.test('what HTTP can have as the name of a header', async (t) => {
  for (const name of ['x', 'X-Own', "!#$%&'*+-.^_`|~09az"]) t.ok(isHeaderName(name), name);
  for (const name of ['', 'a b', 'a:', ':a', 'ä', '日', 'a\r\n', 'a\u0000', '(a)', 'a/b', '"a"'])
    t.notOk(isHeaderName(name), JSON.stringify(name));
});

t.test('usual Connection values cost no set', async (t) => {
  for (const usual of [undefined, 'keep-alive', 'close']) t.equal(namedInConnection(usual), null);
  t.same([...(namedInConnection('Keep-Alive, TE') ?? [])], ['keep-alive', 'te']);
});

t.test("what of an answer's headers a raw answer may carry", async (t) => {
  const clean = { 'content-type': 'text/plain', etag: 'x' };
  t.equal(responseHeaders(clean), clean, 'nothing is copied when nothing has to go');
  t.same(
    responseHeaders({
      ...clean,
      connection: 'close, x-hop',
      'x-hop': '1',
      'keep-alive': 'timeout=5',
      'transfer-encoding': 'chunked',
      'content-length': '3',
      trailer: 'x',
      'proxy-authenticate': 'Basic',
      'reach-code': '0',
      upgrade: 'h2c',
      'set-cookie': ['a', 'b'],
    }),
    { ...clean, 'set-cookie': ['a', 'b'] },
  );
});
