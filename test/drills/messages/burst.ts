/**
 * `make drill-burst`: 200 agents submit 50,000 messages as fast as 5 s allow, half of them from ten agents that go far above their
 * quota. Those are told to wait (429) and nothing else: what was accepted is carried out, and no process grows without bound.
 */
import { readFileSync } from 'node:fs';
import { runDrill, type Stage } from './drill.ts';
import type { Gate } from './submitter.ts';

const AGENTS = 200;
const GREEDY = 10;
const COUNT = 50_000;
const SECONDS = 5;
const QUOTA = { per_sec: 100, burst: 100 };
/** Resident, of one sidecar: with everything that waits in the queue and not in it. */
const MOST_MIB = 512;

const callers = Array.from({ length: AGENTS }, (_, i) => ({ agent: `drill.crowd.a${i}`, token: `token-of-the-crowd-${i}` }));

/** Every second message comes from one of the greedy ones. */
function crowd(stage: Stage): readonly Gate[] {
  const urls = stage.gates().map(({ url }) => url);
  return Array.from({ length: (AGENTS - GREEDY) * 2 }, (_, i) => {
    const index = i % 2 === 0 ? GREEDY + i / 2 : ((i - 1) / 2) % GREEDY;
    const { agent, token } = callers[index] as (typeof callers)[number];
    return { name: agent, url: urls[index % urls.length] as string, token };
  });
}

function peakMib(stage: Stage): { readonly name: string; readonly mib: number }[] {
  return [...stage.workers, ...stage.senders].map((member) => {
    const { pid } = stage.team.seat(member).sidecar;
    const peak = /VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1] ?? '0';
    return { name: member.sidecar, mib: Math.round(Number(peak) / 1_024) };
  });
}

await runDrill({
  name: 'burst',
  words: `${AGENTS} agents submit ${COUNT} messages in ${SECONDS} s, half of them from ${GREEDY}`,
  quota: `{per_sec: ${QUOTA.per_sec}, burst: ${QUOTA.burst}} as it comes`,
  team: { workMs: 2, messages: { rate: QUOTA }, callers },
  workers: 3,
  senders: 2,
  submit: { ratePerSec: COUNT / SECONDS, count: COUNT, givesUp: true, connections: 2 },
  gates: crowd,
  faults: () => Promise.resolve(),
  settleMs: 300_000,
  expects: ({ accepted, submitter, stage }) => [
    ...(accepted.length < 20_000 ? [`only ${accepted.length} messages were accepted`] : []),
    ...((submitter.refusals['3004'] ?? 0) > 0 ? [] : ['nobody was refused for its rate']),
    ...peakMib(stage).flatMap(({ name, mib }) => (mib > MOST_MIB ? [`sidecar ${name} grew to ${mib} MiB`] : [])),
  ],
  more: ({ submitter, stage }) => ({
    refused_429: submitter.refusals['3004'] ?? 0,
    refused_other: Object.entries(submitter.refusals).reduce((sum, [code, count]) => (code === '3004' ? sum : sum + count), 0),
    submitted_in_s: Math.round(submitter.tookMs / 100) / 10,
    peak_mib: Math.max(...peakMib(stage).map(({ mib }) => mib)),
  }),
});
