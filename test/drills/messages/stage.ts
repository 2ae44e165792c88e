/** What a drill acts on: the team, its workers and senders by name, and a list of what was done to them. */
import type { Member } from '../../../deploy/local/roster.ts';
import type { Fault } from './judge.ts';
import type { Gate, Submitter } from './submitter.ts';
import type { MessageTeam } from './team.ts';

export class Stage {
  readonly name: string;
  readonly team: MessageTeam;
  readonly workers: readonly Member[];
  readonly senders: readonly Member[];
  readonly faultsSeen: Fault[] = [];
  submitter: Submitter | null = null;
  readonly #startedAt = performance.now();

  constructor(name: string, team: MessageTeam, workers: readonly Member[], senders: readonly Member[]) {
    this.name = name;
    this.team = team;
    this.workers = workers;
    this.senders = senders;
  }

  /** Something is broken now, and what is not may go on without it. */
  fault(what: string): void {
    this.#note(what, 'both');
  }

  /** Something is broken now without which nothing goes on, until `back`. */
  strike(what: string): void {
    this.#note(what, 'strike');
  }

  back(what: string): void {
    this.#note(what, 'back');
  }

  say(words: string): void {
    const at = ((performance.now() - this.#startedAt) / 1_000).toFixed(1).padStart(6);
    process.stdout.write(`${at} s  ${words}\n`);
  }

  /** All messages have been sent. */
  get isThrough(): boolean {
    return this.submitter?.isThrough ?? true;
  }

  get nats(): { kill(): Promise<void>; stop(): Promise<void>; restart(): Promise<void>; pause(): void; resume(): void } {
    const { process: server } = this.team.registry.nats;
    if (server === null) throw new Error('this nats-server is not ours');
    return server;
  }

  gates(): Gate[] {
    return this.senders.map((member) => {
      const { place } = this.team.seat(member);
      return { name: member.sidecar, url: `http://${place.listen}`, token: place.token };
    });
  }

  #note(what: string, kind: Fault['kind']): void {
    this.faultsSeen.push({ what, atMs: Date.now(), kind });
    this.say(what);
  }
}
