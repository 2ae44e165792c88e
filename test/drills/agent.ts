/** The agent of the drills: answers everything that it is asked after about two milliseconds, and counts it. */
import { self, serve } from '../../deploy/local/agent.ts';

const WORK_MS = 2;
const CAPABILITIES = ['drill.order.query', 'drill.note.search'];

serve(
  Object.fromEntries(CAPABILITIES.map((name) => [name, ({ payload }) => ({ asked: payload['n'] ?? null, by: self.agentId })])),
  WORK_MS,
);
