/**
 * Who is who, as it travels: what a token claims, which keys may have signed it, what has been taken back, and how a
 * sidecar asks for the statements that its agents are at home with it. Tokens are JWTs signed with Ed25519; how one is
 * judged is `token.ts`.
 */
import type { Refusal } from './registry.ts';

/** `typ` of every token of ours, so that a JWT that was made for something else never counts here. */
export const TOKEN_TYPE = 'reach+jwt';

/**
 * `agent`: shown by an agent to its sidecar, and never passed on. `sidecar`: shown by a sidecar to the control plane.
 * `home`: shown by a sidecar to its peers, that an agent calls through it.
 */
export type Audience = 'agent' | 'sidecar' | 'home';

export interface Claims {
  /** `reach:<env>` */
  readonly iss: string;
  /** `team.role.id`, of a sidecar its name. */
  readonly sub: string;
  readonly aud: Audience;
  /** Seconds since 1970, as JWT has them. */
  readonly iat: number;
  readonly nbf: number;
  readonly exp: number;
  readonly jti: string;
  /** Of an agent: the sidecars it may call through; absent = any of the environment. */
  readonly homes?: readonly string[];
  /** Of a home statement: the sidecar. */
  readonly via?: string;
}

export function issuerOf(env: string): string {
  return `reach:${env}`;
}

/** Something that was issued and does not count any more. */
export interface RevokedToken {
  readonly jti: string;
  /** From when, seconds since 1970: a token that is being rotated ends later than it is taken back. */
  readonly from: number;
  /** Until when it would have counted: later the entry says nothing. */
  readonly until: number;
}

/** Everything that was issued to somebody until then: tokens, home statements, and of a sidecar its certificates. */
export interface RevokedSubject {
  readonly kind: 'agent' | 'sidecar';
  readonly sub: string;
  /** Issued at this second or earlier. */
  readonly before: number;
  readonly until: number;
}

/** Pushed under the tail `trust`. */
export interface TrustState {
  readonly wire: number;
  readonly epoch: string;
  readonly env: string;
  /** Keys whose signatures count. None = nothing that is signed counts. */
  readonly keys: readonly { readonly kid: string; readonly public: string }[];
  readonly tokens: readonly RevokedToken[];
  readonly subjects: readonly RevokedSubject[];
}

/** `ctl.home`: a sidecar asks for statements. Answered with `HomeAnswer`. */
export interface HomeRequest {
  readonly wire: number;
  readonly sidecar: string;
  readonly instance: string;
  /** The sidecar's own; '' = it has none. */
  readonly token: string;
  /** At most `HOMES_PER_REQUEST`. */
  readonly agents: readonly string[];
}

export interface HomeAnswer {
  readonly wire: number;
  readonly ok: boolean;
  /** Agent → signed statement. */
  readonly homes: Readonly<Record<string, string>>;
  /** Agent '' = the request as a whole. */
  readonly refused: readonly Refusal[];
}

/** A statement has about 400 bytes. */
export const HOMES_PER_REQUEST = 200;

/** The name in a sidecar's certificate (URI SAN). */
export function sidecarUri(env: string, sidecar: string): string {
  return `reach://${env}/sidecar/${sidecar}`;
}
