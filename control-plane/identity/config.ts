/** Settings of issued identities: which key signs, which others count, how long what is signed counts. */
import type { SecretSource } from '../../base/secret.ts';
import { secretRef } from '../../proto/language/endpoint.ts';
import { mapped, object, optional, required, type Shape } from '../../proto/language/reader.ts';
import { duration, list } from '../../proto/language/shapes.ts';

export interface IdentityConfig {
  readonly signingKey: SecretSource;
  readonly previousKeys: readonly SecretSource[];
  readonly agentTtlMs: number;
  readonly sidecarTtlMs: number;
  readonly homeTtlMs: number;
  readonly settleMs: number;
}

const DAY_MS = 86_400_000;

export const identityShape: Shape<IdentityConfig> = mapped(
  object('map', {
    signing_key: required(
      secretRef,
      'the Ed25519 key that signs (PEM, `reachctl identity init`): {file: path} or {env: NAME}. All replicas have the same',
    ),
    previous_keys: optional(
      list(secretRef, 16),
      'Other keys whose signatures count, private or public halves (PEM): the key before this one, as long as tokens signed with it are about; or the next one, before it signs.',
      Object.freeze([]) as readonly SecretSource[],
      'none',
    ),
    agent_token_ttl: optional(
      duration(60_000, 400 * DAY_MS),
      "How long an agent's token counts, unless `--ttl` says otherwise. Shorter limits what a stolen one is worth; each has to be replaced in time (`reachctl agent rotate`).",
      90 * DAY_MS,
      '90d',
    ),
    sidecar_token_ttl: optional(duration(60_000, 400 * DAY_MS), "The same for a sidecar's token.", 365 * DAY_MS, '365d'),
    home_ttl: optional(
      duration(60_000, DAY_MS),
      'How long a statement counts that an agent is at home at a sidecar; renewed when half of it is over. For so long calls between sidecars go on while the control plane is away.',
      DAY_MS,
      '24h',
    ),
    settle: optional(
      duration(0, 600_000),
      'A new signing key is pushed first and signs only after this, with the one before it signing until then (where its private half is among `previous_keys`): every sidecar knows a key before it meets its signature.',
      10_000,
      '10s',
    ),
  }),
  (read): IdentityConfig => ({
    signingKey: read.signing_key,
    previousKeys: read.previous_keys,
    agentTtlMs: read.agent_token_ttl,
    sidecarTtlMs: read.sidecar_token_ttl,
    homeTtlMs: read.home_ttl,
    settleMs: read.settle,
  }),
);
