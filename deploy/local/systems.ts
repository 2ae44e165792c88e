/**
 * The shop's other systems: what each is, how it is started, and a question with a right answer. Which protocol leads to
 * which capability stands in `shop.yaml`, as people would write it.
 */
import type { Member } from './roster.ts';

/** A kind of endpoint. */
export type Protocol = 'http' | 'jsonrpc' | 'grpc' | 'nats' | 'channel' | 'local';

export interface System {
  readonly protocol: Protocol;
  readonly agentId: string;
  /** For the story. */
  readonly what: string;
  /** Source of its program, from this folder. */
  readonly program: string;
  readonly capability: string;
  readonly payload: Readonly<Record<string, unknown>>;
  /** What its answer must hold, beside whatever else it holds. */
  readonly answer: Readonly<Record<string, unknown>>;
}

export const TEXT: System = Object.freeze({
  protocol: 'http',
  agentId: 'nlp.text.t1',
  what: 'a FastAPI service',
  program: 'peers/fastapi_agent.py',
  capability: 'nlp.mood.score',
  payload: { text: 'That was good of you' },
  answer: { label: 'positive', score: 0.75 },
});
export const STOCK: System = Object.freeze({
  protocol: 'jsonrpc',
  agentId: 'shop.stock.j1',
  what: 'a JSON-RPC service in Python',
  program: 'peers/jsonrpc_agent.py',
  capability: 'shop.stock.level',
  payload: { sku: 'bean-1kg', at: 'köln' },
  answer: { sku: 'bean-1kg', at: 'köln' },
});
export const ORDERS: System = Object.freeze({
  protocol: 'grpc',
  agentId: 'shop.order.g1',
  what: 'a gRPC service in Python',
  program: 'peers/grpc_agent.py',
  capability: 'shop.order.get',
  payload: { orderId: 'o-1042' },
  answer: { orderId: 'o-1042', state: 'SHIPPED' },
});
export const PARCELS: System = Object.freeze({
  protocol: 'nats',
  agentId: 'shop.parcel.n1',
  what: 'a NATS micro service in Python',
  program: 'peers/nats_agent.py',
  capability: 'shop.parcel.track',
  payload: { parcel: 'p-1042' },
  answer: { parcel: 'p-1042', at: 'Köln' },
});
/** Dials in to the shop's sidecar. */
export const TILL: System = Object.freeze({
  protocol: 'channel',
  agentId: 'shop.till.t1',
  what: 'a till without a port, with the Python SDK',
  program: 'peers/till.py',
  capability: 'shop.pickup.reserve',
  payload: { order: '1042' },
  answer: { order: '1042', shelf: 'B7' },
});
/** Has the engine inside it. */
export const DESK: System = Object.freeze({
  protocol: 'local',
  agentId: 'crm.desk.d1',
  what: 'a Node program with the engine inside',
  program: 'peers/desk.ts',
  capability: 'crm.callback.book',
  payload: { order: '1042' },
  answer: { order: '1042', booked_by: 'crm.front.f1' },
});

export const SYSTEMS: readonly System[] = Object.freeze([TEXT, STOCK, ORDERS, PARCELS, TILL, DESK]);

/** A reply word by word, by the text service. */
export const SPEAK = 'nlp.reply.speak';

/** The sidecar beside them; the till is the one that calls in by itself. */
export const SHOP: Member = Object.freeze({
  agentId: TILL.agentId,
  program: TILL.program,
  sidecar: 'shop',
  zone: 'b',
  offers: Object.freeze([`${TILL.capability}@1.0.0`]),
});
/** The name of the engine inside the desk. */
export const DESK_SIDECAR = 'desk';

/** True when everything that must be there is there. */
export function isRight(system: System, data: unknown): boolean {
  if (typeof data !== 'object' || data === null) return false;
  return Object.entries(system.answer).every(([key, value]) => (data as Record<string, unknown>)[key] === value);
}
