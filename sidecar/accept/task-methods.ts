/**
 * `reach.task` and `reach.cancel_task`, where messages are JSON-RPC: what became of a task of the caller's, and calling it off. The
 * same as `GET` and `DELETE /v1/tasks/{id}`; who wants to be told of its end reads the inbox.
 */
import { stringAt } from '../../base/json-members.ts';
import { valuesOf } from '../../base/json-values.ts';
import { Code } from '../../proto/wire/codes.ts';
import { RpcError, type RpcId, writeRpcResult } from '../../proto/wire/json-rpc.ts';
import type { Principal } from '../call/principal.ts';
import type { JsonBytes } from '../call/result.ts';
import type { Front } from './front.ts';
import { rpcFailure, rpcRefusal, rpcValue } from './rpc-answer.ts';
import { taskText } from './submitted.ts';
import { NOT_KNOWN, NOT_SURE, TOO_LATE } from './tasks.ts';

const QUOTE = 0x22;

/** Never rejects. */
export async function taskAnswer(front: Front, principal: Principal, id: RpcId, params: Buffer | null): Promise<JsonBytes> {
  const taskId = taskIdIn(params);
  if (taskId === null) return rpcRefusal(id, RpcError.invalidParams, NO_ID_GIVEN);
  try {
    const view = (await front.send?.task(principal, taskId)) ?? null;
    if (view === null) return rpcFailure(id, Code.invalid_request, NOT_KNOWN);
    if (view === 'unsure') return rpcFailure(id, Code.delivery_unavailable, NOT_SURE);
    return writeRpcResult(id, Buffer.from(taskText(view), 'utf8'));
  } catch (error) {
    return fault(front, id, error);
  }
}

/** Never rejects. */
export async function cancelAnswer(front: Front, principal: Principal, id: RpcId, params: Buffer | null): Promise<JsonBytes> {
  const taskId = taskIdIn(params);
  if (taskId === null) return rpcRefusal(id, RpcError.invalidParams, NO_ID_GIVEN);
  try {
    const outcome = (await front.send?.cancel(principal, taskId)) ?? 'unknown';
    if (outcome === 'unknown') return rpcFailure(id, Code.invalid_request, NOT_KNOWN);
    if (outcome === 'unsure') return rpcFailure(id, Code.delivery_unavailable, NOT_SURE);
    if (outcome === 'too_late') return rpcFailure(id, Code.invalid_request, TOO_LATE);
    return rpcValue(id, { task_id: taskId, outcome });
  } catch (error) {
    return fault(front, id, error);
  }
}

const NO_ID_GIVEN = 'params must be an object with task_id';

function taskIdIn(params: Buffer | null): string | null {
  const value = params === null ? null : (valuesOf(params, ['task_id'])?.[0] ?? null);
  return value === null || value[0] !== QUOTE ? null : stringAt(value, 0, value.length);
}

function fault(front: Front, id: RpcId, error: unknown): JsonBytes {
  front.observation.fault(error);
  return rpcFailure(id, Code.internal, 'a fault in Agent-Reach');
}
