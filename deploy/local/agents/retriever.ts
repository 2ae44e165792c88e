/** Looks things up, and sends what it finds part by part to whoever aggregates: a message each, of one sequence. */
import { note, serve } from '../agent.ts';

const PARTS = 4;

serve(
  {
    'agent.message.handle': async ({ payload, send }) => {
      const sequence = String(payload['sequence']);
      note(`asked ${sequence}`);
      for (let part = 1; part <= PARTS; part++)
        await send({ message_type: 'task_result', target_role: 'aggregator', sequence_id: sequence, payload: { sequence, part } });
      return { sequence, parts: PARTS };
    },
  },
  10,
);
