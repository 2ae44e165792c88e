/**
 * W3C trace context in a JSON-RPC message itself: HTTP headers are the same for all messages of a batch, and are not there on other
 * carriers. Two forms are in use, and both are read: members `traceparent` and `tracestate` of the request (StreamJsonRpc), and
 * `params._meta.traceparent` (MCP). The message's own word goes before that of the headers. On the way out only what is there is
 * changed: an agent that is sent `_meta.traceparent` gets the span that it works in, and one that is sent none gets the header alone,
 * since strict agents refuse members that they do not know.
 */
import { type Member, membersOf, startOf, stringAt } from '../../base/json-members.ts';
import { isTraceparent } from './trace-context.ts';

export interface MessageTrace {
  readonly traceparent: string;
  readonly tracestate: string | undefined;
}

const META = Buffer.from('"_meta"');
const OPEN_MAP = 0x7b;
const QUOTE = 0x22;

/** @param params well-formed JSON. Null = there is none, or none that can be read: that starts no new trace, the headers may have one */
export function traceOfParams(params: Buffer): MessageTrace | null {
  const traceparent = memberOfMeta(params, 'traceparent');
  if (traceparent === null) return null;
  const text = stringAt(params, traceparent.from, traceparent.to);
  if (!isTraceparent(text)) return null;
  const tracestate = memberOfMeta(params, 'tracestate');
  return { traceparent: text, tracestate: tracestate === null ? undefined : stringAt(params, tracestate.from, tracestate.to) };
}

/** The same params with another `traceparent` in their `_meta`; as they are, where there is none. */
export function paramsWithTrace(params: Buffer, traceparent: string): Buffer {
  const member = memberOfMeta(params, 'traceparent');
  if (member === null) return params;
  return Buffer.concat([params.subarray(0, member.from), Buffer.from(`"${traceparent}"`, 'latin1'), params.subarray(member.to)]);
}

/** Null when there is no such text, or one name stands there twice: two readers could take different ones. */
function memberOfMeta(params: Buffer, name: string): Member | null {
  // Most have none, which a search by the platform says at once.
  if (!params.includes(META)) return null;
  const start = startOf(params);
  if (params[start] !== OPEN_MAP) return null;
  const meta = only(membersOf(params, start), '_meta');
  if (meta === null || params[meta.from] !== OPEN_MAP) return null;
  const member = only(membersOf(params, meta.from), name);
  return member !== null && params[member.from] === QUOTE ? member : null;
}

function only(members: readonly Member[], name: string): Member | null {
  const found = members.filter((member) => member.name === name);
  return found.length === 1 ? (found[0] as Member) : null;
}
