/**
 * Tickets to dial in with: a WebSocket client that cannot set headers (a browser's, many a library's) proves itself over
 * HTTP first and carries the ticket in the address. Since addresses end up in logs, a ticket serves once, dies soon, and is
 * known here only by its hash. An agent that asks for many loses its own oldest ones, nobody else's.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Clock } from '../../../base/clock.ts';
import type { Principal } from '../../call/principal.ts';

/** Tickets of one agent that have not been used: a few processes that start at once, and their second tries. */
export const MAX_PER_AGENT = 8;
const BYTES = 32;

class Ticket {
  readonly hash: Buffer;
  readonly principal: Principal;
  readonly endsAt: number;
  constructor(hash: Buffer, principal: Principal, endsAt: number) {
    this.hash = hash;
    this.principal = principal;
    this.endsAt = endsAt;
  }
}

export class Tickets {
  readonly #clock: Clock;
  readonly ttlMs: number;
  /** By the hash, oldest first: what has run out stands in front. */
  readonly #tickets = new Map<string, Ticket>();
  /** Agent → hashes, oldest first. */
  readonly #byAgent = new Map<string, string[]>();

  constructor(clock: Clock, ttlMs: number) {
    this.#clock = clock;
    this.ttlMs = ttlMs;
  }

  get size(): number {
    return this.#tickets.size;
  }

  issue(principal: Principal): string {
    this.forgetOld();
    const ticket = randomBytes(BYTES).toString('base64url');
    const hash = hashOf(ticket);
    const key = hash.toString('base64url');
    const own = this.#byAgent.get(principal.agent) ?? [];
    if (own.length >= MAX_PER_AGENT) this.#drop(own[0] as string);
    this.#tickets.set(key, new Ticket(hash, principal, this.#clock.now() + this.ttlMs));
    this.#byAgent.set(principal.agent, [...own.filter((each) => this.#tickets.has(each)), key]);
    return ticket;
  }

  /** Whom it was given to; null when it is unknown, used or too old. It is used up by this. */
  take(ticket: string): Principal | null {
    const hash = hashOf(ticket);
    const key = hash.toString('base64url');
    const found = this.#tickets.get(key);
    // The map is searched by a hash that nobody can steer; the comparison itself tells nothing by its time.
    if (found === undefined || !timingSafeEqual(found.hash, hash)) return null;
    this.#drop(key);
    return this.#clock.now() < found.endsAt ? found.principal : null;
  }

  /** Those that an agent has not used are worth nothing any more. */
  forgetOf(agent: string): void {
    for (const key of this.#byAgent.get(agent) ?? []) this.#drop(key);
  }

  /** Tickets that have run out are forgotten, used or not. */
  forgetOld(): void {
    const now = this.#clock.now();
    for (const [key, ticket] of this.#tickets) {
      if (ticket.endsAt > now) return;
      this.#drop(key);
    }
  }

  #drop(key: string): void {
    const ticket = this.#tickets.get(key);
    if (ticket === undefined) return;
    this.#tickets.delete(key);
    const { agent } = ticket.principal;
    const left = (this.#byAgent.get(agent) ?? []).filter((each) => each !== key);
    if (left.length === 0) this.#byAgent.delete(agent);
    else this.#byAgent.set(agent, left);
  }
}

function hashOf(ticket: string): Buffer {
  return createHash('sha256').update(ticket).digest();
}
