/**
 * Identities that the control plane has issued, beside the static tokens of the settings. A token is verified when it is
 * seen first and remembered by its text: until it ends, until the trust document takes it back, or until room is needed. One
 * that failed is remembered too, for a short time and in small number, so that sending it again costs nothing. The same
 * goes for the statements of peers that an agent is at home with them.
 *
 * `audit` believes a peer without a good statement, as it was before identities were there, and says so in the log and in
 * counts: to see who would be refused before it is.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import { endOf, isSidecarName, NO_TRUST, standingProblem, type Trust, type Verified, verifyToken } from '../../proto/wire/token.ts';
import type { Claims } from '../../proto/wire/identity.ts';
import type { PeerCertificate } from '../call/peer.ts';
import { Principal } from '../call/principal.ts';
import type { Identities } from './identify.ts';
import { Remembered, type Rememberable } from './remembered.ts';

export interface CredentialSettings {
  /** Name of this sidecar. */
  readonly self: string;
  readonly mode: 'enforce' | 'audit';
  /** Peers are known by their certificates. Without, a statement names the peer, and whoever has seen it could show it. */
  readonly hasPeerNames: boolean;
}

/** For metrics and health. */
export interface CredentialCounts {
  /** Tokens and statements that were verified, and were good. */
  verified: number;
  refused: number;
  /** Calls of peers that were not believed. */
  homesRefused: number;
  /** Those that were let in all the same, in the mode `audit`. */
  audited: number;
}

/** Tokens and statements that are remembered, each; about 1 KB an entry. */
const MOST = 20_000;
const MOST_FAILED = 1_024;
/** Short: the key may be on its way here. */
const FAILED_SEC = 5;
/** How long a statement that came with a message is remembered. */
const WAITED_SEC = 600;
const SWEEP_MS = 1_000;
/** Between two lines in the log about peers that are not believed. */
const LINE_MS = 1_000;
const BEARER = 'Bearer ';

class Known implements Rememberable {
  readonly principal: Principal;
  readonly claims: Claims;
  readonly kid: string;
  endsAtSec: number;
  used = false;

  constructor(principal: Principal, verified: Verified, endsAtSec: number) {
    this.principal = principal;
    this.claims = verified.claims;
    this.kid = verified.kid;
    this.endsAtSec = endsAtSec;
  }
}

class Failed implements Rememberable {
  readonly why: string;
  readonly endsAtSec: number;
  used = false;

  constructor(why: string, endsAtSec: number) {
    this.why = why;
    this.endsAtSec = endsAtSec;
  }
}

export class Credentials implements Identities {
  readonly counts: CredentialCounts = { verified: 0, refused: 0, homesRefused: 0, audited: 0 };
  /** Called with an agent that has shown a credential here for the first time. */
  onMet: (agent: string) => void = () => {};
  /** Called with an agent when the last of its credentials that were seen here has ended. */
  onEnded: (agent: string) => void = () => {};
  /** Called with whom a credential stood for that counts no more: what was opened with it ends, whatever others the agent has. */
  onRevoked: (principal: Principal) => void = () => {};
  /** Called with each peer that was not believed and let in, in the mode `audit`. */
  onDoubted: (agent: string, via: string, why: string) => void = () => {};
  arriving: ReadonlyMap<string, Promise<void>> | null = null;
  readonly #static: Identities;
  readonly #settings: CredentialSettings;
  readonly #clock: Clock;
  readonly #log: Logger;
  /** By the whole header. */
  readonly #callers = new Remembered<Known>(MOST, ({ claims }) => void this.#countDown(claims.sub));
  readonly #homes = new Remembered<Known>(MOST);
  /** Statements of messages, whatever their time. */
  readonly #waited = new Remembered<Known>(MOST);
  readonly #failed = new Remembered<Failed>(MOST_FAILED);
  /** Agent → its credentials that are remembered. */
  readonly #perAgent = new Map<string, number>();
  #trust: Trust = NO_TRUST;
  #timer: Timer | null = null;
  #saidAt = Number.NEGATIVE_INFINITY;
  #unsaid = 0;

