/** The provider's end behind the mesh port: the same callers at another sidecar, and this one hosts every agent. */
import { Rig } from '../rig.ts';
import { HttpWay } from './http.ts';
import type { StartedWay, WayFixture } from './way.ts';

const MESH_TOKEN = 'mesh-of-the-ways-in';

export const meshWay: WayFixture = {
  cannot: {},
  async start(t, table): Promise<StartedWay> {
    const test = t as Parameters<typeof Rig.start>[0];
    const sidecars = (mesh: string): string => `sidecars: [{name: two, mesh: "${mesh}"}]\n`;
    const host = await Rig.start(test, { name: 'two', meshToken: MESH_TOKEN, table: table('via: two', sidecars('http://127.0.0.1:1')) });
    const rig = await Rig.start(test, { meshToken: MESH_TOKEN, table: table('via: two', sidecars(host.started.meshUrl as string)) });
    return { rig, others: [host], client: new HttpWay(rig) };
  },
};
