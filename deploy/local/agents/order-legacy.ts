/** The order desk of old, version 1.8: another form of answer, no refunds. Still in use, so still here. */
import { serve } from '../agent.ts';

serve({ 'crm.order.query': ({ payload }) => ({ orderNo: payload['order'] ?? null, state: 'OPEN' }) }, 20);
