/**
 * Operators who have signed in with a browser: their token, given once, becomes a cookie, so that it is kept nowhere.
 *
 * A session is stored nowhere either. The cookie says who, since when, and a number by chance, and is signed with a key that is
 * made of that operator's own token and the name of the environment. So every replica of the same settings can check it, without
 * sticky balancing and without asking anybody; it is worth nothing in another environment; and when the token is changed or taken
 * out of the settings, all that was signed by it is void, without anybody thinking of it. The role is looked up and stands in no
 * cookie. The key costs scrypt, once in a process: else a stolen cookie would let guesses at a weak token run at full speed.
 *
 * What has to be remembered is what was ended early (signing out): a small list that the replicas share (`ended.ts`).
 *
 * `csrf` is what a page of ours has to send along with every change: it is worked out of the same key, and only the answer to a
 * page of the same origin tells it.
 */
import { createHmac, randomBytes, scrypt, timingSafeEqual } from 'node:crypto';
import type { Clock } from '../../base/clock.ts';
import type { Operator, Operators } from '../api/operators.ts';

export interface Session {
  readonly operator: Operator;
  /** By chance; names it, and is no secret. */
  readonly id: string;
  /** Wall clock. */
  readonly begunMs: number;
  readonly untilMs: number;
  readonly csrf: string;
}

/** What was ended early and would be good otherwise, by operator. */
export type Ended = Readonly<Record<string, EndedOf>>;

export interface EndedOf {
  /** Ids, and until when each would have been good. */
  readonly ids: Readonly<Record<string, number>>;
  /** All that were begun up to then (wall clock); 0 = none. */
  readonly beforeMs: number;
}

export interface SessionsParts {
  readonly operators: Operators;
  readonly env: string;
  readonly sessionMs: number;
  readonly clock: Clock;
  /** How a key is made of a token's digest. Default: scrypt. */
  readonly derive?: (digest: Buffer, salt: string) => Promise<Buffer>;
}

const ID_BYTES = 18;
/** Of one operator. When there are more, all of that operator's sessions end: safer than to forget one. */
const MAX_ENDED = 64;
/** Clocks of two machines may differ by so much. */
const MAX_SKEW_MS = 300_000;
const COOKIE_MAX_CHARS = 400;
/** Of scrypt: 16 MiB and some 40 ms, once for each operator in a process. */
const SCRYPT = Object.freeze({ N: 16_384, r: 8, p: 1 });

export class Sessions {
  /** Not bound to a port by browsers: so the environment's name is in it. */
  readonly cookieName: string;
  readonly #parts: SessionsParts;
  readonly #keys = new Map<string, Promise<Buffer>>();
  readonly #ended = new Map<string, EndedOf>();

  constructor(parts: SessionsParts) {
    this.#parts = parts;
    this.cookieName = `reach-session-${parts.env}`;
  }

