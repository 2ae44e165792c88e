/**
 * Tells operators of what is newly kept for people, by webhook. AR_DLQ itself is the queue: where one is in it is stored
 * beside the registry, so that the next leader goes on from there; what is held in memory is one page. A receiver that fails
 * is tried again, with pauses that grow; what it will not take after hours of that is left to the list and the console, and
 * said in the log. At least once: a notice whose answer was lost comes again, with the same id.
 */
import { type IncomingMessage, request as requestHttp, type RequestOptions } from 'node:http';
import { request as requestHttps } from 'node:https';
import type { Timer } from '../../base/clock.ts';
import { readSecret } from '../../base/secret.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import { KEPT_STREAM, Tail } from '../../proto/wire/subjects.ts';
import type { NoticesConfig } from './config.ts';
import { faultOf } from './fault.ts';
import { readKept } from './kept-entry.ts';
import { type AlertNotice, type Notice, noticeOf, type ShiftNotice, signature } from './notice.ts';
import type { MessageParts } from './parts.ts';

const POLL_MS = 1_000;
/** Where there is more. */
const NEXT_MS = 50;
/** Notices in one request. */
const PAGE = 50;
const TIMEOUT_MS = 5_000;
const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 60_000;
/** About five hours. */
const TRIES = 300;
/** Of one that is told as it happens: about two minutes. */
const TOLD_TRIES = 8;

interface NoticesState {
  readonly wire: number;
  readonly epoch: string;
  /** Everything in AR_DLQ up to here has been told. */
  readonly seq: number;
}

export class Notices {
  readonly #parts: MessageParts;
  readonly #config: NoticesConfig;
  #seq: number | null;
  #tries = 0;
  #timer: Timer | null = null;
  #isClosed = false;
  /** Why the receiver did not take the last one; '' = it did. */
  trouble = '';

  constructor(parts: MessageParts, config: NoticesConfig) {
    this.#parts = parts;
    this.#config = config;
    this.#seq = parts.mirror.state<NoticesState>(Tail.notices)?.seq ?? null;
    this.#again(POLL_MS);
  }

  /** One that is kept nowhere: told with some patience, and then left to the log and the list of shifts. */
  tell(notice: ShiftNotice, tries = TOLD_TRIES): void {
    if (this.#isClosed) return;
    void this.#send([notice]).then((problem) => {
      if (problem === null || this.#isClosed) return;
      if (tries <= 1) this.#parts.logger.error({ notice: notice.id }, `a notice to operators does not get through: ${problem}`);
      else this.#parts.clock.after(FIRST_PAUSE_MS * 2 ** (TOLD_TRIES - tries), () => this.tell(notice, tries - 1));
    });
  }

  /** Once, without patience: whoever tells keeps them, and comes again. Null when they were taken. */
  deliver(notices: readonly AlertNotice[]): Promise<string | null> {
    return this.#isClosed ? Promise.resolve('this replica leads no longer') : this.#send(notices);
  }

  close(): void {
    this.#isClosed = true;
    this.#timer?.cancel();
  }

  #again(delayMs: number): void {
    if (this.#isClosed) return;
    this.#timer = this.#parts.clock.after(delayMs, () => {
      void this.#look()
        .catch((error: unknown) => {
          this.#parts.logger.error(`notices to operators: ${faultOf(error)}`);
          return MAX_PAUSE_MS;
        })
        .then((nextMs) => this.#again(nextMs));
    });
  }

  /** @returns when to look again. */
  async #look(): Promise<number> {
    const { bus, subjects, epoch, logger } = this.#parts;
    if (!bus.connected) return POLL_MS;
    const facts = await bus.stream(KEPT_STREAM);
    if (facts === null || 'failed' in facts || this.#isClosed) return POLL_MS;
    // Who turns notices on is not told of years of history.
    if (this.#seq === null) return this.#through(facts.lastSeq);
    // The stream was made anew.
    if (facts.lastSeq < this.#seq) return this.#through(facts.firstSeq === 0 ? 0 : facts.firstSeq - 1);
    if (facts.lastSeq === this.#seq) return POLL_MS;
    const page = await bus.history(KEPT_STREAM, subjects.allKept, PAGE, this.#seq + 1);
    if ('failed' in page || this.#isClosed) return POLL_MS;
    const through = page.at(-1)?.seq ?? facts.lastSeq;
    const notices = page.flatMap((stored) => {
      const kept = readKept(stored);
      return kept === null ? [] : [noticeOf(epoch, kept)];
    });
    const problem = notices.length === 0 ? null : await this.#send(notices);
    if (this.#isClosed) return POLL_MS;
    if (problem === null) {
      this.trouble = '';
      this.#tries = 0;
      return this.#through(through, page.length >= PAGE ? NEXT_MS : POLL_MS);
    }
    this.trouble = problem;
    this.#tries++;
    if (this.#tries === 1) logger.warn({ webhook: place(this.#config.webhook) }, `notices to operators do not get through: ${problem}`);
    if (this.#tries < TRIES) {
      const pauseMs = Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(this.#tries - 1, 10));
      return pauseMs * (0.75 + this.#parts.random.next() / 2);
    }
    logger.error({ notices: notices.length }, `given up after ${TRIES} tries: see them with reachctl tasks list`);
    this.#tries = 0;
    return this.#through(through);
  }

  /** @returns when to look again. */
  async #through(seq: number, nextMs = POLL_MS): Promise<number> {
    this.#seq = seq;
    const state: NoticesState = { wire: REGISTRY_WIRE, epoch: this.#parts.epoch, seq };
    await this.#parts.write([{ tail: Tail.notices, text: JSON.stringify(state) }]);
    return nextMs;
  }

  /** Null when it was taken. */
  #send(notices: readonly (Notice | ShiftNotice | AlertNotice)[]): Promise<string | null> {
    const { clock } = this.#parts;
    const body = JSON.stringify({ notices });
    let secret: string | null;
    try {
      secret = this.#config.secret === null ? null : readSecret(this.#config.secret);
    } catch (error) {
      return Promise.resolve((error as Error).message);
    }
    const target = new URL(this.#config.webhook);
    const options: RequestOptions = {
      method: 'POST',
      agent: false,
      headers: {
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(body),
        'user-agent': 'agent-reach-notices',
        ...(secret === null ? {} : { 'reach-signature': signature(secret, Math.floor(clock.wallMs() / 1_000), body) }),
      },
    };
    return new Promise((done) => {
      const request = (target.protocol === 'https:' ? requestHttps : requestHttp)(target, options);
      const end = (problem: string | null): void => {
        timer.cancel();
        request.destroy();
        done(problem);
      };
      const timer = clock.after(TIMEOUT_MS, () => end(`no answer within ${TIMEOUT_MS / 1_000} s`));
      request.on('response', ({ statusCode = 0 }: IncomingMessage) =>
        end(statusCode >= 200 && statusCode < 300 ? null : `it answered ${statusCode}`),
      );
      request.on('error', (error: NodeJS.ErrnoException) => end(error.code ?? error.message));
      request.end(body);
    });
  }
}

/** Without path: some receivers are told apart by a secret in it. */
function place(webhook: string): string {
  return new URL(webhook).origin;
}
