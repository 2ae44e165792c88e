/** What an agent says about its inbox on a channel: from where it reads, and up to where it has taken everything. */
import { valuesOf } from '../../../base/json-values.ts';
import { Code, codeEntry } from '../../../proto/wire/codes.ts';
import { RpcError, type RpcId, writeRpcError } from '../../../proto/wire/json-rpc.ts';
import type { InboxRefusal } from '../../inbox/door.ts';
import { NO_INBOX, readPosition, refusalOf, refusalText } from '../inbox-text.ts';
import { rpcFailure, rpcRefusal, rpcValue } from '../rpc-answer.ts';
import type { AllChannels } from './all-channels.ts';
import type { ChannelConnection } from './connection.ts';
import { InboxOnChannel } from './inbox-reader.ts';

/** After what is acknowledged. */
const FLOOR = '"floor"';
const BAD_FROM = 'must be the position of the entry that is wanted next, or "floor": after what is acknowledged';

/** What `resume_from` of a hello came to; `reader` is to begin behind the answer. */
export interface Resumed {
  readonly told: object | null;
  readonly reader: InboxOnChannel | null;
}

export const NOT_RESUMED: Resumed = Object.freeze({ told: null, reader: null });

/** @param from what stands at `resume_from`. */
export async function resumeAtHello(all: AllChannels, connection: ChannelConnection, from: Buffer): Promise<Resumed> {
  const { inbox } = all.front;
  if (inbox === null) return { told: { from: null, why: 'unreachable', available_from: null, reason: NO_INBOX }, reader: null };
  const position = positionIn(from.toString('latin1'));
  if (position === undefined)
    return { told: { from: null, why: 'invalid', available_from: null, reason: `resume_from ${BAD_FROM}` }, reader: null };
  const reader = new InboxOnChannel(connection);
  const came = await reader.open(inbox, position);
  if (came.ok) return { told: { from: came.from, floor: came.floor }, reader };
  const { why, detail, from: available } = came;
  return { told: { from: null, why, available_from: available === 0 ? null : available, reason: detail }, reader: null };
}

/** `reach.resume {from?}` */
export function resume(all: AllChannels, connection: ChannelConnection, id: RpcId, params: Buffer | null): void {
  const { inbox } = all.front;
  if (inbox === null) {
    connection.sendJson(rpcFailure(id, Code.delivery_unavailable, NO_INBOX));
    return;
  }
  const from = params === null ? null : (valuesOf(params, ['from'])?.[0] ?? null);
  const position = positionIn(from === null ? 'null' : from.toString('latin1'));
  if (position === undefined) {
    connection.sendJson(rpcRefusal(id, RpcError.invalidParams, `from ${BAD_FROM}`));
    return;
  }
  const reader = new InboxOnChannel(connection);
  reader.open(inbox, position).then(
    (came) => {
      if (!came.ok) refuse(connection, id, came);
      else {
        connection.sendJson(rpcValue(id, { from: came.from, floor: came.floor }));
        reader.begin();
      }
    },
    (error: unknown) => failed(all, connection, id, error),
  );
}

/** `reach.ack {seq}`; as a notification it is not answered. */
export function acknowledge(all: AllChannels, connection: ChannelConnection, id: RpcId | null, params: Buffer | null): void {
  const { inbox } = all.front;
  const seq = params === null ? null : (valuesOf(params, ['seq'])?.[0] ?? null);
  const position = seq === null ? null : readPosition(seq.toString('latin1'));
  if (inbox === null || position === null) {
    if (id === null) return;
    if (inbox === null) connection.sendJson(rpcFailure(id, Code.delivery_unavailable, NO_INBOX));
    else connection.sendJson(rpcRefusal(id, RpcError.invalidParams, 'seq must be the position of an entry'));
    return;
  }
  inbox.acknowledge(connection.agentId, position).then(
    (came) => {
      if (id === null) return;
      if (came.ok) connection.sendJson(rpcValue(id, { floor: came.floor }));
      else refuse(connection, id, came);
    },
    (error: unknown) => failed(all, connection, id, error),
  );
}

/** undefined = it is none; null = after what is acknowledged. */
function positionIn(text: string): number | null | undefined {
  return text === FLOOR || text === 'null' ? null : (readPosition(text) ?? undefined);
}

function refuse(connection: ChannelConnection, id: RpcId, refusal: InboxRefusal): void {
  const entry = codeEntry(refusalOf(refusal).code);
  connection.sendJson(writeRpcError(id, entry.jsonRpc, entry.meaning, Buffer.from(refusalText(refusal), 'utf8')));
}

function failed(all: AllChannels, connection: ChannelConnection, id: RpcId | null, error: unknown): void {
  all.front.observation.fault(error);
  if (id !== null) connection.sendJson(rpcFailure(id, Code.internal, 'a fault in Agent-Reach'));
}