  /** @returns the session, and the value of its cookie */
  async begin(operator: Operator): Promise<{ readonly session: Session; readonly cookie: string }> {
    const key = await this.#keyOf(operator.name);
    if (key === null) throw new Error('a session of nobody');
    // In whole milliseconds, as the cookie has it.
    const begunMs = Math.floor(this.#parts.clock.wallMs());
    const id = randomBytes(ID_BYTES).toString('base64url');
    const said = `${operator.name}.${begunMs.toString(36)}.${id}`;
    return { session: this.#session(key, operator, id, begunMs), cookie: `${said}.${macOf(key, 'session', said)}` };
  }

  /** Null = no session, whatever is wrong with the cookie. @param header `Cookie` as it came */
  async read(header: string | undefined): Promise<Session | null> {
    const value = cookieIn(header, this.cookieName);
    if (value === null || value.length > COOKIE_MAX_CHARS) return null;
    const [name = '', begun = '', id = '', mac = '', ...more] = value.split('.');
    const operator = this.#parts.operators.named(name);
    if (operator === null || more.length > 0 || !/^[0-9a-z]{1,11}$/.test(begun) || !/^[\w-]{24}$/.test(id)) return null;
    const key = await this.#keyOf(name);
    if (key === null || !isSame(mac, macOf(key, 'session', `${name}.${begun}.${id}`))) return null;
    const session = this.#session(key, operator, id, Number.parseInt(begun, 36));
    return this.isGood(session) ? session : null;
  }

  /** Not over, and not ended. */
  isGood({ operator, id, begunMs, untilMs }: Session): boolean {
    const now = this.#parts.clock.wallMs();
    if (now >= untilMs || begunMs > now + MAX_SKEW_MS) return false;
    const ended = this.#ended.get(operator.name);
    return ended === undefined || (begunMs > ended.beforeMs && !Object.hasOwn(ended.ids, id));
  }

  /** Whether a change was sent by a page that has been told it. */
  isCsrf(session: Session, given: string | undefined): boolean {
    return given !== undefined && isSame(given, session.csrf);
  }

  /** Here and now. @param isEverywhere all sessions of the same operator that have been begun by now */
  end({ operator, id, untilMs }: Session, isEverywhere: boolean): void {
    const beforeMs = isEverywhere ? Math.floor(this.#parts.clock.wallMs()) : 0;
    this.take({ [operator.name]: { ids: isEverywhere ? {} : { [id]: untilMs }, beforeMs } });
  }

  /** What was ended elsewhere comes on top of what was ended here. */
  take(more: Ended): void {
    const now = this.#parts.clock.wallMs();
    for (const [name, { ids, beforeMs }] of Object.entries(more)) {
      const here = this.#ended.get(name);
      const all: Record<string, number> = {};
      for (const each of [here?.ids ?? {}, ids]) for (const [id, untilMs] of Object.entries(each)) if (untilMs > now) all[id] = untilMs;
      const isMany = Object.keys(all).length > MAX_ENDED;
      const before = Math.max(here?.beforeMs ?? 0, beforeMs, isMany ? Math.floor(now) : 0);
      this.#ended.set(name, { ids: isMany ? {} : all, beforeMs: before });
    }
  }

  /** All that was ended and would be good otherwise. */
  get ended(): Ended {
    return Object.fromEntries(this.#ended);
  }

  /** `Set-Cookie` that begins it, or (value '') takes it away. */
  setCookie(value: string, isSecure: boolean): string {
    const age = value === '' ? 0 : Math.floor(this.#parts.sessionMs / 1_000);
    return `${this.cookieName}=${value}; Path=/; Max-Age=${age}; HttpOnly; SameSite=Strict${isSecure ? '; Secure' : ''}`;
  }

  #session(key: Buffer, operator: Operator, id: string, begunMs: number): Session {
    return { operator, id, begunMs, untilMs: begunMs + this.#parts.sessionMs, csrf: macOf(key, 'csrf', id) };
  }

  async #keyOf(name: string): Promise<Buffer | null> {
    const known = this.#keys.get(name);
    if (known !== undefined) return known;
    const digest = this.#parts.operators.digestOf(name);
    if (digest === null) return null;
    const key = (this.#parts.derive ?? slowKey)(digest, `agent-reach session ${this.#parts.env} ${name}`);
    this.#keys.set(name, key);
    // For want of memory, say: the next one may have it.
    key.catch(() => this.#keys.delete(name));
    return key;
  }
}

function slowKey(digest: Buffer, salt: string): Promise<Buffer> {
  return new Promise((done, failed) => {
    scrypt(digest, salt, 32, SCRYPT, (error, made) => (error === null ? done(made) : failed(error)));
  });
}

function macOf(key: Buffer, what: 'session' | 'csrf', said: string): string {
  return createHmac('sha256', key).update(`${what} ${said}`, 'utf8').digest('base64url');
}

/** Of texts that are both of the same length or different anyway; the time tells nothing of where they differ. */
function isSame(given: string, right: string): boolean {
  const [a, b] = [Buffer.from(given, 'utf8'), Buffer.from(right, 'utf8')];
  return a.length === b.length && timingSafeEqual(a, b);
}

/** The value of one cookie; null when it is not there, or twice: which one counts would be anybody's guess. */
export function cookieIn(header: string | undefined, name: string): string | null {
  if (header === undefined) return null;
  let found: string | null = null;
  for (const pair of header.split(';')) {
    const equals = pair.indexOf('=');
    if (equals < 0 || pair.slice(0, equals).trim() !== name) continue;
    if (found !== null) return null;
    found = pair.slice(equals + 1).trim();
  }
  return found;
}