  /** @param others what is asked first: static tokens. */
  constructor(others: Identities, settings: CredentialSettings, clock: Clock, log: Logger) {
    this.#static = others;
    this.#settings = settings;
    this.#clock = clock;
    this.#log = log;
  }

  get mode(): 'enforce' | 'audit' {
    return this.#settings.mode;
  }

  /** Keys whose signatures count at present. */
  get trustedKeys(): number {
    return this.#trust.size;
  }

  start(): void {
    this.#timer ??= this.#clock.after(SWEEP_MS, () => {
      this.#timer = null;
      this.#sweep();
      this.start();
    });
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = null;
  }

  /** Another trust document is in force: what was found out is judged anew, and what failed may be good. */
  trust(trust: Trust): void {
    this.#trust = trust;
    const nowSec = this.#nowSec();
    this.#failed.clear();
    const mayStay = (known: Known): boolean => {
      known.endsAtSec = endOf(known.claims, trust);
      return trust.key(known.kid) !== null && standingProblem(known.claims, trust, nowSec) === null;
    };
    this.#homes.judge(mayStay, () => {});
    // Judged anew when they are seen next: their times are those of messages.
    this.#waited.clear();
    this.#callers.judge(mayStay, (known) => {
      this.onRevoked(known.principal);
      this.#ended(known);
    });
  }

  caller(authorization: string | undefined): Principal | null {
    if (authorization === undefined) return this.#static.caller(undefined);
    const known = this.#callers.find(authorization);
    return known === undefined ? this.#meet(authorization) : known.principal;
  }

  callerProblem(authorization: string): string {
    return this.#failed.find(authorization)?.why ?? this.#static.callerProblem(authorization);
  }

  peer(certificate: PeerCertificate | null, authorization: string | undefined): string | null {
    const name = this.#static.peer(certificate, authorization);
    if (name === null || certificate === null) return name;
    if (this.#nowSec() >= certificate.untilSec) return null;
    return this.#trust.isRevokedBefore('sidecar', certificate.name, certificate.sinceSec) ? null : name;
  }

  vouched(agent: string, peer: string, statement: string | null): Principal | string {
    const known = statement === null ? undefined : this.#homes.find(statement);
    const named = known ?? (statement === null ? 'it shows no statement of the control plane' : this.#judgeHome(statement));
    const problem = typeof named === 'string' ? named : this.#mismatch(named.claims, agent, peer);
    if (problem === null) return (named as Known).principal;
    if (this.#settings.mode === 'enforce') {
      this.counts.homesRefused++;
      return problem;
    }
    this.counts.audited++;
    this.#audit(agent, peer, problem);
    return new Principal(agent, peer);
  }

  /**
   * A message may wait for longer than its statement lives, so the statement is judged as of the time at which the server stored the
   * message. What has been taken back counts no more, whenever it was stored.
   */
  stamped(agent: string, via: string, statement: string | null, storedAtMs: number | null): null | 'later' | { readonly why: string } {
    const isEnforced = this.#settings.mode === 'enforce';
    if (isEnforced && this.#trust.size === 0) return 'later';
    const why = this.#stampProblem(agent, via, statement, storedAtMs);
    if (why === null) return null;
    if (isEnforced) {
      this.counts.homesRefused++;
      return { why };
    }
    this.counts.audited++;
    this.#audit(agent, via, why);
    return null;
  }

  #stampProblem(agent: string, via: string, statement: string | null, storedAtMs: number | null): string | null {
    if (statement === null) return 'the message carries no statement of the control plane';
    const known = this.#homes.find(statement) ?? this.#waited.find(statement);
    let claims = known?.claims ?? null;
    if (claims === null) {
      const failed = this.#failed.find(statement);
      if (failed !== undefined) return failed.why;
      const verified = verifyToken(statement, this.#trust, 'home');
      if ('why' in verified) {
        this.#fail(statement, verified.why);
        return verified.why;
      }
      claims = verified.claims;
      this.counts.verified++;
      this.#waited.keep(statement, new Known(new Principal(claims.sub, claims.via), verified, this.#nowSec() + WAITED_SEC));
    }
    if (claims.sub !== agent) return 'the statement is about another agent';
    if (claims.via !== via) return 'the statement was given to another sidecar';
    if (this.#nowSec() >= this.#trust.revokedFrom(claims)) return 'it has been revoked';
    return standingProblem(claims, this.#trust, storedAtMs === null ? claims.iat : storedAtMs / 1_000);
  }

  // ---- tokens of agents

  #meet(authorization: string): Principal | null {
    const other = this.#static.caller(authorization);
    if (other !== null || this.#failed.find(authorization) !== undefined) return other;
    if (!authorization.startsWith(BEARER)) return null;
    const verified = this.#judge(authorization.slice(BEARER.length), 'agent');
    if (typeof verified === 'string') {
      this.#fail(authorization, verified);
      return null;
    }
    const { claims } = verified;
    const { self } = this.#settings;
    if (claims.homes !== undefined && !claims.homes.includes(self)) {
      this.#fail(authorization, `it may not be used at the sidecar ${self}`);
      return null;
    }
    this.counts.verified++;
    const known = new Known(new Principal(claims.sub), verified, endOf(claims, this.#trust));
    this.#callers.keep(authorization, known);
    const before = this.#perAgent.get(claims.sub) ?? 0;
    this.#perAgent.set(claims.sub, before + 1);
    if (before === 0) this.onMet(claims.sub);
    return known.principal;
  }

  #judge(text: string, audience: 'agent' | 'home'): Verified | string {
    const verified = verifyToken(text, this.#trust, audience);
    if ('why' in verified) return verified.why;
    return standingProblem(verified.claims, this.#trust, this.#nowSec()) ?? verified;
  }

  #fail(text: string, why: string): void {
    this.counts.refused++;
    this.#failed.keep(text, new Failed(why, this.#nowSec() + FAILED_SEC));
  }

  #ended({ claims }: Known): void {
    if (this.#countDown(claims.sub) === 0) this.onEnded(claims.sub);
  }

  #countDown(agent: string): number {
    const left = (this.#perAgent.get(agent) ?? 1) - 1;
    if (left > 0) this.#perAgent.set(agent, left);
    else this.#perAgent.delete(agent);
    return left;
  }

  // ---- statements of peers

  #judgeHome(statement: string): Known | string {
    const failed = this.#failed.find(statement);
    if (failed !== undefined) return failed.why;
    const verified = this.#judge(statement, 'home');
    if (typeof verified === 'string') {
      this.#fail(statement, verified);
      return verified;
    }
    this.counts.verified++;
    const known = new Known(new Principal(verified.claims.sub, verified.claims.via), verified, endOf(verified.claims, this.#trust));
    this.#homes.keep(statement, known);
    return known;
  }

  #mismatch({ sub, via }: Claims, agent: string, peer: string): string | null {
    if (sub !== agent) return 'the statement is about another agent';
    return via === peer || !this.#settings.hasPeerNames ? null : 'the statement was given to another sidecar';
  }

  #audit(agent: string, peer: string, why: string): void {
    this.onDoubted(agent, peer, why);
    const now = this.#clock.now();
    if (now - this.#saidAt < LINE_MS) {
      this.#unsaid++;
      return;
    }
    this.#saidAt = now;
    this.#log.warn(
      { agent, peer: isSidecarName(peer) ? peer : '?', why, more: this.#unsaid },
      'a call of another sidecar would be refused: identity.mode is audit',
    );
    this.#unsaid = 0;
  }

  // ---- time

  #sweep(): void {
    const nowSec = this.#nowSec();
    this.#callers.sweep(nowSec, (known) => this.#ended(known));
    this.#homes.sweep(nowSec, () => {});
    this.#waited.sweep(nowSec, () => {});
    this.#failed.sweep(nowSec, () => {});
  }

  #nowSec(): number {
    return this.#clock.wallMs() / 1_000;
  }
}
