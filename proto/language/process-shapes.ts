/** What the settings of every program of ours have in common: where it listens, what it calls itself, where a secret is kept. */
import { AllowList, NOTHING_ALLOWED } from '../../base/address-guard.ts';
import { quote } from '../../base/duration.ts';
import type { SecretSource } from '../../base/secret.ts';
import { secretRef } from './endpoint.ts';
import { BAD, type Bad, mapped, object, openSource, optional, Place, type Shape } from './reader.ts';
import { choice, flag, isPlainMap, isText, list, oneOf, text } from './shapes.ts';

/** Host and port to bind. */
export interface Listen {
  /** Without brackets. */
  readonly host: string;
  /** 0 = any free one. */
  readonly port: number;
}

export type LogLevel = 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'silent';

/** `127.0.0.1:7700`, `[::1]:7700` or `localhost:7700`. */
export function listenAt(example: string): Shape<Listen> {
  return mapped(text(`a host and a port such as ${example}`), (source, place) => {
    const match = /^(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9][A-Za-z0-9.-]*)):(\d{1,5})$/.exec(source.trim());
    const port = Number(match?.[3]);
    if (match === null || port > 65_535)
      return place.bad(
        `${place.name} must be a host and a port such as ${example} (or [::1]${example.slice(example.lastIndexOf(':'))}), not ${quote(source)}`,
      );
    return { host: (match[1] ?? match[2]) as string, port };
  });
}

const TOKEN = /^[!-~]{8,512}$/;

/** A secret: by reference, or written in the file itself (fine for a laptop, not for production). */
export const secret: Shape<SecretSource> = choice<SecretSource>(
  'a token in quotes, {env: NAME} or {file: path}',
  [
    {
      accepts: isText,
      shape: mapped(text('a token'), (literal, place): SecretSource | Bad =>
        TOKEN.test(literal) ? { literal } : place.bad(`${place.name} must have 8 to 512 printable characters without spaces`),
      ),
    },
    { accepts: isPlainMap, shape: secretRef },
  ],
  true,
);

/** A host name as it stands in a Host header, lower case, without port. */
export const hostName: Shape<string> = mapped(
  text('a host name', (value) =>
    /^(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]{0,252})$/.test(value)
      ? null
      : `${quote(value)} is not a host name: write it without scheme and port`,
  ),
  (value) => value.toLowerCase(),
);

const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'silent'] as const;

export const logLevel: Shape<LogLevel> = oneOf(LEVELS);

/** `nats://host:port`, `tls://host:port`, several joined by commas; never with credentials in them. */
export const natsUrl: Shape<string> = text('the address of a NATS server such as nats://127.0.0.1:4222', (value) => {
  for (const each of value.split(',')) {
    const match = /^(?:(?:nats|tls):\/\/)?(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]*)(?::(\d{1,5}))?$/.exec(each.trim());
    if (each.includes('@')) return 'the address of a NATS server holds no user name or password: name the secret under credential';
    if (match === null || Number(match[2] ?? 0) > 65_535)
      return `${quote(each)} is not the address of a NATS server: write one such as nats://127.0.0.1:4222`;
  }
  return null;
});

/** Name of the environment: one token of a subject. */
export const environmentName: Shape<string> = text('the name of an environment', (value) =>
  /^[a-zA-Z0-9_-]{1,64}$/.test(value) ? null : `${quote(value)} is not the name of an environment: 1 to 64 of a-z, A-Z, 0-9, _ and -`,
);

/** What an absent group of fields means: every default inside it. */
export function defaultsOf<T>(shape: Shape<T>): T {
  const { source } = openSource('{}', 'defaults');
  const read = shape.read({}, new Place(source));
  if (read === BAD) throw new Error(`a default is missing: ${source.problems[0]?.message ?? ''}`);
  return Object.freeze(read);
}

/** How a program proves itself to NATS. All parts absent = it does not. */
export const natsCredential = object('map', {
  user: optional(text('a user name'), 'User name.', null),
  password: optional(secret, 'Its password: {env: NAME}, {file: path}, or the text itself.', null),
  token: optional(secret, 'A token instead of user and password.', null),
  creds_file: optional(text('a path'), 'A `.creds` file instead, as `nsc` writes it.', null),
  nkey: optional(
    secret,
    'The seed of an nkey instead (`reachctl nats`): best {file: path}, which is read anew at each connect, so that a new key needs no restart.',
    null,
  ),
});

/** TLS towards NATS. All parts absent = plain, unless the address or the server asks for it. */
const natsTls = object('map', {
  ca: optional(text('a path'), 'Whose signature the certificate of the server must bear; absent: one that the system knows.', null),
  cert: optional(text('a path'), 'The certificate of this program, where the server asks for one.', null),
  key: optional(text('a path'), 'Its key.', null),
});

export interface NatsTls {
  readonly caFile: string | null;
  readonly certFile: string | null;
  readonly keyFile: string | null;
}

/** Read anew at each connect. */
export const natsTlsShape: Shape<NatsTls> = mapped(natsTls, ({ ca, cert, key }, place) =>
  (cert === null) === (key === null) ? { caFile: ca, certFile: cert, keyFile: key } : place.bad('cert and key go together'),
);

const allowList: Shape<AllowList> = mapped(list(text('an address, a network or a host name'), 1_000), (entries, place) => {
  for (const [i, entry] of entries.entries()) {
    const parsed = AllowList.parse([entry]);
    if ('problem' in parsed) return place.at(i).bad(parsed.problem);
  }
  return AllowList.parse(entries) as AllowList;
});

/** Where addresses that somebody else wrote may lead beside the Internet. */
export const addressesShape = object('map', {
  allow: optional(
    allowList,
    'Addresses (`10.1.2.3`), networks (`10.1.0.0/16`), host names (`billing.internal`), or all below one (`*.internal`).',
    NOTHING_ALLOWED,
    'none',
  ),
  loopback: optional(flag, 'This machine: for a laptop, where every agent is on it.', false, 'false'),
  private: optional(
    flag,
    'All networks that are not routed on the Internet (10/8, 172.16/12, 192.168/16, 100.64/10, fc00::/7).',
    false,
    'false',
  ),
});
