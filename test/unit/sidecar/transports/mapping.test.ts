import t from 'tap';
import type { HttpMapping } from '../../../../proto/language/types.ts';
import { applyMapping, compileMapping, compileTemplate } from '../../../../sidecar/transports/mapping.ts';

function mapping(parts: Partial<HttpMapping>): HttpMapping {
  return { method: 'POST', path: '/x', query: {}, headers: {}, body: 'payload', ...parts };
}

function applied(parts: Partial<HttpMapping>, payload: unknown) {
  const request = applyMapping(compileMapping(mapping(parts)), payload, JSON.stringify(payload) ?? 'null');
  return typeof request === 'string' ? request : { ...request, body: request.body === null ? 'payload' : request.body.toString() };
}

const PAYLOAD = {
  id: 'A/1',
  n: 7,
  yes: true,
  no: null,
  list: ['a', { b: 'c' }],
  deep: { 'a/b': 'slash', 'm~n': 'tilde', '': 'empty' },
  '..': 'dots',
  up: '..',
  lone: '\ud800',
};

t.test('a path is filled with percent-encoded parts', async (t) => {
  const table: [string, string][] = [
    ['/v1/{/id}', '/v1/A%2F1'],
    ['/{/n}/{/yes}', '/7/true'],
    ['/{/list/0}/{/list/1/b}', '/a/c'],
    ['/{/deep/a~1b}/{/deep/m~0n}/{/deep/}', '/slash/tilde/empty'],
    ['no-slash/{/n}', '/no-slash/7'],
    ['/a b/%20/{{x}}', '/a%20b/%20/%7Bx%7D'],
    ['/a?x={/id}', '/a?x=A%2F1'],
    ['/a#b', '/a%23b'],
  ];
  for (const [path, wanted] of table) t.match(applied({ path }, PAYLOAD), { path: wanted, body: 'payload' }, path);
});

t.test('query parameters are added, names and values encoded', async (t) => {
  t.match(applied({ query: { 'a b': 'c d', id: '{/id}', mix: 'n={/n}&' } }, PAYLOAD), { path: '/x?a%20b=c%20d&id=A%2F1&mix=n%3D7%26' });
  t.match(applied({ path: '/x?y=1', query: { z: '2' } }, PAYLOAD), { path: '/x?y=1&z=2' });
});

t.test('headers are filled, their names lower case', async (t) => {
  t.match(applied({ headers: { 'X-Id': 'id-{/id}' } }, PAYLOAD), { headers: ['x-id', 'id-A/1'] });
  t.match(applied({ headers: { 'X-Id': '{/id}' } }, { id: 'a\r\nb: c' }), /header x-id/, 'a line break refuses');
});

t.test('bodies: as given, none, or a template whose leaves keep their type', async (t) => {
  t.match(applied({ body: 'payload' }, PAYLOAD), { body: 'payload' });
  t.match(applied({ body: 'none' }, PAYLOAD), { body: '' });
  const template = { a: '{/n}', b: 'n is {/n}', c: ['{/list}', 1, null, true], d: { e: '{/no}' }, f: 'plain {{}}', all: '{}' };
  const filled = applied({ body: { template } }, { n: 7, list: ['x'], no: null });
  t.same(JSON.parse((filled as { body: string }).body), {
    a: 7,
    b: 'n is 7',
    c: [['x'], 1, null, true],
    d: { e: null },
    f: 'plain {}',
    all: { n: 7, list: ['x'], no: null },
  });
});

t.test('what is missing or does not fit refuses the call and says which part', async (t) => {
  const table: [Partial<HttpMapping>, RegExp][] = [
    [{ path: '/{/nope}' }, /no \/nope.*path/],
    [{ path: '/{/list/9}' }, /no \/list\/9/],
    [{ path: '/{/list/00}' }, /no \/list\/00/],
    [{ path: '/{/list/length}' }, /no \/list\/length/],
    [{ path: '/{/id/length}' }, /no \/id\/length/],
    [{ path: '/{/__proto__}' }, /no \/__proto__/],
    [{ path: '/{/constructor/name}' }, /no \/constructor/],
    [{ path: '/{/no}' }, /\/no is null/],
    [{ path: '/{/list}' }, /\/list is a list/],
    [{ path: '/{/deep}' }, /\/deep is an object/],
    [{ path: '/{/up}' }, /cannot stand in the path/],
    [{ path: '/{/lone}' }, /not well-formed/],
    [{ query: { q: '{/nope}' } }, /query parameter q/],
    [{ headers: { 'x-a': '{/nope}' } }, /header x-a/],
    [{ body: { template: { a: ['{/nope}'] } } }, /body/],
  ];
  for (const [parts, words] of table) t.match(applied(parts, PAYLOAD), words, JSON.stringify(parts));
  t.match(applied({ path: '/{/a}' }, 'text'), /no \/a/, 'a payload that is no object');
});

t.test('a template that cannot be read is a bad start-up configuration', async (t) => {
  t.throws(() => compileTemplate('/a/{/b'), /without "}"/);
  t.throws(() => compileTemplate('/a/{b}'), /JSON pointer/);
});

t.test('a mapping without pointers needs no parsed payload', async (t) => {
  t.equal(compileMapping(mapping({ query: { a: 'b' } })).isStatic, true);
  for (const parts of [{ path: '/{/a}' }, { query: { a: '{/a}' } }, { headers: { a: '{/a}' } }, { body: { template: {} } }])
    t.equal(compileMapping(mapping(parts)).isStatic, false);
});
