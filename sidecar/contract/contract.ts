/**
 * The request against the contract of the version that will serve it: size, form, input schema, conversation key, and how
 * often the work may run. The payload is only looked at; its bytes go on as they came.
 */
import { type Bounds, boundsProblem } from '../../base/depth.ts';
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import { type Call, headerOf, payloadOf } from '../call/call.ts';
import { passing, refusing, Verdict } from '../call/verdict.ts';
import type { Version } from '../table/snapshot.ts';

const kept = passing('contract', 'kept', 'the request fits {a}@{b} ({c})');
const tooLarge = refusing('contract', 'too_large', Code.payload_too_large, 'the body has {a} bytes, {b} are allowed');
const notJson = refusing('contract', 'not_json', Code.invalid_request, 'the body is not well-formed JSON');
const outOfBounds = refusing('contract', 'bounds', Code.invalid_request, 'the payload {a}');
const misfit = refusing('contract', 'input', Code.invalid_request, 'the payload breaks the input schema: {a}');
const noKey = refusing(
  'contract',
  'affinity_key',
  Code.affinity_key_missing,
  'the contract needs a conversation key from {a}, and it is missing',
);
const badExecution = refusing('contract', 'execution', Code.invalid_request, '{a}: {b} is none of once, idempotent, keyed');
const unkeyed = refusing(
  'contract',
  'key',
  Code.invalid_request,
  'Idempotency-Key and Reach-Power-Id differ, or are longer than {a} characters, or hold control characters',
);

/**
 * What recurses over a payload, here, in an agent or in what the agent calls, must not be run out of stack by it: the usual
 * readers of JSON give up somewhere above a thousand levels, some of them by taking their process along.
 */
export const PAYLOAD_BOUNDS: Bounds = Object.freeze({ levels: 100, members: 100_000, nameChars: 4_096 });

export const LONGEST_KEY = 256;
const KEY_FORM = /^[\x21-\x7e]+$/;

export function contract(call: Call, version: Version): Verdict {
  const rules = version.contract;
  const limit = version.settings.limits.requestBytes;
  if (call.body.length > limit) return new Verdict(tooLarge, call.body.length, limit);
  const execution = call.headers[Header.execution];
  call.execution = rules.execution;
  if (execution !== undefined) {
    if (execution !== 'once' && execution !== 'idempotent' && execution !== 'keyed')
      return new Verdict(badExecution, Header.execution, String(execution).slice(0, 40));
    call.execution = execution;
  }
  if (!readKey(call)) return new Verdict(unkeyed, LONGEST_KEY);
  if (rules.affinity !== null && rules.affinity.required && call.affinityKey === null) {
    const from = rules.affinity.from;
    return new Verdict(noKey, 'header' in from ? `header ${from.header}` : `payload ${from.pointer}`);
  }
  if ((version.input !== null && !isBare(call)) || isJson(call.contentType)) {
    const payload = payloadOf(call);
    if (payload === undefined) return new Verdict(notJson);
    const exceeded = boundsProblem(payload, PAYLOAD_BOUNDS);
    if (exceeded !== null) return new Verdict(outOfBounds, exceeded);
    const problems = version.input === null || isBare(call) ? null : version.input.validate(payload);
    if (problems !== null) return new Verdict(misfit, problems);
  }
  return new Verdict(kept, version.capability.name, version.text, call.execution);
}

/** An intercepted request without a body, a GET as a rule, says all in its path: there is no payload that could be wrong. */
function isBare(call: Call): boolean {
  return call.http !== null && call.body.length === 0;
}

function isJson(contentType: string): boolean {
  return contentType.startsWith('application/json') || contentType.includes('+json');
}

/** Both headers mean the same; two different keys in one request are a mistake that must not be guessed at. */
function readKey(call: Call): boolean {
  const power = call.headers[Header.powerId];
  const idempotency = call.headers[Header.idempotencyKey];
  if (power === undefined && idempotency === undefined) return true;
  const key = headerOf(call, Header.powerId) ?? headerOf(call, Header.idempotencyKey);
  if (key === null || key.length > LONGEST_KEY || !KEY_FORM.test(key)) return false;
  if (power !== undefined && idempotency !== undefined && power !== idempotency) return false;
  call.powerId = key;
  return true;
}
