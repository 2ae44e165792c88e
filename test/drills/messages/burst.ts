/**
 * `make drill-burst`: 200 agents submit 50,000 messages as fast as 5 s allow, half of them from three agents that go far above their
 * quota. Those are told to wait (429) and nothing else: what was accepted is carried out, and no process grows without bound.
 */
import { readFileSync } from 'node:fs';
import { runDrill } from './drill.ts';
import type { Stage } from './stage.ts';
import type { Gate, Submitter } from './submitter.ts';

const AGENTS = 200;
const GREEDY = 3;
const COUNT = 50_000;
const SECONDS = 5;
const QUOTA = { per_sec: 100, burst: 100 };
/** Requests on one connection that nobody has answered yet: a burst does not wait for answers. */
const PIPELINING = 64;
/** Resident, at the worst moment. What a sidecar holds beyond some 100 MiB is what is under way; the server has the queue and the inboxes. */
const MOST_MIB = { sidecar: 320, control: 320, nats: 512 };

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

type Program = keyof typeof MOST_MIB;

/** The highest of each kind of process. */
function peaksMib({ team, workers, senders }: Stage): Readonly<Record<Program, number>> {
  const { plane, nats } = team.registry;
  return {
    sidecar: Math.max(...[...workers, ...senders].map((member) => peakMib(team.seat(member).sidecar.pid))),
    control: peakMib(plane.pid),
    nats: peakMib(nats.process?.pid ?? 0),
  };
}

function peakMib(pid: number): number {
  const peak = /VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1];
  // Without a figure nothing is known of its bound.
  return peak === undefined ? Number.NaN : Math.round(Number(peak) / 1_024);
}

/** Agents of which more was accepted than their bucket can have given from the first submission to the last answer. */
function aboveQuota({ accepted, tookMs }: Submitter): string[] {
  const counts = new Map<string, number>();
  for (const { gate } of accepted) counts.set(gate, (counts.get(gate) ?? 0) + 1);
  const most = QUOTA.burst + QUOTA.per_sec * (tookMs / 1_000) + 1;
  return [...counts].filter(([, count]) => count > most).map(([agent]) => agent);
}

function refused({ refusals }: Submitter): number {
  return Object.values(refusals).reduce((sum, count) => sum + count, 0);
}

await runDrill({
  name: 'burst',
  words: `${AGENTS} agents submit ${COUNT} messages in ${SECONDS} s, half of them from ${GREEDY}`,
  quota: `{per_sec: ${QUOTA.per_sec}, burst: ${QUOTA.burst}} as it comes`,
  team: { workMs: 2, messages: { rate: QUOTA }, callers },
  workers: 3,
  senders: 2,
  submit: { ratePerSec: COUNT / SECONDS, count: COUNT, givesUp: true, connections: 1, pipelining: PIPELINING },
  gates: crowd,
  faults: () => Promise.resolve(),
  settleMs: 300_000,
  expects: ({ submitter, stage }) => [
    ...((submitter.refusals['3004'] ?? 0) > 0 ? [] : ['nobody was refused for its rate']),
    ...(submitter.accepted.length + refused(submitter) === submitter.sent ? [] : ['not every submission was accepted or refused']),
    ...aboveQuota(submitter).map((agent) => `${agent} got more accepted than its quota`),
    ...Object.entries(peaksMib(stage)).flatMap(([name, mib]) =>
      mib <= MOST_MIB[name as Program] ? [] : [`${name} grew to ${mib} MiB of ${MOST_MIB[name as Program]}`],
    ),
  ],
  more: ({ submitter, stage }) => ({
    refused_429: submitter.refusals['3004'] ?? 0,
    refused_other: refused(submitter) - (submitter.refusals['3004'] ?? 0),
    sent_in_s: Math.round(submitter.sentMs / 100) / 10,
    answered_in_s: Math.round(submitter.tookMs / 100) / 10,
    peak_mib: peaksMib(stage),
    most_mib: MOST_MIB,
  }),
});
