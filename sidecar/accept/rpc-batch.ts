/**
 * The messages of one batch, side by side, a few at a time, and their answers in the order of the messages. The reader's
 * pace rules: what it does not take keeps further messages from being begun, so that a batch of large answers needs no more
 * memory than some of them.
 */
import type { ServerResponse } from 'node:http';
import type { RpcMessage } from '../../proto/wire/json-rpc.ts';
import type { Call } from '../call/call.ts';
import type { JsonBytes } from '../call/result.ts';
import { JSON_TYPE, writeJson } from './answer.ts';
import { type Line, lineOf, type Stoppable } from './line.ts';
import type { Door } from './rpc-door.ts';
import { silenceHeaders, writeNoAnswer } from './rpc-silence.ts';

/** Messages that are carried out at a time: well below a caller's usual limit of calls in flight (100). */
const AT_ONCE = 16;
/** Answers up to this are one write with a length; beyond it they leave as they come. */
const WHOLE_BYTES = 65_536;
/** Answers that wait for the reader, or for an earlier one, before no further message is begun. */
const MAX_HELD_BYTES = 8_388_608;

/** Carries the messages out, a few at a time, and writes the answers in their order. */
export class Batch implements Stoppable {
  readonly #door: Door;
  readonly #response: ServerResponse;
  readonly #line: Line;
  readonly #messages: readonly RpcMessage[];
  /** All begin when the batch has come: the time that the caller gives is for all of it. */
  readonly #calls: readonly (Call | null)[];
  readonly #answers: (JsonBytes | null | undefined)[];
  #next = 0;
  /** Of the answers, how many have been taken into `#ready`. */
  #taken = 0;
  /** Text that has not been written yet. */
  #ready: Buffer[] = [];
  #readyBytes = 0;
  #heldBytes = 0;
  #hasAnswers = false;
  #isGone = false;
  #waiting: (() => void)[] = [];

  constructor(door: Door, response: ServerResponse, messages: readonly RpcMessage[]) {
    this.#door = door;
    this.#response = response;
    this.#line = lineOf(door.request.socket);
    this.#messages = messages;
    this.#calls = messages.map((message) => door.begin(message));
    this.#answers = new Array<JsonBytes | null | undefined>(messages.length).fill(undefined);
  }

  async run(): Promise<void> {
    const wake = (): void => this.#wake();
    this.#response.on('drain', wake);
    this.#line.add(this);
    const workers: Promise<void>[] = [];
    for (let i = 0; i < Math.min(AT_ONCE, this.#messages.length); i++) workers.push(this.#work());
    await Promise.all(workers);
    this.#line.remove(this);
    this.#response.off('drain', wake);
    if (!this.#isGone && !this.#response.destroyed) this.#finish();
  }

  /** The caller is gone. */
  cancel(): void {
    this.#isGone = true;
    for (let i = 0; i < this.#next; i++) this.#calls[i]?.cancel();
    this.#wake();
  }

  async #work(): Promise<void> {
    while (!this.#isGone && this.#next < this.#messages.length) {
      const i = this.#next++;
      const answer = await this.#door.carryOut(this.#messages[i] as RpcMessage, this.#calls[i] as Call | null);
      if (answer !== null) this.#heldBytes += answer.length;
      this.#answers[i] = answer;
      this.#take();
      while (this.#mustWait()) await new Promise<void>((done) => this.#waiting.push(done));
    }
  }

  /** The first message without an answer is under way in a worker that does not wait here, so the wait ends. */
  #mustWait(): boolean {
    return !this.#isGone && (this.#heldBytes > MAX_HELD_BYTES || this.#response.writableNeedDrain);
  }

  #wake(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const done of waiting) done();
  }

  /** Takes up the answers that are next in order, and writes them once they are too many to keep. */
  #take(): void {
    for (;;) {
      const answer = this.#answers[this.#taken];
      if (answer === undefined) break;
      this.#answers[this.#taken++] = null;
      if (answer === null) continue;
      this.#heldBytes -= answer.length;
      this.#push(Buffer.from(this.#hasAnswers ? ',' : '['));
      this.#push(typeof answer === 'string' ? Buffer.from(answer, 'latin1') : answer);
      this.#hasAnswers = true;
    }
    if (this.#readyBytes > WHOLE_BYTES && !this.#isGone && !this.#response.destroyed) {
      if (!this.#response.headersSent) this.#response.writeHead(200, ['content-type', JSON_TYPE]);
      this.#response.write(this.#takeReady());
    }
    this.#wake();
  }

  #push(bytes: Buffer): void {
    this.#ready.push(bytes);
    this.#readyBytes += bytes.length;
  }

  #takeReady(): Buffer {
    const bytes = Buffer.concat(this.#ready, this.#readyBytes);
    this.#ready = [];
    this.#readyBytes = 0;
    return bytes;
  }

  #finish(): void {
    const count = this.#messages.filter(({ kind }) => kind === 'notification').length;
    if (!this.#hasAnswers) {
      writeNoAnswer(this.#response, this.#door, count);
      return;
    }
    this.#push(Buffer.from(']'));
    if (this.#response.headersSent) this.#response.end(this.#takeReady());
    else writeJson(this.#response, 200, this.#takeReady(), silenceHeaders(this.#door, count));
  }
}
