/** Finds out what a customer wants. Unsure, it asks the sentiment agent for a second opinion, which may ask back: a loop. */
import { serve } from '../agent.ts';

serve(
  {
    'nlp.intent.detect': ({ payload }) => {
      const text = String(payload['text'] ?? '').toLowerCase();
      return { intent: text.includes('ship') ? 'order_status' : 'other', order: /\d{3,}/.exec(text)?.[0] ?? null };
    },
    'nlp.intent.review': async ({ payload, ask }) => ({ opinion: 'unsure', second: await ask('nlp.sentiment.review', payload) }),
  },
  30,
);
