/** What must be true at the end of every scenario, whatever it expects: nothing is left open and nothing is counted twice. */
import type { World } from './world.ts';

/** One sentence for everything that is not as it must be. `issued`: calls that the steps began; those of agents, and messages, come on top. */
export function brokenInvariants(world: World, issued: number): string[] {
  const { witness, engine, health, mock, clock } = world;
  const begun = issued + world.agentCalls.begun + world.delivered;
  const found: string[] = [];
  const must = (what: string, is: number, wanted: number): void => {
    if (is !== wanted) found.push(`${what}: ${is}, must be ${wanted}`);
  };
  must('calls started', witness.callsStarted, begun);
  must('calls ended', witness.callsEnded, begun);
  must('calls that ended twice', witness.endedTwice, 0);
  must('attempts ended', witness.attemptsEnded, witness.attemptsRecorded);
  must('calls in flight by caller', engine.limits.inFlight(), 0);
  for (const provider of new Set([...witness.seen, ...health.providers()]))
    must(`calls in flight at ${provider.agentId}`, provider.inFlight, 0);
  for (const cell of health.cells()) must(`permits out at ${cell.agentId} ${cell.capability}`, cell.limitedInFlight, 0);
  must('exchanges and bodies open at the mocks', mock.open, 0);
  const timer = clock.nextAt();
  if (timer !== null) found.push(`a timer is still set, for ${timer} ms`);
  for (const bug of witness.bugs) found.push(`a fault in the pipeline: ${bug}`);
  return found;
}
