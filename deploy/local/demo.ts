/**
 * `make demo`: the customer-service team on real processes, with a control plane: every agent registers through its own
 * sidecar, operators use reachctl, the shop's other systems join as they are, each in its own protocol, messages are sent whose
 * workers die, and in the end the control plane and NATS are killed and nobody who calls notices.
 */
import { teamText } from './files.ts';
import { play } from './play.ts';
import { QUICK, RegisteredTeam } from './registered-team.ts';
import { ownNats } from './registry.ts';
import { accounted } from './scenes/accounted.ts';
import { badPush } from './scenes/bad-push.ts';
import { byRule } from './scenes/by-rule.ts';
import { controlPlaneLoss } from './scenes/control-plane-loss.ts';
import { inDoubt } from './scenes/in-doubt.ts';
import { joined } from './scenes/joined.ts';
import { natsAway } from './scenes/nats-away.ts';
import { oneTrace } from './scenes/one-trace.ts';
import { oneCopy } from './scenes/one-copy.ts';
import { otherSystems } from './scenes/other-systems.ts';
import { shifted } from './scenes/shifted.ts';
import { streamed } from './scenes/streamed.ts';
import { told } from './scenes/told.ts';

await play(new RegisteredTeam(teamText(), ownNats, QUICK), ', all of them registered', [
  ['joined', 'A third order desk registers while calls run', joined],
  ['shifted', 'The canary is shifted with reachctl', shifted],
  ['bad_push_refused', 'An operator applies a file with mistakes', badPush],
  ['other_systems', 'Systems that nobody wrote for Agent-Reach, each in the protocol that it speaks', otherSystems],
  ['streamed', 'A reply is shown while it is written', streamed],
  ['told', 'A task is given away: accepted, received, done', told],
  ['one_copy', 'B dies with the message, C gives up waiting and sends it again, twice', oneCopy],
  ['in_doubt', 'An agent is killed at work that may be begun once at most', inDoubt],
  ['stored_on_disk', 'NATS is killed while messages are sent', natsAway],
  ['by_rule', 'Rules say where messages go', byRule],
  ['one_trace', 'One call goes through everybody, and its trace is whole', oneTrace],
  ['nothing_lost', 'All messages are counted', accounted],
  ['control_plane_loss', '(g) Control plane and NATS are killed while calls run', controlPlaneLoss],
]);
