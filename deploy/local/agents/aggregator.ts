/** Puts the parts of a sequence together, so all of them have to come here, and one after the other. */
import { note, serve } from '../agent.ts';

serve(
  {
    'agent.message.handle': ({ payload }) => {
      note(`${String(payload['sequence'])} ${String(payload['part'])}`);
      return { taken: payload['part'] ?? null };
    },
  },
  5,
);
