/**
 * Requests that were refused at the door (no token, a wrong one, too small a role) and orders that were refused, summed, so that
 * somebody who tries a million tokens fills a few lines and not the log.
 */
import type { Clock } from '../../base/clock.ts';
import { Summing } from '../../base/summing.ts';
import type { AuditSaid } from '../../proto/wire/audit.ts';

const SUM_MS = 10_000;
const MAX_KINDS = 200;

export interface RefusedRequest {
  readonly actor: string;
  readonly role: string;
  /** Method and template, never a path that somebody made up. */
  readonly route: string;
  readonly code: number;
}

export class RefusedRequests {
  readonly #sums: Summing<RefusedRequest>;

  constructor(clock: Clock, tell: (said: AuditSaid) => void) {
    this.#sums = new Summing({
      clock,
      everyMs: SUM_MS,
      maxKinds: MAX_KINDS,
      others: ({ code }) => ({ actor: '', role: '', route: 'several routes', code }),
      tell: ({ actor, role, route, code }, count, sinceMs) =>
        tell({ actor, role, action: 'request.refused', subject: route, outcome: 'refused', code, count, sinceMs }),
    });
  }

  add(request: RefusedRequest): void {
    this.#sums.add(`${request.code} ${request.actor} ${request.route}`, request);
  }

  flush(): void {
    this.#sums.flush();
  }
}
