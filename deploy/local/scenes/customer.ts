/** A customer asks why the order has not shipped: five budgeted steps share ten seconds, and each hands on what is left. */
import type { Result } from '../client.ts';
import { FRONT, GENERATION, INTENT, KNOWLEDGE, SENTIMENT } from '../roster.ts';
import type { Storyteller } from '../story.ts';
import type { Team } from '../team.ts';
import type { Counts } from './scene.ts';
import { outcome } from './scene.ts';

const QUESTION = 'Why has my order 1042 still not shipped?';
const TOTAL_MS = 10_000;
const BUDGET = 'intent=1500, sentiment=1000, order=2500, knowledge=3000, generation=2000';

export async function customer(team: Team, tell: Storyteller): Promise<Counts> {
  tell.say(`customer: "${QUESTION}"`);
  tell.say(`${TOTAL_MS / 1_000} s in all; ${BUDGET} (ms)`);
  const { client } = team.seat(FRONT);
  const at = performance.now();
  const leftMs = (): number => Math.floor(TOTAL_MS - (performance.now() - at));

  const step = async (name: string, target: string, payload: unknown): Promise<Result> => {
    const handedMs = leftMs();
    const result = await client.invoke(target, payload, {
      'x-session': 'customer-1',
      'reach-deadline-ms': String(handedMs),
      'reach-deadline-total-ms': String(TOTAL_MS),
      'reach-budget': BUDGET,
      'reach-step': name,
    });
    const allowance = result.decision?.find((line) => line.stage === 'deadline')?.words ?? '';
    tell.say(`${name.padEnd(10)} ${(result.provider ?? '-').padEnd(18)} ${result.elapsed_ms.toFixed(0).padStart(4)} ms   ${allowance}`);
    tell.check(`step ${name}`, outcome(result), 'an answer', result.code === 0 && !result.degraded);
    return result;
  };

  const intent = await step('intent', 'nlp.intent.detect@^1.0', { text: QUESTION });
  const { order: orderId } = intent.data as { order: string };
  const [sentiment, order] = await Promise.all([
    step('sentiment', 'nlp.sentiment.analyze', { text: QUESTION }),
    step('order', 'crm.order.query@^2.0', { order: orderId }),
  ]);
  tell.reasons(order, ['resolve', 'contract', 'choose', 'loops', 'attempt']);
  const knowledge = await step('knowledge', 'kb.article.search', { question: QUESTION, reason: (order.data as { reason: string }).reason });
  const leftForReplyMs = leftMs();
  const reply = await step('generation', 'nlp.reply.write', {
    facts: { sentiment: sentiment.data, order: order.data, knowledge: knowledge.data },
  });
  const tookMs = performance.now() - at;
  const { text, had_ms: hadMs } = reply.data as { text: string; had_ms: number };
  tell.say(`reply: "${text}"`);
  tell.say(`answered after ${tookMs.toFixed(0)} ms of ${TOTAL_MS}; the writer was told that it had ${hadMs} ms`);

  tell.equal('the order asked about', orderId, '1042');
  tell.check('the whole task', Math.round(tookMs), `under ${TOTAL_MS} ms`, tookMs < TOTAL_MS);
  tell.check('time handed to the writer', hadMs, `above 0 and at most the ${leftForReplyMs} ms left`, hadMs > 0 && hadMs <= leftForReplyMs);
  for (const [member, capability] of [
    [INTENT, 'nlp.intent.detect'],
    [SENTIMENT, 'nlp.sentiment.analyze'],
    [KNOWLEDGE, 'kb.article.search'],
    [GENERATION, 'nlp.reply.write'],
  ] as const) {
    tell.equal(`executions of ${capability}`, (await team.counts(member))[capability], 1);
  }
  return { steps: 5, task_ms: Math.round(tookMs) };
}
