/** Settings about who is who: issued identities, and TLS between sidecars. */
import { describe } from '../base/duration.ts';
import type { SecretSource } from '../base/secret.ts';
import { secret } from '../proto/language/process-shapes.ts';
import { mapped, object, optional, required, type Shape } from '../proto/language/reader.ts';
import { choice, duration, isPlainMap, oneOf, text } from '../proto/language/shapes.ts';

export interface IdentityConfig {
  readonly mode: 'enforce' | 'audit';
  /** The sidecar's own; null = it has none. */
  readonly token: SecretSource | null;
}

/** Paths, relative to the settings file. */
export interface MeshTlsConfig {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
  /** Between two looks whether the files have changed. */
  readonly reloadMs: number;
}

export const identityShape: Shape<IdentityConfig> = object('map', {
  mode: optional(
    oneOf(['enforce', 'audit']),
    '`enforce`: a call of another sidecar whose agent is not proved to be at home there is refused (4001). `audit`: it is let in, logged and counted (`reach_identity_events_total`): to see before it is enforced who would be refused.',
    'enforce' as const,
    'enforce',
  ),
  token: optional<SecretSource, null>(
    secret,
    "The sidecar's own token (`reachctl sidecar add`), by which it is given the control plane's word for its agents: `{env: NAME}`, `{file: path}`, or the text itself. Read anew each time, so that it can be replaced. Absent: its calls to other sidecars are refused there.",
    null,
    'none',
  ),
});

const files = object('map', {
  cert: required(text('a file name'), "this sidecar's certificate in PEM, with those between it and the authority, if there are any"),
  key: required(text('a file name'), 'its private key in PEM'),
  ca: required(
    text('a file name'),
    'the certificates of the authorities that may have signed those of other sidecars, in PEM; two while one takes the place of the other',
  ),
  reload: optional(duration(100, 3_600_000), 'How often it is looked whether a file has changed.', 2_000, '2s'),
});

/** Unquoted, `off` is a word that YAML tools disagree about: it is written `"off"`, or `false`. */
const off: Shape<'off'> = {
  kind: '`"off"`',
  read: (value, place) =>
    value === false || value === 'off' ? 'off' : place.bad(`${place.name} must be {cert, key, ca} or "off", not ${describe(value)}`),
  schema: () => ({ enum: ['off', false] }),
};

export const meshTlsShape: Shape<MeshTlsConfig | 'off'> = {
  ...choice<MeshTlsConfig | 'off'>('{cert, key, ca} or `"off"`', [
    { accepts: (value) => typeof value !== 'object', shape: off },
    {
      accepts: isPlainMap,
      shape: mapped(files, ({ cert, key, ca, reload }): MeshTlsConfig => ({ cert, key, ca, reloadMs: reload })),
    },
  ]),
  fields: files.fields ?? {},
};
