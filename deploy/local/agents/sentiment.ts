/** Reads the mood of a text. Its review asks the intent agent, whatever that one was doing just now. */
import { serve } from '../agent.ts';

serve(
  {
    'nlp.sentiment.analyze': ({ payload }) => {
      const angry = /why|not|still|!/i.test(String(payload['text'] ?? ''));
      return { label: angry ? 'annoyed' : 'neutral', confidence: angry ? 0.83 : 0.4 };
    },
    'nlp.sentiment.review': async ({ payload, ask }) => ({ opinion: 'unsure', second: await ask('nlp.intent.review', payload) }),
  },
  40,
);
