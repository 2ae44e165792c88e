import { RegisteredTeam } from './registered-team.ts';
import { FRONT, INTENT } from './roster.ts';
import { otherSystems } from './scenes/other-systems.ts';
import { streamed } from './scenes/streamed.ts';
import { Storyteller } from './story.ts';
const team = new RegisteredTeam();
const tell = new Storyteller((l) => console.log(l));
try {
  await team.start([FRONT, INTENT], (l) => tell.say(l));
  console.log(await otherSystems(team, tell));
  console.log(await streamed(team, tell));
} catch (e) { console.log(e); console.log(team.logs().map(l=>l.name+': '+l.said).join('\n')); }
console.log(team.casualties());
console.log('killed', await team.stop());
tell.say('end');
console.log(tell.failures);
