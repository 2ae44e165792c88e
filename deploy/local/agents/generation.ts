/** Writes the reply from what the others found. A language model would stand here; the demo needs none. */
import { serve } from '../agent.ts';

serve(
  {
    'nlp.reply.write': ({ payload, remainingMs }) => {
      const facts = payload['facts'] as Record<string, Record<string, unknown>> | undefined;
      const sorry = facts?.['sentiment']?.['label'] === 'annoyed' ? 'Sorry for the wait. ' : '';
      return {
        text: `${sorry}Your order is waiting: ${String(facts?.['order']?.['reason'] ?? 'we are looking into it')}. ${String(facts?.['knowledge']?.['text'] ?? '')}`,
        had_ms: remainingMs,
      };
    },
  },
  80,
);
