/** Who is in the team: agents, what they offer, where they stand. Each has a sidecar of its own, named after it. */

export interface Member {
  readonly agentId: string;
  /** Source of its program, from this folder; null: the front agent is whoever runs the demo. */
  readonly program: string | null;
  readonly sidecar: string;
  readonly zone: 'a' | 'b';
  /** `name@version` each. */
  readonly offers: readonly string[];
}

function member(agentId: string, program: string | null, sidecar: string, zone: 'a' | 'b', offers: readonly string[]): Member {
  return Object.freeze({ agentId, program, sidecar, zone, offers: Object.freeze(offers) });
}

const ORDER_DESK = ['crm.order.query@2.0.0', 'crm.refund.apply@2.0.0'];

export const FRONT: Member = member('crm.front.f1', null, 'front', 'a', []);
export const INTENT: Member = member('nlp.intent.i1', 'agents/intent.ts', 'intent', 'a', [
  'nlp.intent.detect@1.2.0',
  'nlp.intent.review@1.0.0',
]);
export const SENTIMENT: Member = member('nlp.sentiment.s1', 'agents/sentiment.ts', 'sentiment', 'a', [
  'nlp.sentiment.analyze@1.0.0',
  'nlp.sentiment.review@1.0.0',
]);
export const KNOWLEDGE: Member = member('kb.search.k1', 'agents/knowledge.ts', 'knowledge', 'a', ['kb.article.search@1.0.0']);
export const ORDER_OLD: Member = member('crm.order.old', 'agents/order-legacy.ts', 'order-old', 'a', ['crm.order.query@1.8.0']);
export const ORDER_A1: Member = member('crm.order.a1', 'agents/order.ts', 'order-a1', 'a', ORDER_DESK);
export const ORDER_B1: Member = member('crm.order.b1', 'agents/order.ts', 'order-b1', 'b', ORDER_DESK);
export const GENERATION: Member = member('nlp.writer.g1', 'agents/generation.ts', 'generation', 'a', ['nlp.reply.write@1.0.0']);

/** Joins while the demo runs. */
export const ORDER_A2: Member = member('crm.order.a2', 'agents/order.ts', 'order-a2', 'a', ORDER_DESK);
/** Registers while calls run, in place of one that was killed. */
export const ORDER_A3: Member = member('crm.order.a3', 'agents/order.ts', 'order-a3', 'a', ORDER_DESK);
/** The canary: the next version of the order desk. */
export const ORDER_NEXT: Member = member('crm.order.next', 'agents/order.ts', 'order-next', 'b', [
  'crm.order.query@2.1.0',
  'crm.refund.apply@2.0.0',
]);

/** The customers' records, kept by two: they join for the scenes with messages. */
const RECORDS = ['crm.customer.note@1.0.0', 'crm.customer.copy@1.0.0', 'crm.invoice.send@1.0.0'];
export const RECORDS_B1: Member = member('crm.records.b1', 'agents/records.ts', 'records-b1', 'a', RECORDS);
export const RECORDS_B2: Member = member('crm.records.b2', 'agents/records.ts', 'records-b2', 'b', RECORDS);
/** Addressed by their roles. */
export const RETRIEVER: Member = member('search.retriever.r1', 'agents/retriever.ts', 'retriever', 'a', ['agent.message.handle@1.0.0']);
export const AGGREGATOR_A1: Member = member('search.aggregator.a1', 'agents/aggregator.ts', 'aggregator-a1', 'a', [
  'agent.message.handle@1.0.0',
]);
export const AGGREGATOR_A2: Member = member('search.aggregator.a2', 'agents/aggregator.ts', 'aggregator-a2', 'b', [
  'agent.message.handle@1.0.0',
]);

/** Settles a whole case when it is asked to: for the scene with one trace. */
export const CASEWORK: Member = member('crm.front.c1', 'agents/casework.ts', 'casework', 'a', ['crm.case.settle@1.0.0']);

export const TEAM: readonly Member[] = Object.freeze([FRONT, INTENT, SENTIMENT, KNOWLEDGE, ORDER_OLD, ORDER_A1, ORDER_B1, GENERATION]);
