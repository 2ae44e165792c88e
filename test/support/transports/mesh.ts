/**
 * The hop to another sidecar: a second sidecar hosts the agent, whatever protocol that speaks, and the first reaches it through
 * the mesh port.
 */
import { Rig } from '../rig.ts';
import { httpFixture } from './http.ts';
import { peerTable } from './table.ts';
import type { StartedPeer, Teardown, TransportFixture } from './fixture.ts';
import type { Seen } from './behaviour.ts';

const TOKEN = 'mesh-of-the-conformance-suite';

/** @param more what is otherwise than at the fixture itself. */
export function behindMesh(type: string, inner: TransportFixture, more: Partial<TransportFixture> = {}): TransportFixture {
  return { ...inner, knowsPresence: false, ...more, type, start: (t, seen) => start(t, seen, inner) };
}

async function start(t: Teardown, seen: Seen, inner: TransportFixture): Promise<StartedPeer> {
  const agent = await inner.start(t, seen);
  const provider: StartedPeer['provider'] = (behaviour) => [...agent.provider(behaviour), 'via: two'];
  const sidecars = (mesh: string): string => `sidecars: [{name: two, mesh: "${mesh}"}]\n`;
  const host = await Rig.start(t as Parameters<typeof Rig.start>[0], {
    name: 'two',
    meshToken: TOKEN,
    table: peerTable(provider, sidecars('http://127.0.0.1:1')),
    ...(agent.callers === undefined ? {} : { callers: agent.callers }),
    ...(agent.local === undefined ? {} : { local: agent.local }),
  });
  await agent.attach?.(host);
  return {
    provider,
    tableRest: sidecars(host.started.meshUrl as string),
    meshToken: TOKEN,
    host,
    open: () => host.quiet.inFlight(),
    async close() {
      await host.stop();
      await agent.close();
    },
  };
}

export const meshFixture: TransportFixture = behindMesh('mesh', httpFixture);
