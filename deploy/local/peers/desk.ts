/**
 * The call-back desk: a Node program that has the engine inside it, as a library, and is an agent by a function call. Other
 * sidecars reach it over the mesh port that its settings name.
 *
 * Usage: desk.ts <settings file>. Says {"ready":true} in one line when it serves.
 */
import { startReach } from '../../../sidecar/embedded.ts';

const reach = await startReach({ settings: process.argv[2] ?? 'desk.yaml', as: 'crm.desk.d1' });
const contract = { description: 'Books a call back for the customer', execution: 'once', timeout: '2s', acl: ['role:front'] };
await reach.serve('crm.callback.book@1.0.0', ({ payload, caller }) => ({ ...(payload as object), at: '16:30', booked_by: caller }), {
  contract,
});
process.stdout.write('{"ready":true}\n');
process.once('SIGTERM', () => void reach.stop().then(() => process.exit(0)));
