import t from 'tap';
import { Principal } from '../../../../sidecar/call/principal.ts';
import { messageFrom } from '../../../../sidecar/accept/message-text.ts';
import type { Submission } from '../../../../sidecar/send/door.ts';

const WHO = new Principal('support.planner.1');
const read = (text: string, above = {}): Submission | string => messageFrom(WHO, Buffer.from(text), above);
function good(text: string, above = {}): Submission {
  const found = read(text, above);
  if (typeof found === 'string') throw new Error(found);
  return found;
}

t.test('every field is taken, and the payload as it was written', (t) => {
  const message = good(`{
    "target": {"capability": "crm.order.query@^2.0", "role": "order", "agent": null},
    "message_type": "task_result", "tags": {"lang": "de", "tenant": "acme"}, "sequence_id": "c-1", "priority": "low",
    "retryable": false, "expires": 90000, "deadline": 5000, "reply_to": "none", "in_reply_to": "abcdefgh1",
    "power_id": "k\\u002d1", "best_effort": true, "headers": {"X-Tenant": "acme", "reach-priority": "high"},
    "payload": {"n": 1.0, "big": 12345678901234567890}
  }`);
  t.match(message, {
    target: { capability: 'crm.order.query@^2.0', role: 'order', agent: null },
    messageType: 'task_result',
    tags: { lang: 'de', tenant: 'acme' },
    sequenceId: 'c-1',
    priority: 'low',
    retryable: false,
    expiresMs: 90_000,
    deadlineMs: 5_000,
    replyTo: 'none',
    inReplyTo: 'abcdefgh1',
    key: 'k-1',
    bestEffort: true,
    contentType: 'application/json',
  });
  t.equal(good('{"capability": "a.b.c", "deadline": 5e3}').deadlineMs, 5_000, 'a number as JSON has them');
  t.equal(message.payload.toString('utf8'), '{"n": 1.0, "big": 12345678901234567890}');
  t.equal(message.headers['x-tenant'], 'acme');
  t.end();
});

t.test('defaults, short forms and bytes', (t) => {
  t.match(good('{"target": "crm.order.query"}'), {
    target: { capability: 'crm.order.query', role: null, agent: null },
    messageType: null,
    tags: {},
    priority: null,
    retryable: true,
    key: null,
    expiresMs: null,
    replyTo: 'inbox',
    bestEffort: false,
    contentType: '',
  });
  t.match(good('{"target_role": "retriever", "custom_tags": {"a": "b"}, "expires": "10m"}'), {
    target: { role: 'retriever' },
    tags: { a: 'b' },
    expiresMs: 600_000,
  });
  const bytes = good('{"capability": "a.b.c", "payload_base64": "AAEC", "content_type": "image/png"}');
  t.strictSame([...bytes.payload], [0, 1, 2]);
  t.equal(bytes.contentType, 'image/png');
  t.equal(good('{"capability": "a.b.c", "payload": null}').payload.toString('utf8'), 'null', 'null is a payload');
  t.match(good('{"capability": "a.b.c"}', { 'reach-priority': 'high', 'content-type': 'application/json' }), {
    priority: 'high',
    contentType: '',
  });
  t.match(
    good('{"capability": "a.b.c", "priority": "low"}', { 'reach-priority': 'high' }),
    { priority: 'low' },
    'the message itself is nearer',
  );
  t.end();
});

t.test('what is wrong is named', (t) => {
  const bad: readonly (readonly [text: string, words: RegExp])[] = [
    ['[]', /an object such as/],
    ['{}', /nobody is addressed/],
    ['{"capability": "a.b.c", "priorty": "high"}', /did you mean priority/],
    ['{"capability": "a.b.c", "source": "x.y.z"}', /source is stamped/],
    ['{"capability": "a.b.c", "capability": "a.b.d"}', /twice/],
    ['{"capability": "a.b.c", "target": "a.b.d"}', /named twice/],
    ['{"target": {"capability": "a.b.c", "team": "x"}}', /capability, role and agent/],
    ['{"target": 7}', /target must be/],
    ['{"capability": "a.b.c", "tags": {"n": 1}}', /tags.n must be a text/],
    ['{"capability": "a.b.c", "tags": {"n": "a,b=c"}}', /comma/],
    ['{"capability": "a.b.c", "retryable": "yes"}', /true or false/],
    ['{"capability": "a.b.c", "expires": -1}', /unit/],
    ['{"capability": "a.b.c", "deadline": "5s"}', /whole milliseconds/],
    ['{"capability": "a.b.c", "deadline": 0}', /above 0/],
    ['{"capability": "a.b.c", "deadline": 2592000001}', /above the maximum/],
    ['{"capability": "a.b.c", "deadline": 1.5}', /whole milliseconds/],
    ['{"capability": "a.b.c", "deadline": -5}', /above 0/],
    ['{"capability": "a.b.c", "payload": 1, "payload_base64": "AA=="}', /not both/],
    ['{"capability": "a.b.c", "headers": {"x": "a\\nb"}}', /control/],
    ['{"capability": "a.b.c", "in_reply_to": "../x"}', /id of a task/],
    ['{"capability": "a.b.c", "__proto__": {"priority": "high"}}', /no field/],
  ];
  for (const [text, words] of bad) t.match(read(text), words, text);
  t.end();
});
