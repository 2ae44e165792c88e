/** Workers of a fleet for tests of messages: their tables, a sidecar in a process of its own, and what must hold when all is done. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Test } from 'tap';
import { TestAgent } from './agent.ts';
import type { Fleet } from './fleet.ts';
import { assertQuiet, type Base } from './invariants.ts';
import { CALLER, type Rig, TOKEN } from './rig.ts';
import { waitUntil } from './settle.ts';
import { type Program, startProgram } from './sockets.ts';

export const WORK = 'crm.order.query';
/** A sender that may submit as fast as a test can. */
export const FAST = '  messages: {rate: {per_sec: 100000, burst: 100000}}\n';
/** The table of a sidecar without agents. */
export const NONE = 'contracts: []\nproviders: []\n';

/** Agents behind a sidecar that all offer `WORK`. @param more fields of the contract, each with a comma before it */
export function workTable(sidecar: string, agents: readonly (readonly [string, TestAgent])[], execution: string, more = ''): string {
  const providers = agents.map(
    ([id, agent]) => `  - {agent_id: ${id}, offers: [${WORK}@1.0.0], via: ${sidecar}, endpoint: {type: http, address: "${agent.url}"}}\n`,
  );
  return `contracts: [{name: ${WORK}, version: 1.0.0, description: x, acl: public, execution: ${execution}${more}}]\nproviders:\n${providers.join('')}`;
}

export async function agentOf(t: Test, name: string, behaviour?: Parameters<typeof TestAgent.listen>[1]): Promise<TestAgent> {
  const agent = await TestAgent.listen(name, behaviour);
  t.teardown(() => agent.close());
  return agent;
}

/** A sidecar in a process of its own, which may be started again in the same folder. Its callers are those of a `Rig`. */
export function workerProcess(t: Test, fleet: Fleet, name: string, table: string, settings = ''): { start(): Program } {
  const folder = mkdtempSync(join(tmpdir(), 'reach-worker-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, 'table.yaml'), table);
  writeFileSync(
    join(folder, 'sidecar.yaml'),
    `sidecar:\n  name: ${name}\n  listen: 127.0.0.1:0\n  table: ./table.yaml\n  log: {level: info}\n  callers: [{agent: ${CALLER}, token: ${TOKEN}}]\n  mesh: {listen: "127.0.0.1:0", token: token-of-the-mesh}\n${fleet.registryLines()}${settings}`,
  );
  return {
    start: () => {
      const program = startProgram('sidecar/main.ts', ['run', join(folder, 'sidecar.yaml')]);
      t.teardown(async () => {
        program.signal('SIGCONT');
        program.signal('SIGKILL');
        await program.ended();
      });
      return program;
    },
  };
}

/** Nothing is left in the queue or in hand, nothing open, and the agents were asked as often as said. */
export async function finishFleet(
  t: Test,
  before: Base,
  fleet: Fleet,
  rigs: readonly Rig[],
  counts: readonly (readonly [TestAgent, number])[],
): Promise<void> {
  // A result is told before its message is acknowledged.
  await fleet.emptied(5_000).catch(() => undefined);
  t.equal(await fleet.queued(), 0, 'nothing is left in the queue');
  for (const rig of rigs) {
    await waitUntil('no message is in hand', () => (rig.started.front.work?.inHand ?? 0) === 0, 5_000).catch(() => undefined);
    await waitUntil('calls under way have ended', () => rig.quiet.inFlight() === 0, 5_000).catch(() => undefined);
    t.equal(rig.started.front.work?.inHand, 0, 'no message is in hand');
    await rig.stop();
  }
  for (const [agent] of counts) await agent.close();
  await fleet.plane.control.stop(0);
  await fleet.bus.close();
  await fleet.nats.stop();
  await assertQuiet(t, {
    before,
    engines: rigs.map((rig) => rig.quiet),
    providers: counts.map(([agent, expected]) => ({ name: agent.name, count: () => agent.executions, expected })),
  });
}
