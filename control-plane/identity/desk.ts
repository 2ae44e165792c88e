/**
 * Issued identities in one reign: tokens for agents and sidecars are issued, rotated and taken back; which keys count and
 * what was taken back is pushed as the trust document; sidecars are told of their agents that they are at home with them. A
 * token is given to whoever ordered it, once, and is stored nowhere.
 *
 * A key that has just been pushed does not sign yet: until every sidecar has had the time to hear of it, the one before
 * signs. What is taken back is in the stream before the order is answered.
 */
import { randomBytes } from 'node:crypto';
import type { BusMessage } from '../../base/bus-message.ts';
import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { Bus } from '../../base/nats.ts';
import type { BusSubscription } from '../../base/nats-listeners.ts';
import { Code } from '../../proto/wire/codes.ts';
import { type Claims, type HomeAnswer, type HomeRequest, HOMES_PER_REQUEST, issuerOf, type TrustState } from '../../proto/wire/identity.ts';
import { type Refusal, REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import { type Subjects, Tail } from '../../proto/wire/subjects.ts';
import { isAgentId } from '../../proto/language/names.ts';
import { isSidecarName, standingProblem, Trust, verifyToken } from '../../proto/wire/token.ts';
import { encode, parse } from '../push/json.ts';
import type { Mirror } from '../push/mirror.ts';
import { speakerProblem } from '../push/speaker.ts';
import type { Change as Message, Written } from '../push/writer.ts';
import type { Registry } from '../registry/registry.ts';
import {
  endingAt,
  type IdentityKind,
  type IdentityState,
  issuedAt,
  liveOf,
  merged,
  nobody,
  revocations,
  revokedWhole,
  type TokenRecord,
  withToken,
} from './book.ts';
import type { IdentityConfig } from './config.ts';
import type { KeyRing, SigningKey } from './keys.ts';
import { signClaims } from './sign.ts';

export interface IdentityParts {
  readonly bus: Bus;
  readonly subjects: Subjects;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly config: IdentityConfig;
  readonly keys: KeyRing;
  readonly env: string;
  readonly epoch: string;
  readonly mirror: Mirror;
  /** What this process has known of identities in another stream that was lost. */
  readonly remembered: Map<string, IdentityState>;
  readonly registry: () => Registry;
  readonly write: (messages: readonly Message[]) => Promise<Written>;
}

export interface Issued {
  readonly token: string;
  readonly record: TokenRecord;
  readonly seq: number;
}

export interface NotDone {
  readonly kind: 'absent' | 'conflict' | 'unavailable';
  readonly why: string;
}

export interface Wanted {
  readonly kind: IdentityKind;
  readonly name: string;
  readonly homes: readonly string[] | null;
  /** null = what the settings say. */
  readonly ttlMs: number | null;
  readonly by: string;
}

const MAX_LIVE = 16;
const JTI_BYTES = 12;
/** Half of what a server takes by default, and some room: sidecars must be able to hear it. */
const MAX_TRUST_CHARS = 700_000;

export class IdentityDesk {
  readonly #parts: IdentityParts;
  /** By tail. */
  readonly #states = new Map<string, IdentityState>();
  readonly #subscriptions: readonly BusSubscription[];
  #trust: Trust;
  /** Signs until the newest key is known everywhere; null = that is the case. */
  #before: SigningKey | null = null;
  #isClosed = false;

  constructor(parts: IdentityParts) {
    this.#parts = parts;
    const { mirror, remembered, logger, bus, subjects } = parts;
    for (const [tail, state] of remembered) this.#states.set(tail, { ...state, epoch: parts.epoch });
    for (const tail of mirror.tails('ident.')) {
      const state = mirror.state<IdentityState>(tail);
      if (state !== null && state.wire === REGISTRY_WIRE) this.#states.set(tail, state);
    }
    const lost = [...this.#states].filter(([tail]) => mirror.get(tail) === null);
    if (lost.length > 0) logger.warn({ identities: lost.length }, 'the stream has lost what was issued: it is written again');
    const document = this.#document();
    this.#trust = new Trust(document);
    this.#settle(mirror.state<TrustState>(Tail.trust));
    void parts.write([...lost.map(([tail, state]) => message(tail, state)), message(Tail.trust, document)]);
    this.#remember();
    this.#subscriptions = subjects.asked('home').map((asked) =>
      bus.serve(asked, async (message) => {
        const answer = await this.#homes(message);
        return this.#isClosed ? null : encode(answer);
      }),
    );
  }

  /** The key that signs at present. */
  get signingKid(): string {
    return this.#signer.kid;
  }

  end(): void {
    this.#isClosed = true;
    for (const each of this.#subscriptions) each.close();
  }

  /** A first token for somebody who has none that counts. */
  async issue(wanted: Wanted): Promise<Issued | NotDone> {
    const state = this.#stateOf(wanted.kind, wanted.name);
    const live = liveOf(state, this.#nowSec());
    if (live.length > 0)
      return conflict(
        `${wanted.name} has ${live.length === 1 ? 'a token' : `${live.length} tokens`} already: rotate it, or revoke it first`,
      );
    return this.#issueOn(state, wanted);
  }

  /** A further token; those before it end after `overlapMs`. */
  async rotate(
    wanted: Omit<Wanted, 'kind' | 'homes'> & { readonly homes: readonly string[] | null | undefined },
    overlapMs: number,
  ): Promise<Issued | NotDone> {
    const state = this.#find(wanted.name);
    if (state === null) return absent(wanted.name);
    const nowSec = this.#nowSec();
    const live = liveOf(state, nowSec);
    if (live.length === 0) return conflict(`${wanted.name} has no token that counts: issue one (add)`);
    if (live.length >= MAX_LIVE) return conflict(`${wanted.name} has ${live.length} tokens that count: revoke some first`);
    const homes = wanted.homes === undefined ? (live.at(-1) as TokenRecord).homes : wanted.homes;
    const ending = endingAt(state, ({ jti }) => live.some((each) => each.jti === jti), Math.floor(nowSec + overlapMs / 1_000));
    return this.#issueOn(ending, { ...wanted, kind: state.kind, homes });
  }

  /** @param target a name (everything that was issued to it) or the id of one token. */
  async revoke(target: string): Promise<{ readonly name: string; readonly kind: IdentityKind; readonly seq: number } | NotDone> {
    const nowSec = this.#nowSec();
    const homeSec = this.#parts.config.homeTtlMs / 1_000;
    const named = this.#find(target) ?? this.#known(target);
    const owner = named ?? [...this.#states.values()].find(({ tokens }) => tokens.some(({ jti }) => jti === target)) ?? null;
    if (owner === null) return absent(target);
    if (named !== null && named.revokedBefore > 0 && liveOf(named, nowSec).length === 0)
      return conflict(`${target} has been revoked already`);
    let after = named === null ? endingAt(owner, ({ jti }) => jti === target, Math.floor(nowSec)) : revokedWhole(owner, nowSec, homeSec);
    // Without a token that counts, an agent is at home nowhere.
    if (named === null && liveOf(after, nowSec).length === 0) after = revokedWhole(after, nowSec, homeSec);
    if (JSON.stringify(after) === JSON.stringify(owner)) return conflict(`${target} counts no more already`);
    const written = await this.#put(after);
    if (typeof written === 'object') return written;
    return { name: owner.name, kind: owner.kind, seq: written };
  }

  /** What an export says, beside what is known: nothing that was taken back counts again. */
  takeIn(states: readonly IdentityState[]): Promise<Written> {
    const messages: Message[] = [];
    for (const each of states) {
      const tail = Tail.identity(each.kind, each.name);
      const state = { ...merged(this.#states.get(tail) ?? each, each), epoch: this.#parts.epoch };
      this.#states.set(tail, state);
      messages.push(message(tail, state));
    }
    const document = this.#document();
    this.#trust = new Trust(document);
    this.#remember();
    return this.#parts.write([...messages, message(Tail.trust, document)]);
  }

  #stateOf(kind: IdentityKind, name: string): IdentityState {
    return this.#states.get(Tail.identity(kind, name)) ?? nobody(kind, name, this.#parts.epoch);
  }

  #find(name: string): IdentityState | null {
    for (const kind of ['agent', 'sidecar'] as const) {
      const isName = kind === 'agent' ? isAgentId(name) : isSidecarName(name);
      const state = isName ? this.#states.get(Tail.identity(kind, name)) : undefined;
      if (state !== undefined) return state;
    }
    return null;
  }

  /** Somebody to whom nothing was issued may still have a certificate, or a token of a sidecar's settings. */
  #known(name: string): IdentityState | null {
    const { registry, epoch } = this.#parts;
    if (isAgentId(name)) return registry().knowsAgent(name) ? nobody('agent', name, epoch) : null;
    return registry().sidecarNames().includes(name) ? nobody('sidecar', name, epoch) : null;
  }

  async #issueOn(state: IdentityState, { kind, name, homes, ttlMs, by }: Wanted): Promise<Issued | NotDone> {
    const { config, env } = this.#parts;
    const iat = issuedAt(state, this.#nowSec());
    const exp = iat + Math.floor((ttlMs ?? (kind === 'agent' ? config.agentTtlMs : config.sidecarTtlMs)) / 1_000);
    const record: TokenRecord = { jti: `T${randomBytes(JTI_BYTES).toString('base64url')}`, iat, exp, homes, by, revokedFrom: null };
    const written = await this.#put(withToken(state, record, this.#nowSec()));
    if (typeof written === 'object') return written;
    const claims: Claims = {
      iss: issuerOf(env),
      sub: name,
      aud: kind,
      iat,
      nbf: iat,
      exp,
      jti: record.jti,
      ...(homes === null ? {} : { homes }),
    };
    return { token: await signClaims(claims, this.#signer), record, seq: written };
  }

  /** The sequence at which it is in force. */
  async #put(state: IdentityState): Promise<number | NotDone> {
    const tail = Tail.identity(state.kind, state.name);
    const before = this.#states.get(tail);
    this.#states.set(tail, state);
    const document = this.#document();
    const text = JSON.stringify(document);
    if (text.length > MAX_TRUST_CHARS) {
      if (before === undefined) this.#states.delete(tail);
      else this.#states.set(tail, before);
      return conflict(
        'so much has been taken back that sidecars could not hear of more: take another signing key, and leave the one before out of previous_keys',
      );
    }
    this.#trust = new Trust(document);
    this.#remember();
    const written = await this.#parts.write([message(tail, state), { tail: Tail.trust, text }]);
    return written.ok ? written.seq : { kind: 'unavailable', why: `not in force yet: ${written.why}` };
  }

  #document(): TrustState {
    const { env, epoch, keys } = this.#parts;
    return { wire: REGISTRY_WIRE, epoch, env, keys: keys.trusted, ...revocations(this.#states.values(), this.#nowSec()) };
  }

  #remember(): void {
    for (const [tail, state] of this.#states) this.#parts.remembered.set(tail, state);
  }

  // ---- the key that signs

  get #signer(): SigningKey {
    return this.#before ?? this.#parts.keys.signing;
  }

  #settle(pushed: TrustState | null): void {
    const { keys, config, clock, logger } = this.#parts;
    const known = new Set((pushed?.keys ?? []).map(({ kid }) => kid));
    if (known.size === 0 || known.has(keys.signing.kid)) return;
    this.#before = keys.former.find(({ kid }) => known.has(kid)) ?? null;
    if (this.#before === null) {
      logger.warn(
        'a new signing key signs at once: the private half of the one before is not among identity.previous_keys, so that sidecars which have not heard of it refuse what it signs for a moment',
      );
      return;
    }
    logger.info({ kid: keys.signing.kid }, 'a new signing key is being pushed; until every sidecar has it, the one before signs');
    clock.after(config.settleMs, () => {
      this.#before = null;
      if (!this.#isClosed) logger.info({ kid: keys.signing.kid }, 'the new key signs');
    });
  }

  // ---- who is at home where

  async #homes(message: BusMessage): Promise<HomeAnswer> {
    const request = readHomeRequest(parse(message.data));
    if (typeof request === 'string') return refusedWhole(Code.invalid_request, request);
    const { sidecar, instance, token } = request;
    const stranger = speakerProblem(this.#parts.subjects, message, sidecar);
    if (stranger !== null) return refusedWhole(Code.forbidden, stranger);
    const problem = this.#tokenProblem(sidecar, token);
    if (problem !== null) return refusedWhole(Code.unauthenticated, problem);
    const judge = this.#parts.registry().homeJudge(sidecar, instance);
    if (judge === null) return refusedWhole(Code.invalid_request, `this process of ${sidecar} has not said hello here: say hello first`);
    const homes: Record<string, string> = {};
    const refused: Refusal[] = [];
    await Promise.all(
      request.agents.map(async (agent) => {
        const untilSec = this.#mayLiveAt(agent, sidecar, judge);
        if (typeof untilSec === 'string') refused.push({ agent, code: Code.forbidden, problems: [untilSec] });
        else homes[agent] = await this.#statement(agent, sidecar, untilSec);
      }),
    );
    return { wire: REGISTRY_WIRE, ok: refused.length === 0, homes, refused };
  }

  #tokenProblem(sidecar: string, token: string): string | null {
    if (token === '')
      return `the sidecar ${sidecar} shows no token of its own: issue one (reachctl sidecar add ${sidecar}) and name it under sidecar.identity.token`;
    const verified = verifyToken(token, this.#trust, 'sidecar');
    if ('why' in verified) return `the token of the sidecar ${sidecar}: ${verified.why}`;
    if (verified.claims.sub !== sidecar) return `the token is that of the sidecar ${verified.claims.sub}, not of ${sidecar}`;
    const standing = standingProblem(verified.claims, this.#trust, this.#nowSec());
    return standing === null ? null : `the token of the sidecar ${sidecar}: ${standing}`;
  }

  /** Until when it may be said, in seconds; or why it may not. */
  #mayLiveAt(agent: string, sidecar: string, judge: (agent: string) => string | null): number | string {
    const nowSec = this.#nowSec();
    const mostSec = Math.floor(nowSec + this.#parts.config.homeTtlMs / 1_000);
    const state = this.#states.get(Tail.identity('agent', agent));
    // Agents without issued tokens: those of the settings of sidecars.
    if (state === undefined || (state.tokens.length === 0 && state.revokedBefore === 0)) return judge(agent) ?? mostSec;
    const live = liveOf(state, nowSec);
    if (live.length === 0) return state.revokedBefore > 0 ? 'its identity has been revoked' : 'its tokens have ended';
    const here = live.filter(({ homes }) => homes === null || homes.includes(sidecar));
    if (here.length === 0) return `its tokens may not be used at ${sidecar}`;
    // Named for this sidecar, it may call from here although it is hosted elsewhere; but somebody must say that it does.
    const problem = here.some(({ homes }) => homes !== null) ? null : judge(agent);
    return problem ?? Math.min(mostSec, Math.max(...here.map(({ exp, revokedFrom }) => Math.min(exp, revokedFrom ?? exp))));
  }

  /**
   * For a message that a person sends on its way again, perhaps after days: what its sender's sidecar was told once is said anew.
   * null = that was never said, or has been taken back since.
   */
  async restated(statement: string, agent: string, sidecar: string): Promise<string | null> {
    const verified = verifyToken(statement, this.#trust, 'home');
    if ('why' in verified || verified.claims.sub !== agent || verified.claims.via !== sidecar) return null;
    if (standingProblem(verified.claims, this.#trust, verified.claims.iat) !== null) return null;
    // The trust document lets go of what is long over; the book does not.
    if (verified.claims.iat <= (this.#states.get(Tail.identity('agent', agent))?.revokedBefore ?? 0)) return null;
    return await this.#statement(agent, sidecar, Math.floor(this.#nowSec() + this.#parts.config.homeTtlMs / 1_000));
  }

  #statement(agent: string, sidecar: string, untilSec: number): Promise<string> {
    const { env } = this.#parts;
    const state = this.#states.get(Tail.identity('agent', agent));
    const iat = state === undefined ? Math.floor(this.#nowSec()) : issuedAt(state, this.#nowSec());
    const claims: Claims = {
      iss: issuerOf(env),
      sub: agent,
      aud: 'home',
      via: sidecar,
      iat,
      nbf: iat,
      exp: Math.max(untilSec, iat + 1),
      jti: randomBytes(JTI_BYTES).toString('base64url'),
    };
    return signClaims(claims, this.#signer);
  }

  #nowSec(): number {
    return this.#parts.clock.wallMs() / 1_000;
  }
}

function readHomeRequest(json: unknown): HomeRequest | string {
  if (typeof json !== 'object' || json === null) return 'the request is not a JSON object';
  const { wire, sidecar, instance, token, agents } = json as Partial<HomeRequest>;
  if (wire !== REGISTRY_WIRE) return `it speaks another version of the registry's wire than ${REGISTRY_WIRE}`;
  if (typeof sidecar !== 'string' || !isSidecarName(sidecar) || typeof instance !== 'string') return 'it names no sidecar';
  if (typeof token !== 'string') return 'token must be a text';
  if (
    !Array.isArray(agents) ||
    agents.length > HOMES_PER_REQUEST ||
    !agents.every((agent) => typeof agent === 'string' && isAgentId(agent))
  )
    return `agents must be a list of at most ${HOMES_PER_REQUEST} agent ids`;
  return { wire, sidecar, instance, token, agents };
}

function refusedWhole(code: Code, problem: string): HomeAnswer {
  return { wire: REGISTRY_WIRE, ok: false, homes: {}, refused: [{ agent: '', code, problems: [problem] }] };
}

function message(tail: string, state: unknown): Message {
  return { tail, text: JSON.stringify(state) };
}

const conflict = (why: string): NotDone => ({ kind: 'conflict', why });
const absent = (target: string): NotDone => ({
  kind: 'absent',
  why: `nothing has been issued to ${JSON.stringify(target.slice(0, 200))}, and no token has that id`,
});
