import { RecordedWorld } from '../../../support/recorded-world.ts';
import { readRecording } from '../../../../sidecar/record/reading.ts';
import { replay } from '../../../../sidecar/replay/replay.ts';
import { NO_CHANGES, readChanges } from '../../../../sidecar/replay/changes.ts';
import { readFileSync } from 'node:fs';


import { filled, filledText } from '../../../../sidecar/lab/templates.ts';
import { readScenario } from '../../../../sidecar/lab/read-scenario.ts';
const text = readFileSync(process.argv[2] as string, 'utf8');
const most = Number(process.argv[3] ?? 60);
const reading = readScenario(text, 'x');
if ('problems' in reading) throw new Error(JSON.stringify(reading.problems));
const w = new RecordedWorld(text);
const t0 = process.cpuUsage();
for (const step of reading.scenario.steps) {
  if (step.afterMs) await w.world.clock.advance(step.afterMs);
  if (step.kind === 'wait') await w.world.clock.advance(step.ms);
  if (step.kind === 'table') w.world.install(step.document, 'x');
  if (step.kind !== 'call') continue;
  let running: Promise<unknown>[] = [];
  for (let n = 1; n <= Math.min(most, step.times); n++) {
    const words = { n, session: 's' + (n % 7), caller: step.callers[0] as string, random: w.world.ids } as never;
    const headers: Record<string, string> = {};
    for (const [k, v] of Object.entries(step.headers)) headers[k] = filledText(v, words);
    if (step.deadlineMs !== null) headers['reach-deadline-ms'] = String(step.deadlineMs);
    running.push(w.call({ name: filledText(step.asked[0] as string, words), caller: step.callers[0] as string, body: filled(step.payload, words), headers, stream: step.stream, ...(step.cancelAfterMs === null ? {} : { leaveAfterMs: step.cancelAfterMs }) }));
    if (running.length >= Math.max(1, step.parallel)) { await Promise.all(running); running = []; if (step.everyMs) await w.world.clock.advance(step.everyMs); }
  }
  await Promise.all(running);
}
await w.written();
console.log('record', process.cpuUsage(t0).user, JSON.stringify(w.recorder.counts));
const rec = readRecording(w.folder);
if (typeof rec === 'string') throw new Error(rec);
const t1 = process.cpuUsage();
const changes = process.argv[4] ? readChanges(null, [process.argv[4]]) : NO_CHANGES;
if (Array.isArray(changes)) throw new Error(changes.join());
const report = await replay(rec, { changes: changes as any, limit: Infinity });
console.log('replay', process.cpuUsage(t1), report.calls.length, [...report.unfit]);
const broken = report.calls.filter((c) => c.broken);
console.log('broken', broken.length, broken.slice(0, 3).map((c) => [c.number, c.broken]));
const diff: Record<string, number> = {};
for (const c of report.calls) diff[c.miss ? 'miss ' + c.miss.what + ' ' + c.miss.recorded.slice(0,40) : c.differences.join()] = (diff[c.miss ? 'miss ' + c.miss.what+ ' ' + c.miss.recorded.slice(0,40)  : c.differences.join()] ?? 0) + 1;
console.log(diff);
const codes: Record<string, number> = {};
for (const c of report.calls) codes[c.record.decision.code] = (codes[c.record.decision.code] ?? 0) + 1;
console.log(codes, rec.files[0]?.calls[0] && JSON.stringify(rec.files[0].calls[0]).length);
if (process.env.SHOW) console.log(JSON.stringify(rec.files[0]?.calls[0], null, 1));
if (broken[0]) console.log(JSON.stringify(broken[0].record, null, 1).slice(0, 6000));
w.remove();
