/**
 * What a route is: the handler and everything that is said about it, in one place, from which both the router and the
 * OpenAPI document are made.
 */
import { repeatedName } from '../../base/json-repeats.ts';
import type { Session } from '../sessions/sessions.ts';
import type { Operator } from './operators.ts';
import { Refused } from './problem.ts';

export interface Asked {
  readonly params: Readonly<Record<string, string>>;
  /** Each name once: a repeated one is refused before. */
  readonly query: Readonly<Record<string, string>>;
  /** As it came; '' = none. */
  readonly body: string;
  /** Who asks; null on routes that are open to everybody. */
  readonly operator: Operator | null;
  /** By which the operator is known, when a browser asks; null = by token. */
  readonly session: Session | null;
  readonly from: From;
}

/** Where it came from. */
export interface From {
  /** Of the other end of the connection. */
  readonly address: string;
  /** A browser says that its page was loaded by TLS, or a proxy that it was asked so. */
  readonly isSecure: boolean;
}

export type Answered =
  | { readonly status: number; readonly json: unknown; readonly headers?: Readonly<Record<string, string>> }
  | { readonly status: number; readonly text: string; readonly contentType: string };

/** An answer that goes on: lines are written until the asker goes away or `end` is called. */
export interface Streaming {
  /** Called once the head is out; gives what is to be called when the asker is gone. */
  start(out: { event(name: string, data: unknown): boolean; end(): void }): () => void;
}

export type Reply = Answered | Streaming | Refused;

export interface Described {
  readonly name: string;
  readonly doc: string;
  readonly example?: string;
}

export interface Route {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** As fastify writes it: `/v1/providers/:id/drain`. */
  readonly path: string;
  /** `open`: no token needed. */
  readonly role: 'open' | 'viewer' | 'operator';
  /** Only the leader can answer; the others send the asker there. */
  readonly onLeader: boolean;
  readonly summary: string;
  /** Of orders that record nothing themselves: what they are called in the audit log. */
  readonly action?: string;
  readonly params?: readonly Described[];
  readonly query?: readonly Described[];
  /** What the body is. `maxBytes`: less than the port takes as a whole. */
  readonly body?: {
    readonly contentType: 'application/json' | 'application/yaml';
    readonly doc: string;
    readonly schema: unknown;
    readonly maxBytes?: number;
  };
  /** Takes long, and all else waits meanwhile: answered one after the other. */
  readonly isDear?: true;
  /** What a success looks like. */
  readonly answer: { readonly status: number; readonly doc: string; readonly contentType?: string; readonly schema?: unknown };
  readonly handle: (asked: Asked) => Reply | Promise<Reply>;
}

export const json = (value: unknown, status = 200): Answered => ({ status, json: value });

/** A JSON body as a map; a sentence when it is none. */
export function bodyMap(asked: Asked): Readonly<Record<string, unknown>> | string {
  if (asked.body.trim() === '') return {};
  let value: unknown;
  try {
    value = JSON.parse(asked.body) as unknown;
  } catch {
    return 'the body is not JSON';
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return 'the body must be a JSON object';
  const twice = repeatedName(asked.body);
  if (twice !== null) return `${JSON.stringify(twice.slice(0, 80))} stands in the body twice: which one counts would be anybody's guess`;
  return value as Readonly<Record<string, unknown>>;
}

/** The first key that is not known, as a sentence; null when all are. */
export function strayKey(map: Readonly<Record<string, unknown>>, known: readonly string[]): string | null {
  for (const key of Object.keys(map))
    if (!known.includes(key)) return `unknown key ${JSON.stringify(key.slice(0, 80))}: known are ${known.join(', ')}`;
  return null;
}

/** The first query parameter that a route does not know, as a sentence; null when it knows all. */
export function strayQuery(route: Route, query: Readonly<Record<string, string>>): string | null {
  const known = (route.query ?? []).map(({ name }) => name);
  for (const key of Object.keys(query))
    if (!known.includes(key))
      return `unknown query parameter ${JSON.stringify(key.slice(0, 80))}: ${known.length === 0 ? 'this path takes none' : `known are ${known.join(', ')}`}`;
  return null;
}

export function isRefused(reply: Reply): reply is Refused {
  return reply instanceof Refused;
}
