/** What an agent says on a channel about work that it has taken with 202: how it ended, or that it takes longer. */
import { valuesOf } from '../../../base/json-values.ts';
import { Code } from '../../../proto/wire/codes.ts';
import { RpcError, type RpcId } from '../../../proto/wire/json-rpc.ts';
import type { Reported } from '../../deliver/door.ts';
import { rpcFailure, rpcRefusal, rpcValue } from '../rpc-answer.ts';
import type { AllChannels } from './all-channels.ts';
import type { ChannelConnection } from './connection.ts';
import { readContent, textIn } from './message.ts';

const DONE = ['task_id', 'status', 'payload', 'payload_base64', 'content_type'] as const;
const NO_WORK = 'this sidecar hands out no tasks: it has no registry';
const NOT_HERE = 'no such task is in the hands of this agent here';

/** Why a report is not taken, and with which code; `stored` is none. */
const REFUSALS: Readonly<Record<Exclude<Reported, 'stored'>, readonly [Code, string]>> = {
  unknown: [Code.invalid_request, NOT_HERE],
  fenced: [Code.invalid_request, 'the task took too long: it is somebody else’s by now, in doubt, or has ended'],
  unreachable: [Code.delivery_unavailable, 'the result could not be stored: say it again'],
};

export function done(all: AllChannels, connection: ChannelConnection, id: RpcId, params: Buffer | null): void {
  const { work } = all.front;
  const members = params === null ? null : valuesOf(params, DONE);
  const taskId = members === null ? null : textIn(members[0] ?? null);
  if (members === null || taskId === null) {
    connection.sendJson(rpcRefusal(id, RpcError.invalidParams, 'params must be an object with task_id'));
    return;
  }
  const status = statusIn(members[1] ?? null);
  const content = readContent(members[2] ?? null, members[3] ?? null, members[4] ?? null);
  if (status === null || typeof content === 'string') {
    const words = typeof content === 'string' ? content : 'status must be 200 … 299 (done) or 400 … 599 (it failed)';
    connection.sendJson(rpcRefusal(id, RpcError.invalidParams, words));
    return;
  }
  if (work === null) {
    connection.sendJson(rpcFailure(id, Code.invalid_request, NO_WORK));
    return;
  }
  const code = status >= 400 ? Code.provider_error : Code.ok;
  work.done(connection.agentId, taskId, { code, status, contentType: content.contentType, body: content.body, detail: '' }).then(
    (reported) => {
      if (reported === 'stored') connection.sendJson(rpcValue(id, { task_id: taskId, outcome: reported }));
      else connection.sendJson(rpcFailure(id, ...REFUSALS[reported]));
    },
    (error: unknown) => {
      all.front.observation.fault(error);
      connection.sendJson(rpcFailure(id, Code.internal, 'a fault in Agent-Reach'));
    },
  );
}

export function extend(all: AllChannels, connection: ChannelConnection, id: RpcId, params: Buffer | null): void {
  const { work } = all.front;
  const taskId = params === null ? null : textIn(valuesOf(params, ['task_id'])?.[0] ?? null);
  if (taskId === null) {
    connection.sendJson(rpcRefusal(id, RpcError.invalidParams, 'params must be an object with task_id'));
    return;
  }
  const leftMs = work === null ? null : work.extend(connection.agentId, taskId);
  if (leftMs === null) connection.sendJson(rpcFailure(id, Code.invalid_request, work === null ? NO_WORK : NOT_HERE));
  else connection.sendJson(rpcValue(id, { task_id: taskId, left_ms: Math.round(leftMs) }));
}

function statusIn(value: Buffer | null): number | null {
  if (value === null) return 200;
  const status = Number(value.toString('latin1'));
  return Number.isInteger(status) && status >= 200 && status <= 599 && (status < 300 || status >= 400) ? status : null;
}
