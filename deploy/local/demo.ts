/**
 * `make demo`: the customer-service team on real processes, with a control plane: every agent registers through its own
 * sidecar, operators use reachctl, the shop's other systems join as they are, each in its own protocol, and in the end the
 * control plane and NATS are killed and nobody who calls notices.
 */
import { play } from './play.ts';
import { RegisteredTeam } from './registered-team.ts';
import { badPush } from './scenes/bad-push.ts';
import { controlPlaneLoss } from './scenes/control-plane-loss.ts';
import { joined } from './scenes/joined.ts';
import { otherSystems } from './scenes/other-systems.ts';
import { shifted } from './scenes/shifted.ts';
import { streamed } from './scenes/streamed.ts';

await play(new RegisteredTeam(), ', all of them registered', [
  ['joined', 'A third order desk registers while calls run', joined],
  ['shifted', 'The canary is shifted with reachctl', shifted],
  ['bad_push_refused', 'An operator applies a file with mistakes', badPush],
  ['other_systems', 'Systems that nobody wrote for Agent-Reach, each in the protocol that it speaks', otherSystems],
  ['streamed', 'A reply is shown while it is written', streamed],
  ['control_plane_loss', '(g) Control plane and NATS are killed while calls run', controlPlaneLoss],
]);
