import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { createLog } from '../../../../base/log.ts';
import { orderRecording } from '../../../../sidecar/record/command.ts';
import { readRecording } from '../../../../sidecar/record/reading.ts';
import { NO_CHANGES } from '../../../../sidecar/replay/changes.ts';
import { replay } from '../../../../sidecar/replay/replay.ts';
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

async function started(t: Test, more: string, isWhole = false): Promise<{ readonly sidecar: Started; readonly folder: string }> {
  const folder = mkdtempSync(join(tmpdir(), 'reach-recording-'));
  const file = join(folder, 'sidecar.yaml');
  writeFileSync(file, isWhole ? more : settings(more));
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
  const alone: string[] = [];
  await runReplay(recordings, command(alone, { call: '3', json: true }));
  t.match(JSON.parse(alone.join('')), { call: 3, asked: 'crm.order.query', differences: [] });
  for (const [vain, words] of [
    [{ send: sidecar.url, sets: ['load=primary_backup'] }, /--set and --with change nothing at another sidecar/],
    [{ send: sidecar.url, withFile: join(folder, 'sidecar.yaml') }, /--set and --with/],
    [{ send: 'sandbox', call: '3' }, /--send decides none/],
    [{ send: sidecar.url, call: '3' }, /--send decides none/],
    [{ limit: '1.5' }, /a whole number above 0/],
  ] as const) {
    const said: string[] = [];
    t.equal(await runReplay(recordings, command(said, vain)), 2);
    t.match(said, [words]);
    t.equal(said.length, 1);
  }
  const sent: string[] = [];
  t.equal(await runReplay(recordings, command(sent, { send: 'sandbox' })), 0, sent.join('\n'));
  t.match(sent[0], '20 requests sent to sandbox: 20 answered as they were recorded, 0 otherwise, 0 REPLAY_MISS');
  const there: string[] = [];
  await runReplay(recordings, command(there, { send: sidecar.url, limit: '5' }));
  t.match(there[0], /^5 requests sent to http:\/\/127\.0\.0\.1:\d+: /);
});

/** Everything at once: turns, slow starts, breakers, busy ones, canaries with conversations, fallbacks, and providers that fail. */
const BUSY = `
sidecar:
  name: s1
  listen: 127.0.0.1:0
  anonymous: crm.web.1
  recording: {share: 100%, cpu: 100%, keep: {headers: [], query: [], json: []}}
contracts:
  - {name: crm.order.query, version: 2.0.0, description: Orders., acl: public, execution: idempotent, timeout: 60ms, deadline: 200ms, input: {type: object}, breaker: {min_calls: 10, open: 300ms, failure_ratio: 40%}, fallback: [{capability: crm.note.read}]}
  - {name: crm.note.read, version: 1.0.0, description: Notes., acl: public, execution: idempotent, affinity: {from: /session}, timeout: 50ms}
  - {name: crm.note.read, version: 1.1.0, description: Notes., acl: public, execution: idempotent, affinity: {from: /session}, timeout: 50ms}
policies:
  - {capability: crm.note.read, canary: {"1.1.0": 30%}}
  - {capability: crm.order.query, slow_start: 3s, load: round_robin}
providers:
${[1, 2, 3, 4].map((i) => `  - {agent_id: crm.order.${i}, offers: [crm.order.query@2.0.0], weight: ${i}, limits: {per_provider: 6}, endpoint: {type: mock, latency: ${i * 12}ms, error_rate: ${i * 8}%}}`).join('\n')}
  - {agent_id: crm.note.1, offers: [crm.note.read@1.0.0], endpoint: {type: mock, latency: 3ms}}
  - {agent_id: crm.note.2, offers: [crm.note.read@1.1.0], endpoint: {type: mock, latency: 3ms, error_rate: 20%}}
  - {agent_id: crm.note.3, offers: [crm.note.read@1.1.0], endpoint: {type: mock, latency: 3ms}}
`;

t.test(
  'by the clock of the machine, over HTTP, with streams, keys, budgets and callers that leave, every decision is the same again',
  async (t) => {
    const { sidecar, folder } = await started(t, BUSY, true);
    for (let round = 0; round < 12; round++)
      await Promise.all(
        Array.from({ length: 25 }, async (_, i) => {
          const headers: Record<string, string> = { 'content-type': 'application/json' };
          if (i % 5 === 0) headers['idempotency-key'] = `order-${round % 7}-${i}`;
          if (i === 4) Object.assign(headers, { 'reach-budget': 'a=30ms', 'reach-step': 'a' });
          const to = `/v1/${i % 7 === 0 ? 'stream' : 'invoke'}/${i % 3 === 0 ? 'crm.note.read' : 'crm.order.query'}`;
          const body = JSON.stringify({ n: i, session: `s${(round * 25 + i) % 17}` });
          try {
            const answer = await fetch(sidecar.url + to, {
              method: 'POST',
              headers,
              body,
              signal: i % 11 === 0 ? AbortSignal.timeout(9) : null,
            });
            await answer.arrayBuffer();
          } catch {
            // The caller has left.
          }
        }),
      );
    await sidecar.stop(1_000);
    const recording = readRecording(join(folder, '.reach', 's1', 'recordings'));
    if (typeof recording === 'string') throw new Error(recording);
    const report = await replay(recording, { changes: NO_CHANGES, limit: 1_000 });
    t.strictSame(
      report.calls.filter(({ broken }) => broken !== null).map(({ number, broken }) => `${number}: ${broken}`),
      [],
    );
    t.ok(report.sums.identical > 280, `${report.sums.identical} calls`);
  },
);

t.test('without settings for it nothing is recorded, and it is said why', async (t) => {
  const { sidecar } = await started(t, '');
  t.match(await orderRecording(at(sidecar), 'start', null), { isGood: false, words: /no recording: say under sidecar\.recording\.keep/ });
  const answer = await fetch(`${sidecar.url}/v1/recording`, { headers: { authorization: `Bearer ${MARK}-operator` } });
  t.equal(answer.status, 409);
});
