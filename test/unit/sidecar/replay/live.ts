import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLog } from '../../../../base/log.ts';
import { startSidecar } from '../../../../sidecar/sidecar.ts';
import { readRecording } from '../../../../sidecar/record/reading.ts';
import { replay } from '../../../../sidecar/replay/replay.ts';
import { NO_CHANGES } from '../../../../sidecar/replay/changes.ts';
const folder = mkdtempSync(join(tmpdir(), 'reach-live-'));
const file = join(folder, 's.yaml');
writeFileSync(file, `
sidecar:
  name: s1
  listen: 127.0.0.1:0
  anonymous: crm.web.1
  recording: {share: 100%, cpu: 100%, keep: {headers: [], query: [], json: []}}
contracts:
  - {name: crm.order.query, version: 2.0.0, description: Orders., acl: public, execution: idempotent, timeout: 60ms, deadline: 200ms, input: {type: object}, breaker: {min_calls: 10, open: 300ms, failure_ratio: 40%}, fallback: [{capability: crm.note.read}]}
  - {name: crm.note.read, version: 1.0.0, description: N., acl: public, execution: idempotent, affinity: {from: /session}, timeout: 50ms}
  - {name: crm.note.read, version: 1.1.0, description: N., acl: public, execution: idempotent, affinity: {from: /session}, timeout: 50ms}
policies:
  - {capability: crm.note.read, canary: {"1.1.0": 30%}}
  - {capability: crm.order.query, slow_start: 3s, load: round_robin}
providers:
${[1, 2, 3, 4].map((i) => `  - {agent_id: crm.order.${i}, offers: [crm.order.query@2.0.0], weight: ${i}, limits: {per_provider: 6}, endpoint: {type: mock, latency: ${i * 12}ms, error_rate: ${i * 8}%}}`).join('\n')}
  - {agent_id: crm.note.1, offers: [crm.note.read@1.0.0], endpoint: {type: mock, latency: 3ms}}
  - {agent_id: crm.note.2, offers: [crm.note.read@1.1.0], endpoint: {type: mock, latency: 3ms, error_rate: 20%}}
  - {agent_id: crm.note.3, offers: [crm.note.read@1.1.0], endpoint: {type: mock, latency: 3ms}}
`);
const s = await startSidecar(file, createLog({ level: 'silent', to: 'stderr', service: 's1' }));
const codes: Record<string, number> = {};
for (let round = 0; round < 60; round++) {
  await Promise.all(Array.from({ length: 25 }, async (_, i) => {
    const name = i % 3 === 0 ? 'crm.note.read' : 'crm.order.query';
    const signal = i % 11 === 0 ? AbortSignal.timeout(9) : null;
    try {
      const stream = i % 7 === 0;
      const a = await fetch(`${s.url}/v1/${stream ? 'stream' : 'invoke'}/${name}`, { method: 'POST', signal, headers: { 'content-type': 'application/json', ...(i % 5 === 0 ? { 'idempotency-key': `k${round % 7}-${i}` } : {}), ...(i === 4 ? { 'reach-budget': 'a=30ms', 'reach-step': 'a' } : {}) }, body: JSON.stringify({ n: i, session: `s${(round * 25 + i) % 17}` }) });
      await a.arrayBuffer();
      codes[a.status] = (codes[a.status] ?? 0) + 1;
    } catch { codes['gone'] = (codes['gone'] ?? 0) + 1; }
  }));
}
await s.stop(1000);
const r = readRecording(join(folder, '.reach/s1/recordings'));
if (typeof r === 'string') throw new Error(r);
const report = await replay(r, { changes: NO_CHANGES, limit: Infinity });
console.log(codes, report.sums, [...report.unfit]);
const c: Record<string, number> = {};
for (const x of report.calls) c[x.record.decision.code] = (c[x.record.decision.code] ?? 0) + 1;
console.log(c);
const broken = report.calls.filter((x) => x.broken !== null);
for (const b of broken.slice(0, 6)) { console.log(b.number, b.record.asked, b.record.stream, b.broken); }
if (broken[0]) console.log(JSON.stringify(broken[0].record.decision.trace.map((l) => `${l.at_ms} ${l.stage}.${l.reason} ${l.words}`), null, 1), JSON.stringify(broken[0].record.stretches), JSON.stringify(broken[0].record.left));
process.exit(0);
