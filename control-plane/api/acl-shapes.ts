/** What the API says of who may call. */
import type { AclVerdict } from '../registry/acl-judge.ts';

/** What one live sidecar says, in the words of its own stages. */
export interface AclEnd {
  readonly sidecar: string;
  /** null = it could not be asked; `words` say why. */
  readonly allowed: boolean | null;
  readonly words: readonly string[];
}

export interface AclTestAnswer {
  readonly caller: string;
  readonly asked: string;
  /** Canonical. */
  readonly capability: string;
  readonly range: string | null;
  /** Nothing stands against the call: identity, list at both ends, overrides. */
  readonly allowed: boolean;
  /** What does, loudest first. */
  readonly against: readonly string[];
  /** What is to be known although it does not stand against it. */
  readonly notes: readonly string[];
  readonly versions: readonly AclVerdict[];
  /** Of the operators' document in which a policy or contract of it last changed; 0 = never said. */
  readonly policies_version: number;
  readonly identity: 'valid' | 'revoked' | 'expired' | 'not issued';
  readonly callers_end: readonly AclEnd[];
  readonly providers_end: readonly AclEnd[];
  readonly overrides: readonly { readonly id: string; readonly action: string; readonly reason: string; readonly author: string }[];
  readonly quotas: readonly { readonly kind: string; readonly target: string }[];
}

export interface AclWhoAnswer {
  readonly capability: string;
  readonly versions: readonly { readonly version: string; readonly acl: readonly string[]; readonly mode: string }[];
  /** Agents that call through some sidecar at present, or are registered, and may call it in some version. */
  readonly agents: readonly { readonly agent: string; readonly by: readonly string[] }[];
}
