/**
 * Who is asking, by token. Every presented token is hashed and held against every known one, so that neither the time
 * nor the answer tells how near a wrong one was; the answer to no token, a wrong one and a malformed one is the same.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { Role } from '../config.ts';

export interface Operator {
  readonly name: string;
  readonly role: Role;
}

interface Known {
  readonly digest: Buffer;
  readonly operator: Operator;
}

const PREFIX = 'bearer ';

export class Operators {
  readonly #known: readonly Known[];

  constructor(tokens: readonly { readonly name: string; readonly role: Role; readonly token: string }[]) {
    this.#known = tokens.map(({ name, role, token }) => ({ digest: digestOf(token), operator: Object.freeze({ name, role }) }));
  }

  /** Null = nobody we know. */
  of(authorization: string | undefined): Operator | null {
    const isBearer = authorization !== undefined && authorization.slice(0, PREFIX.length).toLowerCase() === PREFIX;
    const digest = digestOf(isBearer ? authorization.slice(PREFIX.length).trim() : '');
    let found: Operator | null = null;
    for (const { digest: known, operator } of this.#known) if (timingSafeEqual(known, digest)) found = operator;
    return isBearer ? found : null;
  }

  /** Null = nobody is called so. */
  named(name: string): Operator | null {
    return this.#known.find(({ operator }) => operator.name === name)?.operator ?? null;
  }

  /** SHA-256 of an operator's token, out of which keys are made; null = nobody is called so. */
  digestOf(name: string): Buffer | null {
    return this.#known.find(({ operator }) => operator.name === name)?.digest ?? null;
  }
}

function digestOf(token: string): Buffer {
  return createHash('sha256').update(token, 'utf8').digest();
}

/** An operator may do all that a viewer may. */
export function mayAct(operator: Operator, role: Role): boolean {
  return role === 'viewer' || operator.role === 'operator';
}
