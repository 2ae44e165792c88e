/**
 * One call, and everybody works for it: every agent that is there, each protocol that somebody speaks, a stream, and tasks that are
 * given away and come back as results. One trace id shows all of it, with nothing missing; `reachctl trace` says so, and the API.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { RegisteredTeam } from '../registered-team.ts';
import { CASEWORK } from '../roster.ts';
import type { Storyteller } from '../story.ts';
import { SPEAK, SYSTEMS, TEXT } from '../systems.ts';
import { callFrom, type Counts, linesOf, outcome } from './scene.ts';

const SETTLE = 'crm.case.settle';
const TOLD_MS = 10_000;
/** Of the picture. */
const SHOWN_LINES = 30;
const TEXTS = { text: 'Where is my order 1042?', question: 'When does it ship?' };
/** What each capability is asked; those that are given as messages stand in MESSAGES. */
const PAYLOADS: Readonly<Record<string, unknown>> = {
  'nlp.intent.detect': TEXTS,
  'nlp.sentiment.analyze': TEXTS,
  'kb.article.search': TEXTS,
  'crm.order.query': { order: '1042' },
  'nlp.reply.write': { facts: {} },
  ...Object.fromEntries(SYSTEMS.map(({ capability, payload }) => [capability, payload])),
};
const MESSAGES: Readonly<Record<string, unknown>> = {
  'crm.customer.note': { note: 'one-trace' },
  'agent.message.handle': { sequence: 'one-trace', part: 0 },
};

interface Trace {
  readonly complete: boolean;
  readonly gaps: readonly string[];
  readonly under_way: readonly string[];
  readonly orphans: number;
  readonly spans: readonly {
    readonly stage: string;
    readonly capability: string;
    readonly code: number;
    readonly depth: number;
    readonly way?: string;
    readonly provider?: string;
    readonly sidecar: string;
  }[];
}

/** Somebody who is online, and one thing that it offers. */
interface There {
  readonly agent: string;
  readonly capability: string;
  readonly range: string;
}

export async function oneTrace(team: RegisteredTeam, tell: Storyteller): Promise<Counts> {
  await team.join(CASEWORK);
  const there = await onlineWith(team, [...Object.keys(PAYLOADS), ...Object.keys(MESSAGES)]);
  const asked = there.filter(({ capability }) => capability in PAYLOADS);
  const given = there.filter(({ capability }) => capability in MESSAGES);
  const questions = [
    ...asked.map(({ agent, capability, range }) => ({
      way: 'invoke',
      target: `${capability}@${range}`,
      payload: PAYLOADS[capability],
      headers: { 'reach-pin': agent, 'x-session': `trace-${agent}` },
    })),
    { way: 'rpc', target: TEXT.capability, payload: TEXT.payload, headers: {} },
    { way: 'stream', target: SPEAK, payload: { text: 'It ships tomorrow', pause_ms: 5 }, headers: {} },
  ];
  const messages = given.map(({ agent, capability }) => ({
    message_type: 'task_request',
    target_agent: agent,
    ...(capability === 'agent.message.handle' ? {} : { target: capability }),
    payload: MESSAGES[capability],
  }));
  const result = await callFrom(team, SETTLE, { questions, messages }, 'one-trace');
  const { codes, ends } = (result.data ?? {}) as { codes?: readonly number[]; ends?: readonly string[] };
  const id = result.trace_id;
  tell.say(
    `the front calls ${SETTLE} once: ${outcome(result)} after ${result.elapsed_ms.toFixed(0)} ms; ${asked.length} agents asked, ${given.length} given a task`,
  );
  tell.equal(
    'answers',
    codes,
    questions.map(() => 0),
  );
  tell.equal(
    'ends of the tasks',
    ends,
    messages.map(() => 'done'),
  );

  const trace = await told(team, id);
  const ran = await team.registry.reachctl('trace', id, '--why');
  const [picture = '', reasons = ''] = ran.stdout.split(/^why$/m);
  const lines = picture.trimEnd().split('\n');
  tell.say(`$ reachctl trace ${id} --why`);
  linesOf(tell, lines.slice(0, SHOWN_LINES).join('\n'));
  if (lines.length > SHOWN_LINES) tell.say(`  … and ${lines.length - SHOWN_LINES} more lines`);
  linesOf(tell, reasons.slice(Math.max(0, reasons.indexOf('- where the time went'))));
  const protocols = protocolsOf(trace);
  tell.say(
    `${trace.spans.length} spans of ${new Set(trace.spans.map(({ sidecar }) => sidecar)).size} sidecars; protocols: ${protocols.join(', ')}`,
  );

  tell.check('reachctl trace', ran.stdout.split('\n')[0], 'complete', ran.code === 0 && /^(?:.* )?complete$/m.test(picture));
  tell.equal('gaps', trace.gaps, []);
  tell.equal('what is still under way', trace.under_way, []);
  tell.equal('orphans', trace.orphans, 0);
  tell.equal('beginnings', trace.spans.filter(({ depth }) => depth === 0).length, 1);
  const served = new Set(trace.spans.filter(({ stage, code }) => stage === 'attempt' && code === 0).map(({ provider }) => provider));
  tell.equal(
    'agents that are there and not in the trace',
    there.filter(({ agent }) => !served.has(agent)).map(({ agent }) => agent),
    [],
  );
  tell.equal(
    'protocols that are missing in the trace',
    ['channel', 'grpc', 'http', 'jsonrpc', 'local', 'mesh', 'message', 'nats', 'stream'].filter((each) => !protocols.includes(each)),
    [],
  );
  const stages = new Set(trace.spans.map(({ stage }) => stage));
  tell.equal(
    'stages of messages that are missing',
    ['send', 'queue', 'deliver', 'result', 'inbox'].filter((each) => !stages.has(each)),
    [],
  );
  return { trace_id: id, trace: { spans: trace.spans.length, gaps: trace.gaps.length, orphans: trace.orphans, protocols } };
}

/** Each agent that takes calls, with the first of these that it offers. */
async function onlineWith(team: RegisteredTeam, capabilities: readonly string[]): Promise<There[]> {
  const { providers } = await team.registry.get<{
    providers: readonly { readonly agent: string; readonly status: string; readonly drain: boolean; readonly offers: readonly string[] }[];
  }>('/v1/providers');
  return providers
    .filter(({ status, drain }) => status === 'online' && !drain)
    .flatMap(({ agent, offers }) => {
      const offer = offers.map((each) => each.split('@') as [string, string]).find(([name]) => capabilities.includes(name));
      return offer === undefined ? [] : [{ agent, capability: offer[0], range: offer[1] }];
    });
}

/** Each sidecar tells within a second or two. */
async function told(team: RegisteredTeam, id: string): Promise<Trace> {
  const end = performance.now() + TOLD_MS;
  for (;;) {
    const trace = await team.registry.get<Trace>(`/v1/traces/${id}`).catch(() => null);
    if (trace?.complete === true || performance.now() > end)
      return trace ?? { complete: false, gaps: ['no trace'], under_way: [], orphans: 0, spans: [] };
    await sleep(200);
  }
}

function protocolsOf({ spans }: Trace): readonly string[] {
  const found = new Set(spans.filter(({ stage, code }) => stage === 'attempt' && code === 0).map(({ way }) => way ?? '?'));
  if (spans.some(({ stage, code }) => stage === 'deliver' && code === 0)) found.add('message');
  if (spans.some(({ stage, capability, code }) => stage === 'outbound' && capability === SPEAK && code === 0)) found.add('stream');
  return [...found].sort();
}
