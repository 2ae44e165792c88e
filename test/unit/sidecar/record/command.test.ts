import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { createLog } from '../../../../base/log.ts';
import { orderRecording } from '../../../../sidecar/record/command.ts';
import { runReplay, type ReplayCommand } from '../../../../sidecar/replay/command.ts';
import { type Started, startSidecar } from '../../../../sidecar/sidecar.ts';
import { MARK } from '../../../support/credential-mark.ts';

const settings = (more: string): string => `
sidecar:
  name: s1
  listen: 127.0.0.1:0
  anonymous: crm.web.1
  operator_token: ${MARK}-operator
${more}
contracts:
  - {name: crm.order.query, version: 2.0.0, description: Orders., acl: public, execution: idempotent}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0], endpoint: {type: mock, latency: 1ms}}
  - {agent_id: crm.order.2, offers: [crm.order.query@2.0.0], endpoint: {type: mock, latency: 1ms}}
`;
const RECORDING = '  recording: {on: false, share: 100%, cpu: 100%, keep: {headers: [], query: [], json: [/n, /agent, /payload/n]}}';

async function started(t: Test, more: string): Promise<{ readonly sidecar: Started; readonly folder: string }> {
  const folder = mkdtempSync(join(tmpdir(), 'reach-recording-'));
  const file = join(folder, 'sidecar.yaml');
  writeFileSync(file, settings(more));
  const sidecar = await startSidecar(file, createLog({ level: 'silent', to: 'stderr', service: 's1' }));
  t.teardown(async () => {
    await sidecar.stop(0);
    rmSync(folder, { recursive: true, force: true });
  });
  return { sidecar, folder };
}

const at = ({ config, url }: Started): typeof config => ({ ...config, listen: { host: '127.0.0.1', port: Number(new URL(url).port) } });

function command(lines: string[], more: Partial<ReplayCommand> = {}): ReplayCommand {
  return {
    withFile: null,
    sets: [],
    json: false,
    limit: null,
    call: null,
    send: null,
    token: null,
    columns: 120,
    write: (line) => lines.push(line),
    ...more,
  };
}

t.test('a live sidecar records when its operator says so, and what it has recorded is replayed and sent anew by the command', async (t) => {
  const { sidecar, folder } = await started(t, RECORDING);
  const invoke = async (n: number): Promise<number> => {
    const answer = await fetch(`${sidecar.url}/v1/invoke/crm.order.query`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ n }),
    });
    await answer.arrayBuffer();
    return answer.status;
  };
  t.equal(await invoke(0), 200);
  t.match(await orderRecording(at(sidecar), 'status', null), { isGood: true, words: /^not recording: 0 calls so far/ });
  t.match(await orderRecording(at(sidecar), 'start', null), { isGood: true, words: /^recording 100 % of the traces: 0 calls/ });
  for (let n = 1; n <= 20; n++) t.equal(await invoke(n), 200);
  t.match(await orderRecording(at(sidecar), 'stop', null), { isGood: true, words: /^not recording: 20 calls so far; \d+ bytes in / });
  await invoke(21);
  for (const [authorization, status] of [
    ['', 403],
    ['Bearer other', 403],
  ] as const) {
    const answer = await fetch(`${sidecar.url}/v1/recording`, { headers: { authorization } });
    t.equal(answer.status, status);
  }
  const odd = await fetch(`${sidecar.url}/v1/recording`, {
    method: 'POST',
    headers: { authorization: `Bearer ${MARK}-operator`, 'content-type': 'application/json' },
    body: JSON.stringify({ on: true, share: 3 }),
  });
  t.equal(odd.status, 422);
  const health = (await (await fetch(`${sidecar.url}/v1/health`)).json()) as { sandbox?: boolean };
  t.equal(health.sandbox, true, 'all its providers are mocks');

  const recordings = join(folder, '.reach', 's1', 'recordings');
  t.equal(readdirSync(recordings).length, 1);
  const lines: string[] = [];
  t.equal(await runReplay(recordings, command(lines)), 0);
  t.strictSame(lines, ['20 calls: 20 are decided as they were recorded, bit by bit']);
  const changed: string[] = [];
  t.equal(await runReplay(recordings, command(changed, { sets: ['timeout=0.1ms'] })), 2);
  t.match(changed.join(), /--set/);
  const json: string[] = [];
  t.equal(await runReplay(recordings, command(json, { sets: ['load=primary_backup'], json: true })), 1);
  t.match(JSON.parse(json.join('')), { calls: 20, identical: 20, broken: 0, changes: ['--set load=primary_backup'] });
  const both: string[] = [];
  await runReplay(recordings, command(both, { call: '3' }));
  t.match(both.join('\n'), /call 3, trace [0-9a-f]{32}: crm\.order\.query/);
  const sent: string[] = [];
  t.equal(await runReplay(recordings, command(sent, { send: 'sandbox' })), 0, sent.join('\n'));
  t.match(sent[0], '20 requests sent to sandbox: 20 answered as they were recorded, 0 otherwise, 0 REPLAY_MISS');
  const there: string[] = [];
  await runReplay(recordings, command(there, { send: sidecar.url, limit: '5' }));
  t.match(there[0], /^5 requests sent to http:\/\/127\.0\.0\.1:\d+: /);
});

t.test('without settings for it nothing is recorded, and it is said why', async (t) => {
  const { sidecar } = await started(t, '');
  t.match(await orderRecording(at(sidecar), 'start', null), { isGood: false, words: /no recording: say under sidecar\.recording\.keep/ });
  const answer = await fetch(`${sidecar.url}/v1/recording`, { headers: { authorization: `Bearer ${MARK}-operator` } });
  t.equal(answer.status, 409);
});
