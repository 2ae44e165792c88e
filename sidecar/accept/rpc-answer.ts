/**
 * What a call came to, as a JSON-RPC 2.0 answer: for every way in that speaks it. A success is the Result as it stands in
 * the body of `/v1/invoke`; a failure is an error whose `data` is the same problem document that HTTP would have carried,
 * and whose `code` comes from the closed table. What never became a call gets the protocol's own codes.
 */
import { Code, codeEntry } from '../../proto/wire/codes.ts';
import { RpcError, type RpcErrorCode, type RpcId, writeRpcError, writeRpcResult } from '../../proto/wire/json-rpc.ts';
import type { Call } from '../call/call.ts';
import { enclosed, envelope, type JsonBytes, plainProblem, problem, resultOf } from '../call/result.ts';
import type { Submitted } from '../send/door.ts';
import { isTold } from './answer.ts';
import { acceptedOf } from './submitted.ts';

const OPEN_RESULT = '{"jsonrpc":"2.0","result":';

/** @param raw only the provider's data, instead of the whole Result. */
export function rpcAnswer(id: RpcId, call: Call, raw: boolean): JsonBytes {
  const result = resultOf(call, true);
  const { entry } = result;
  const tail = `,"id":${id}}`;
  if (entry.code === Code.ok) return enclosed(OPEN_RESULT, raw ? result.data : envelope(result, isTold(call)), tail);
  const head = `{"jsonrpc":"2.0","error":{"code":${entry.jsonRpc},"message":${JSON.stringify(entry.meaning)},"data":`;
  return enclosed(head, problem(result, isTold(call)), `}${tail}`);
}

/** Something else than a call was asked for; `result` is what it came to. */
export function rpcValue(id: RpcId, result: unknown): JsonBytes {
  return writeRpcResult(id, Buffer.from(JSON.stringify(result), 'utf8'));
}

/** What a message came to that was submitted. */
export function rpcSubmitted(id: RpcId, came: Submitted): JsonBytes {
  return came.ok ? rpcValue(id, acceptedOf(came)) : rpcFailure(id, came.code, came.detail, came.retryAfterMs, came.ambiguous);
}

const MESSAGES: Readonly<Record<RpcErrorCode, string>> = {
  [RpcError.parse]: 'Parse error',
  [RpcError.invalidRequest]: 'Invalid Request',
  [RpcError.methodNotFound]: 'Method not found',
  [RpcError.invalidParams]: 'Invalid params',
  [RpcError.internal]: 'Internal error',
};

/** A message that is none, or asks for what is not there: the protocol's own words, ours in `data`. */
export function rpcRefusal(id: RpcId, code: RpcErrorCode, detail: string): JsonBytes {
  const ours = OURS[code];
  return writeRpcError(id, code, MESSAGES[code], Buffer.from(plainProblem(ours, codeEntry(ours).http, detail), 'utf8'));
}

const OURS: Readonly<Record<RpcErrorCode, Code>> = {
  [RpcError.parse]: Code.invalid_request,
  [RpcError.invalidRequest]: Code.invalid_request,
  [RpcError.methodNotFound]: Code.no_provider,
  [RpcError.invalidParams]: Code.invalid_request,
  [RpcError.internal]: Code.internal,
};

/** A refusal of ours before there was a call: the sidecar is not ready, the caller may not look. */
export function rpcFailure(id: RpcId, code: Code, detail: string, retryAfterMs = 0, isAmbiguous = false): JsonBytes {
  const entry = codeEntry(code);
  const data = plainProblem(code, entry.http, detail, retryAfterMs, isAmbiguous);
  return writeRpcError(id, entry.jsonRpc, entry.meaning, Buffer.from(data, 'utf8'));
}
