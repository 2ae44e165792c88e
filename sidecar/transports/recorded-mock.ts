/**
 * A provider that gives recorded answers, in the place of every adapter: whoever is to be reached, over HTTP, gRPC, a channel or
 * another sidecar, it opens no socket. What was not recorded is a `REPLAY_MISS`, in words, and reaches nobody.
 */
import type { Clock } from '../../base/clock.ts';
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import { failed, type Reply } from '../call/reply.ts';
import type { Match, RecordedAnswers, ReplayMiss } from './recorded-answers.ts';
import type { Exchange, Transport } from './transport.ts';

export const REPLAY_MISS = 'REPLAY_MISS';

/** What was recorded of one attempt. */
export interface GivenAnswer {
  /** Made anew each time; null = it never answered in time. */
  reply(): Reply | null;
  readonly afterMs: number;
}

/** Hears of each request and what became of it. */
export type Heard = (exchange: Exchange, outcome: Match<GivenAnswer> | ReplayMiss) => void;

export class RecordedMock implements Transport {
  readonly #answers: RecordedAnswers<GivenAnswer>;
  readonly #clock: Clock;
  readonly #heard: Heard;

  constructor(answers: RecordedAnswers<GivenAnswer>, clock: Clock, heard: Heard) {
    this.#answers = answers;
    this.#clock = clock;
    this.#heard = heard;
  }

  invoke(exchange: Exchange): Promise<Reply> {
    const { candidate, body, contentType, own, http } = exchange;
    const outcome = this.#answers.take({
      capability: candidate.version.capability.name,
      version: candidate.version.text,
      caller: ownOf(own, Header.caller),
      http: http === null ? null : { method: http.method, target: http.target },
      body,
      type: contentType,
    });
    this.#heard(exchange, outcome);
    if ('why' in outcome) {
      const diff = outcome.diff.length === 0 ? '' : `: ${outcome.diff.join('; ')}`;
      return Promise.resolve(failed(Code.internal, 'not_started', `${REPLAY_MISS}: ${outcome.why}${diff}`));
    }
    const { answer } = outcome;
    return new Promise((settle) => {
      const timer = this.#clock.after(answer.afterMs, () => {
        const reply = answer.reply();
        if (reply !== null) settle(reply);
      });
      exchange.abort = () => {
        timer.cancel();
        settle(failed(Code.cancelled, 'started', 'stopped while waiting for a recorded answer'));
      };
    });
  }

  cast(exchange: Exchange): Promise<Reply> {
    return this.invoke(exchange);
  }

  invokeStream(exchange: Exchange): Promise<Reply> {
    return this.invoke(exchange);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

/** Of headers as name, value, name, value. */
function ownOf(own: readonly string[], name: string): string {
  for (let i = 0; i < own.length; i += 2) if (own[i] === name) return own[i + 1] ?? '';
  return '';
}
