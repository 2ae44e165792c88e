/** `make dev-standalone`: the same team as in the standalone demo, up until Ctrl-C, with all that is needed to try it by hand. */
import { FileTeam } from './file-team.ts';
import { stay } from './stay.ts';

await stay(
  new FileTeam(),
  (team) => `The table that all sidecars read; edit it and they follow, break it and they stay with the good one and say so at /v1/health:

  ${team.tableFile}
`,
);
