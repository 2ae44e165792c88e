/** What the API answers about issued identities, in the words of its JSON; `_ms` as in `shapes.ts`. */
export type TokenStatus = 'valid' | 'ending' | 'revoked' | 'expired';

export interface TokenView {
  readonly jti: string;
  readonly status: TokenStatus;
  readonly issued_at_ms: number;
  readonly expires_at_ms: number;
  /** When it is taken back, or was; null = nobody has. */
  readonly revoked_from_ms: number | null;
  /** null = any sidecar. */
  readonly homes: readonly string[] | null;
  readonly by: string;
}

export interface IdentityView {
  readonly kind: 'agent' | 'sidecar';
  readonly name: string;
  readonly status: 'valid' | 'revoked' | 'expired';
  /** Newest last. */
  readonly tokens: readonly TokenView[];
}

export interface IdentitiesAnswer {
  readonly identities: readonly IdentityView[];
  /** Keys whose signatures count. */
  readonly keys: readonly { readonly kid: string; readonly public: string; readonly signs: boolean }[];
}

/** The only answer that holds a token. */
export interface IssuedAnswer {
  readonly kind: 'agent' | 'sidecar';
  readonly name: string;
  readonly jti: string;
  readonly token: string;
  readonly expires_at_ms: number;
  readonly homes: readonly string[] | null;
  readonly seq: number;
}

export interface RevokedAnswer {
  readonly kind: 'agent' | 'sidecar';
  readonly name: string;
  readonly revoked: string;
  readonly seq: number;
}
