/** Agents made with the SDKs, in both languages and by both ways of serving, with callers in both. */
import t, { type Test } from 'tap';
import { startPython } from '../support/peers.ts';
import { Rig } from '../support/rig.ts';
import { startNodeAgent } from './node-agent.ts';
import { CALLERS, type Language, passesOn, servesAsItShould, tableOf, tokenOf } from './served.ts';

t.setTimeout(110_000);

/** An agent on a port is started first, for the table; one on the channel when there is a sidecar to dial. @returns its port, 0 = channel */
async function start(t: Test, language: Language, url: string, port: number | null): Promise<number> {
  const token = tokenOf(language);
  if (language === 'node') return (await startNodeAgent(t, url, token, port)).port;
  return (await startPython(t, 'test/sdk/python_agent.py', [url, token, port === null ? 'channel' : String(port)])).port;
}

for (const language of ['node', 'python'] as const) {
  t.test(`a ${language} agent that has dialled in`, async (t) => {
    const rig = await Rig.start(t, { table: tableOf({ [language]: 0 }), callers: CALLERS });
    await start(t, language, rig.url, null);
    await servesAsItShould(t, rig, language);
  });
}

t.test('agents on ports of their own, which need no sidecar to start', async (t) => {
  // They are told the sidecar's address when there is one: so the port is reserved by a first sidecar.
  const first = await Rig.start(t, { table: 'contracts: []\n' });
  const { url } = first;
  await first.stop();
  const ports = { node: await start(t, 'node', url, 0), python: await start(t, 'python', url, 0) };
  const rig = await Rig.start(t, { table: tableOf(ports), callers: CALLERS, listen: new URL(url).host });
  for (const language of ['node', 'python'] as const) await t.test(language, (t) => servesAsItShould(t, rig, language));
  await t.test('node calls python', (t) => passesOn(t, rig, 'node', 'python'));
  await t.test('python calls node', (t) => passesOn(t, rig, 'python', 'node'));
});

t.test('agents of both languages call each other over channels', async (t) => {
  const rig = await Rig.start(t, { table: tableOf({ node: 0, python: 0 }), callers: CALLERS });
  await Promise.all([start(t, 'node', rig.url, null), start(t, 'python', rig.url, null)]);
  await t.test('node calls python', (t) => passesOn(t, rig, 'node', 'python'));
  await t.test('python calls node', (t) => passesOn(t, rig, 'python', 'node'));
});
