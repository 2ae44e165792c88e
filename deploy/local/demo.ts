/**
 * `make demo`: the customer-service team on real processes, with a control plane: every agent registers through its own
 * sidecar, operators use reachctl, and in the end the control plane and NATS are killed and nobody who calls notices.
 */
import { play } from './play.ts';
import { RegisteredTeam } from './registered-team.ts';
import { badPush } from './scenes/bad-push.ts';
import { controlPlaneLoss } from './scenes/control-plane-loss.ts';
import { joined } from './scenes/joined.ts';
import { shifted } from './scenes/shifted.ts';

await play(new RegisteredTeam(), ', all of them registered', [
  ['joined', 'A third order desk registers while calls run', joined],
  ['shifted', 'The canary is shifted with reachctl', shifted],
  ['bad_push_refused', 'An operator applies a file with mistakes', badPush],
  ['control_plane_loss', '(g) Control plane and NATS are killed while calls run', controlPlaneLoss],
]);
