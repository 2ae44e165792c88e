import { readFileSync } from 'node:fs';
import t from 'tap';
import { errorsPage } from '../../../../docs/generate-errors.ts';
import { Code, CODES, codeEntry, isCode } from '../../../../proto/wire/codes.ts';
import { repoFile } from '../../../support/paths.ts';

/** The table of SPEC section 6, and 0 for success. A code that goes missing or gets another name breaks every caller. */
const SPECIFIED = `0 ok
1001 connect_timeout 1002 connection_lost 1003 response_timeout 1004 bad_response 1005 response_too_large 1006 stream_interrupted 1007 tls_failed
2001 no_provider 2002 no_matching_version 2003 none_healthy 2004 affinity_lost 2005 loop_detected 2006 blocked_by_operator
3001 breaker_open 3002 caller_busy 3003 provider_busy 3004 rate_limited 3005 retry_budget_spent
4001 unauthenticated 4002 forbidden 4003 invalid_request 4004 invalid_response 4005 payload_too_large 4006 bad_name 4007 in_flight 4008 key_reused 4009 affinity_key_missing
5001 deadline_exceeded 5002 deadline_too_short 5003 cancelled
6001 provider_error
7001 delivery_unavailable 7002 dead_lettered 7003 in_doubt 7004 expired 7005 parked
9001 internal`;

t.test('the table is the specified one, no more and no less, in order', async (t) => {
  const specified = SPECIFIED.split(/\s+/);
  t.strictSame(
    CODES.flatMap((entry) => [String(entry.code), entry.name]),
    specified,
  );
  t.equal(Object.keys(Code).length, CODES.length, 'each constant has its entry');
  for (const entry of CODES) t.equal(Code[entry.name], entry.code, `${entry.name} is the same on both sides`);
});

t.test('every entry is complete and maps to statuses that exist', async (t) => {
  for (const entry of CODES) {
    const bad: string[] = [];
    if (!(entry.http >= 200 && entry.http < 600)) bad.push(`HTTP ${entry.http}`);
    if (!(Number.isInteger(entry.grpc) && entry.grpc >= 0 && entry.grpc <= 16)) bad.push(`gRPC ${entry.grpc}`);
    const predefined = [-32_601, -32_602, -32_603].includes(entry.jsonRpc);
    const ours = entry.jsonRpc <= -32_000 && entry.jsonRpc >= -32_099;
    if (entry.code !== Code.ok && !predefined && !ours) bad.push(`JSON-RPC ${entry.jsonRpc} is outside the ranges for servers`);
    for (const text of [entry.meaning, entry.advice]) if (!/^[A-Z].*[.?]$/.test(text)) bad.push(`"${text}" is not a sentence`);
    t.strictSame(bad, [], `${entry.code} ${entry.name}`);
  }
});

t.test('a failure never looks like a success on any way in', async (t) => {
  for (const entry of CODES.filter(({ code }) => code !== Code.ok && code !== Code.parked)) {
    t.ok(entry.http >= 400 && entry.jsonRpc < 0 && entry.grpc > 0, `${entry.code} ${entry.name}`);
  }
  t.match(codeEntry(Code.ok), { http: 200, jsonRpc: 0, grpc: 0, retryable: false });
});

t.test('the caller is blamed by 4xx and nobody else is', async (t) => {
  for (const entry of CODES) {
    const isCallers = entry.code >= 4_000 && entry.code < 5_000 && entry.code !== Code.invalid_response;
    if (isCallers) t.ok(entry.http >= 400 && entry.http < 500, `${entry.name} is a caller's fault`);
    if (entry.code >= 1_000 && entry.code < 2_000) t.ok(entry.http >= 500, `${entry.name} is not the caller's fault`);
  }
});

t.test('a code of a newer peer reads as an internal fault and is not known', async (t) => {
  t.equal(codeEntry(1_999).name, 'internal');
  t.equal(isCode(1_999), false);
  t.equal(isCode(2_001), true);
  t.equal(codeEntry(2_001).name, 'no_provider');
});

t.test('the table cannot be changed at run time', async (t) => {
  t.ok(Object.isFrozen(CODES));
  t.ok(CODES.every((entry) => Object.isFrozen(entry)));
});

t.test('docs/errors.md says what the table says', async (t) => {
  const page = readFileSync(repoFile('docs/errors.md'), 'utf8');
  t.equal(page, errorsPage(), 'the page is fresh; make docs writes it anew');
  for (const { code, name } of CODES) t.ok(page.includes(`| ${code} | \`${name}\` |`), `${code} ${name} has its line`);
});
