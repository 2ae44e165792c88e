/** One message of a send step: the way in of the lab for messages. It submits it, and gives what was said at once; what becomes of it comes later. */
import { Principal } from '../call/principal.ts';
import type { Submission, Submitted } from '../send/door.ts';
import type { Lane } from '../../proto/wire/envelope.ts';
import type { TaskEvent } from '../../proto/wire/messages.ts';
import type { Fate, SendStep } from './scenario.ts';
import { filled, filledText, isTemplate, type Words } from './templates.ts';
import type { World } from './world.ts';

/** What became of a message, as far as it is known. */
export class MessageRecord {
  /** From 1, within the step. */
  readonly n: number;
  readonly session: string;
  readonly sentAt: number;
  taskId = '';
  fate: Fate = 'accepted';
  code = 0;
  detail = '';
  by: string | null = null;
  version: string | null = null;
  rule: string | null = null;
  lane: Lane | null = null;
  replay = false;
  attempts = 0;
  /** Until its end; 0 = it has none. */
  elapsedMs: number | null = null;

  constructor(n: number, session: string, sentAt: number) {
    this.n = n;
    this.session = session;
    this.sentAt = sentAt;
  }

  submitted(submitted: Submitted): void {
    if (!submitted.ok) {
      this.fate = 'refused';
      this.code = submitted.code;
      this.detail = submitted.detail;
      return;
    }
    this.taskId = submitted.taskId;
    this.fate = submitted.state;
    this.rule = submitted.rule;
    this.lane = submitted.lane;
    this.version = submitted.version;
  }

  ended(event: TaskEvent, now: number): void {
    this.fate = event.state;
    this.code = event.code;
    this.detail = event.detail;
    this.by = event.by === '' ? null : event.by;
    if (event.version !== '') this.version = event.version;
    this.replay = event.replay;
    this.attempts = event.attempts;
    this.elapsedMs = now - this.sentAt;
  }
}

/** What all messages of a step have in common, prepared once. */
export class MessageMaker {
  readonly #world: World;
  readonly #step: SendStep;
  readonly #payload: Buffer | null;

  constructor(world: World, step: SendStep) {
    this.#world = world;
    this.#step = step;
    this.#payload = isTemplate(step.payload) ? null : Buffer.from(JSON.stringify(step.payload));
  }

  /** As many submissions as there are copies, all alike. */
  submissionOf(words: Words): Submission {
    const step = this.#step;
    const headers: Record<string, string> = { 'content-type': 'application/json' };
    for (const name in step.headers) headers[name] = filledText(step.headers[name] as string, words);
    return {
      principal: new Principal(words.caller),
      target: { capability: step.asked === null ? null : filledText(step.asked, words), role: step.role, agent: step.agent },
      messageType: step.messageType,
      tags: step.tags,
      sequenceId: step.sequenceId === null ? null : filledText(step.sequenceId, words),
      priority: step.lane,
      retryable: step.retryable,
      key: step.key === null ? null : filledText(step.key, words),
      expiresMs: step.expiresMs,
      deadlineMs: step.deadlineMs,
      replyTo: 'inbox',
      inReplyTo: null,
      payload: this.#payload ?? Buffer.from(JSON.stringify(filled(step.payload, words))),
      contentType: 'application/json',
      headers,
      bestEffort: false,
    };
  }

  async send(submission: Submission, record: MessageRecord): Promise<void> {
    const { office } = this.#world;
    if (office === null) throw new Error('a scenario with messages has no queue');
    record.submitted(await office.submit(submission));
  }
}
