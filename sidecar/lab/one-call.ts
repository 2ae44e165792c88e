/** One call of a step: the way in of the lab. It makes the Call, runs it to the end of its body, and gives what came of it. */
import { Header } from '../../proto/wire/headers.ts';
import { readTraceContext } from '../../proto/wire/trace-context.ts';
import { Call, type HeaderView } from '../call/call.ts';
import type { BodySource } from '../call/reply.ts';
import { type Result, resultOf } from '../call/result.ts';
import { outbound } from '../pipeline.ts';
import type { CallStep } from './scenario.ts';
import { filled, filledText, isTemplate, type Words } from './templates.ts';
import { tokenOf } from './tokens.ts';
import type { World } from './world.ts';

/** What a call came to. */
export interface Outcome {
  /** From 1, within the step. */
  readonly n: number;
  readonly result: Result;
  readonly startedAtMs: number;
  /** '' = it belongs to none. */
  readonly session: string;
  /** What a stream brought; null when it was no stream, or nobody asks for it. */
  readonly streamed: Buffer | null;
}

/** What all calls of a step have in common, prepared once. */
export class CallMaker {
  readonly #world: World;
  readonly #step: CallStep;
  readonly #body: Buffer | null;
  readonly #headers: readonly (readonly [string, string])[];
  /** Headers that only the moment can tell: what is left of a task's time. */
  readonly #moving: () => Readonly<Record<string, string>>;

  constructor(world: World, step: CallStep, moving: () => Readonly<Record<string, string>>) {
    this.#world = world;
    this.#step = step;
    this.#body = isTemplate(step.payload) ? null : Buffer.from(JSON.stringify(step.payload));
    this.#headers = Object.entries(step.headers);
    this.#moving = moving;
  }

  async make(words: Words): Promise<Outcome> {
    const { clock, engine, ids } = this.#world;
    const step = this.#step;
    const { n, session } = words;
    const headers = this.#headersOf(words);
    const body = this.#body ?? Buffer.from(JSON.stringify(filled(step.payload, words)));
    const call = new Call('sandbox', this.#askedBy(words), headers, body, 'application/json', step.stream, clock);
    readTraceContext(call, headers[Header.traceparent], headers[Header.tracestate], ids);
    const leaving = step.cancelAfterMs === null ? null : clock.after(step.cancelAfterMs, () => call.cancel());
    await outbound(engine, call);
    const stream = call.bodyOpen ? (call.reply?.stream ?? null) : null;
    const streamed = stream === null ? null : await read(stream, step.expect?.data !== undefined);
    leaving?.cancel();
    return { n, result: resultOf(call, true), startedAtMs: call.startedAt, session, streamed };
  }

  #askedBy(words: Words): string {
    const { asked } = this.#step;
    const one = asked.length === 1 ? asked[0] : asked[Math.floor(words.random.next() * asked.length)];
    return filledText(one as string, words);
  }

  #headersOf(words: Words): HeaderView {
    const headers: Record<string, string> = { authorization: `Bearer ${tokenOf(words.caller)}`, 'content-type': 'application/json' };
    if (this.#step.deadlineMs !== null) headers[Header.deadlineMs] = String(this.#step.deadlineMs);
    Object.assign(headers, this.#moving());
    for (const [name, value] of this.#headers) headers[name] = filledText(value, words);
    return headers;
  }
}

/** Takes a streamed body to its end, however it ends: what became of it stands in the call. */
function read(stream: BodySource, isKept: boolean): Promise<Buffer | null> {
  const chunks: Buffer[] = [];
  return new Promise((resolve) => {
    const over = (): void => resolve(isKept ? Buffer.concat(chunks) : null);
    const chunk = (data: Buffer): boolean => {
      if (isKept) chunks.push(data);
      return true;
    };
    stream.pipe({ chunk, end: over, cut: over });
  });
}
