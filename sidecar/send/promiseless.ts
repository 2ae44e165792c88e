/** Messages out of a sidecar without a registry: there is no stream, so only what asks for no promise is taken. */
import { Code } from '../../proto/wire/codes.ts';
import type { Principal } from '../call/principal.ts';
import type { RateSettings } from '../messages-config.ts';
import { BestEffort } from './best-effort.ts';
import type { Rate, SendDoor, Submission, Submitted, TaskView } from './door.ts';
import { Home } from './home.ts';
import type { MessagesParts } from './messages.ts';
import { Rates } from './rate.ts';
import { refused, tooFast } from './sender.ts';

export class Promiseless implements SendDoor {
  readonly #parts: MessagesParts;
  readonly #home: Home;
  readonly #rates: Rates;
  readonly #bestEffort: BestEffort;

  constructor(parts: MessagesParts) {
    const { clock, random, config, instance, call } = parts;
    const settings = config.messages;
    this.#parts = parts;
    this.#home = new Home(settings.remembered, settings.resultBytes);
    this.#rates = new Rates(settings.rate, settings.rates);
    this.#bestEffort = new BestEffort({ clock, random, home: this.#home, instance, call });
  }

  submit(submission: Submission): Promise<Submitted> {
    const { agent } = submission.principal;
    const now = this.#parts.clock.now();
    if (!this.#rates.take(agent, now)) return Promise.resolve(tooFast(agent, this.#rates, now));
    if (submission.bestEffort) return Promise.resolve(this.#bestEffort.submit(submission));
    return Promise.resolve(refused(Code.delivery_unavailable, STANDALONE));
  }

  task({ agent }: Principal, taskId: string): Promise<TaskView | null> {
    return Promise.resolve(this.#home.of(agent, taskId));
  }

  watch({ agent }: Principal, taskId: string, hear: (view: TaskView) => void): Promise<{ close(): void } | null> {
    const heard = this.#home.hear(agent, taskId, hear);
    const view = this.#home.of(agent, taskId);
    if (view !== null) hear(view);
    return Promise.resolve(heard);
  }

  cancel({ agent }: Principal, taskId: string): Promise<'too_late' | 'unknown'> {
    return Promise.resolve(this.#home.of(agent, taskId) === null ? 'unknown' : 'too_late');
  }

  rate(agent: string): Rate {
    return this.#rates.view(agent, this.#parts.clock.now());
  }

  setRate(agent: string, rate: RateSettings | null): void {
    this.#rates.set(agent, rate, this.#parts.clock.now());
  }

  close(): void {
    this.#bestEffort.close();
  }
}

const STANDALONE =
  'this sidecar has no registry (sidecar.registry), so there is no NATS in which a message could be durable; with best effort (Reach-Best-Effort: 1) it is carried out at once, without a promise';
