/**
 * What is missing of one message. From the stream's word that it has it, somebody is to work on it, and its sender is to be told how it
 * ended: until then it is under way. A message to an agent that takes none by a pool lies in its inbox, and that is its end.
 */
import { type Facts, type Missing, SETTLE_MS } from './facts.ts';
import type { Node } from './tree.ts';

/** What stands in the inbox is the message itself, and no word about one (`detail` of the span). */
const ITSELF = 'message';
/** Silent for so long: it may have ended while this replica did not listen. */
const LONG_SILENT_MS = 60_000;
/** More than any setting allows. */
const MAX_TRIES = 100;

export function missingOfMessage(send: Node, facts: Facts, into: Missing): void {
  const { span } = send;
  if (span.code !== 0) return;
  const below = (stage: string): Node[] => send.children.filter((child) => child.span.stage === stage);
  const task = `${span.capability}${span.task_id === undefined ? '' : ` (task ${span.task_id})`}`;
  const delivers = below('deliver');
  const results = below('result');
  if (delivers.length === 0) {
    if (results.some((result) => result.span.code === 0 && result.span.replay !== true))
      into.gaps.push(`nobody told of the delivery of the message ${task}, and it has a result`);
    else if (results.length === 0 && !below('inbox').some((inbox) => inbox.span.detail === ITSELF)) notWorkedOn(send, task, facts, into);
    return;
  }
  if (below('queue').length === 0) into.gaps.push(`how long the message ${task} waited in the queue was not told`);
  for (const { span: deliver, children } of delivers)
    if (deliver.code === 0 && deliver.replay !== true && !children.some((child) => child.span.stage === 'inbound'))
      into.gaps.push(`the sidecar that worked on the message ${task} told nothing of the call to its agent (try ${deliver.tries ?? 1})`);
  for (const number of silentTries(delivers))
    into.notes.push(`the message ${task}: try ${number} ended without a word: its sidecar was killed, or is cut off`);
  if (results.length === 0) withoutResult(delivers, task, span.task_id, facts, into);
}

/** Tries before the last one that nobody told of. */
export function silentTries(delivers: readonly Node[]): readonly number[] {
  const told = new Set(delivers.map(({ span }) => span.tries ?? 1));
  const last = Math.min(Math.max(0, ...told), MAX_TRIES);
  return Array.from({ length: last }, (_, i) => i + 1).filter((number) => !told.has(number));
}

function notWorkedOn({ span, children }: Node, task: string, facts: Facts, into: Missing): void {
  const standing = span.task_id === undefined ? null : facts.standing(span.task_id);
  if (standing?.how === 'ended') into.notes.push(`the message ${task} ${standing.words}`);
  else if (standing?.how === 'done' && facts.silentMs >= SETTLE_MS)
    into.gaps.push(`the message ${task} ${standing.words}, and nobody told of its delivery`);
  else {
    const where = children.some((child) => child.span.stage === 'queue') ? 'is with a worker' : 'waits in the queue';
    const doubt = facts.silentMs >= LONG_SILENT_MS ? ', or its end was not told' : '';
    into.underWay.push(`the message ${task} ${standing?.words ?? `${where}${doubt}`}`);
  }
}

function withoutResult(delivers: readonly Node[], task: string, id: string | undefined, facts: Facts, into: Missing): void {
  const last = delivers.reduce((a, b) => (b.span.start_ms >= a.span.start_ms ? b : a));
  const standing = id === undefined ? null : facts.standing(id);
  if (standing?.how === 'ended') into.notes.push(`the message ${task} ${standing.words}`);
  else if (last.span.code !== 0)
    into.underWay.push(
      `the message ${task} failed at its try ${last.span.tries ?? delivers.length}, and ${standing?.words ?? 'no end of it has been told yet'}`,
    );
  else if (facts.silentMs >= SETTLE_MS)
    into.gaps.push(`the message ${task} was worked on, and nobody told that its result came to the sender's inbox`);
  else into.underWay.push(`the result of the message ${task} is on its way`);
}
