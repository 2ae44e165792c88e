/** `make demo-standalone`: a customer-service team on real processes, every sidecar with the same table file, no server anywhere. */
import { FileTeam } from './file-team.ts';
import { play } from './play.ts';

await play(new FileTeam(), ', and one table file for all', []);
