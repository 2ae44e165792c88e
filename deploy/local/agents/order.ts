/**
 * The order desk, version 2: answers questions about orders and gives refunds, to conversations that it knows. What it
 * starts and what it has booked goes to its journal at once, so that a kill cannot hide what was done.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { note, Refusal, self, serve } from '../agent.ts';

const conversations = new Set<string>();
const BOOKING_MS = 60;

serve(
  {
    'crm.order.query': ({ payload, session, version }) => {
      conversations.add(session);
      return {
        order: payload['order'] ?? null,
        state: 'waiting',
        reason: 'item 2 of 3 is on backorder',
        desk: self.agentId,
        desk_version: version,
      };
    },
    'crm.refund.apply': async ({ payload, session }) => {
      if (!conversations.has(session)) return new Refusal(409, { error: 'no such context', session });
      const id = String(payload['refund_id'] ?? '');
      note(`started ${id}`);
      await sleep(BOOKING_MS);
      note(`booked ${id}`);
      return { refund_id: id, state: 'booked', desk: self.agentId };
    },
  },
  4,
);
