/** How a provider is reached: the transport, its address, the mapping onto a third party's API, the secret by reference. */
import { quote } from '../../base/duration.ts';
import {
  addressProblem,
  headerNameProblem,
  headerValueProblem,
  inlineSecretProblem,
  pathProblem,
  templateProblem,
  tidyAddress,
} from './http-text.ts';
import { capabilityNameProblem } from './names.ts';
import {
  BAD,
  type FieldTable,
  mapped,
  object,
  optional,
  type Place,
  readPresent,
  required,
  type SchemaNode,
  type Shape,
} from './reader.ts';
import { anyJson, choice, dictionary, hasKey, isPlainMap, isText, oneOf, text } from './shapes.ts';
import type { Credential, Endpoint, HttpMapping, SecretRef } from './types.ts';

const ENV_NAME = /^[A-Za-z_][A-Za-z0-9_]{0,127}$/;

/** A secret by reference; the secret itself is refused here, since such a file is read by many. */
export const secretRef: Shape<SecretRef> = choice<SecretRef>(
  'a reference to a secret, {env: NAME} or {file: path}; the secret itself does not stand in this file',
  [
    {
      accepts: hasKey('env'),
      shape: object('map', {
        env: optional(
          text('the name of an environment variable', (name) =>
            ENV_NAME.test(name) ? null : 'this is not the name of an environment variable: letters, digits and _',
          ),
          'Name of an environment variable.',
          '',
        ),
      }),
    },
    { accepts: hasKey('file'), shape: object('map', { file: optional(text('a path'), 'Path of a file that holds the secret.', '') }) },
  ],
  true,
);

const headerName: Shape<string> = mapped(text('a header name', headerNameProblem), (name) => name.toLowerCase());

const credential: Shape<Credential> = object('map', {
  header: optional(headerName, 'Header that carries the secret.', 'authorization', 'authorization'),
  prefix: optional(text('text', headerValueProblem), 'Put before the secret, such as "Bearer ".', ''),
  secret: required(secretRef, 'where the secret is read: {env: NAME} or {file: path}'),
});

const templateText: Shape<string> = text('a text, perhaps with {/json/pointer} parts', (value) => templateProblem(value));

const headers: Shape<Readonly<Record<string, string>>> = mapped(
  dictionary(
    'header',
    headerNameProblem,
    text("a header's value", (value) => headerValueProblem(value) ?? templateProblem(value)),
    64,
  ),
  (read, place) => {
    const lower = Object.create(null) as Record<string, string>;
    for (const [name, value] of Object.entries(read)) {
      if (name.toLowerCase() in lower) return place.at(name).badKey(`the header ${name.toLowerCase()} stands here twice`);
      const secret = inlineSecretProblem(name, value);
      if (secret !== null) return place.at(name).bad(secret);
      lower[name.toLowerCase()] = value;
    }
    return lower;
  },
);

const body: Shape<HttpMapping['body']> = choice<HttpMapping['body']>('payload, none, or a map or list whose texts are templates', [
  {
    accepts: isText,
    shape: oneOf(['payload', 'none']),
  },
  {
    accepts: (value) => isPlainMap(value) || Array.isArray(value),
    shape: mapped(anyJson, (template, place) => {
      const problem = leafProblem(template);
      return problem === null ? { template } : place.bad(problem);
    }),
  },
]);

function leafProblem(template: unknown): string | null {
  if (typeof template === 'string') return templateProblem(template);
  if (typeof template !== 'object' || template === null) return null;
  for (const leaf of Object.values(template)) {
    const problem = leafProblem(leaf);
    if (problem !== null) return problem;
  }
  return null;
}

const NO_WORDS: Readonly<Record<string, string>> = Object.freeze(Object.create(null) as Record<string, string>);

const mapping: Shape<HttpMapping> = mapped(
  object('mapping', {
    method: optional(oneOf(['GET', 'POST', 'PUT', 'PATCH', 'DELETE']), 'HTTP method.', 'POST' as const, 'POST'),
    path: required(
      text('a path template', (value) => pathProblem(value, ['capability', 'version'], true)),
      'the path, with {/json/pointer} parts filled from the payload, such as /orders/{/order/id}',
    ),
    query: optional(
      dictionary(
        'query parameter',
        (key) => (key.length > 128 ? "a query parameter's name has at most 128 characters" : null),
        templateText,
        64,
      ),
      'Query parameters.',
      NO_WORDS,
    ),
    headers: optional(headers, 'Extra request headers.', NO_WORDS),
    body: optional<HttpMapping['body'], null>(
      body,
      '`payload` sends the payload as it came, `none` sends nothing; a map is a template. Default: `none` for GET and DELETE, else `payload`.',
      null,
    ),
  }),
  (read, place) => {
    const isBodyless = read.method === 'GET' || read.method === 'DELETE';
    if (read.method === 'GET' && read.body !== null && read.body !== 'none')
      return place.at('body').bad('a GET request has no body: use query, or another method');
    for (const [name, value] of Object.entries(read.query)) {
      const secret = inlineSecretProblem(name, value);
      if (secret !== null) return place.at('query', name).bad(secret);
    }
    return { ...read, body: read.body ?? (isBodyless ? 'none' : 'payload') };
  },
);

const mappingKey = (key: string): string | null => (key === '*' ? null : capabilityNameProblem(key));

const NO_MAPPING: Readonly<Record<string, HttpMapping>> = Object.freeze(Object.create(null) as Record<string, HttpMapping>);
const NO_OPTIONS: Readonly<Record<string, unknown>> = Object.freeze(Object.create(null) as Record<string, unknown>);

const address: Shape<string> = mapped(
  text('an http or https address', (value) => addressProblem(value)),
  tidyAddress,
);

const typeField = required(
  text('the name of a transport', (value) =>
    /^[a-z][a-z0-9_-]{0,30}$/.test(value) ? null : `${quote(value)} is not the name of a transport: write one such as http or grpc`,
  ),
  'the transport: http, jsonrpc, grpc, nats, channel, or local (mock in the sandbox); each has keys of its own, see docs/transports.md',
);
const credentialField = optional(credential, 'A secret that the sidecar puts into every request, so that no agent holds it.', null);

export const httpFields = {
  type: typeField,
  address: required(address, 'the base address, such as http://127.0.0.1:8080'),
  path: optional(
    text('a path template', (value) => pathProblem(value, ['capability', 'version'], false)),
    'Path of every capability; {capability} and {version} are filled.',
    null,
    '/{capability}',
  ),
  mapping: optional(
    dictionary('capability', mappingKey, mapping, 256),
    "How to call a third party's API, by capability name (`*` for all).",
    NO_MAPPING,
  ),
  credential: credentialField,
};

const http = object('endpoint', httpFields);

/** What most transports have besides their own keys. */
export const reachedFields = {
  address: optional(text('an address'), 'Whatever the transport takes as an address.', ''),
  credential: credentialField,
} satisfies FieldTable;

const otherFields = { type: typeField, ...reachedFields } satisfies FieldTable;

/** Keys that the transport itself reads and checks go to `options`. */
function readOther(value: Readonly<Record<string, unknown>>, place: Place): Endpoint | typeof BAD {
  const known: Record<string, unknown> = {};
  const options = Object.create(null) as Record<string, unknown>;
  let isWhole = true;
  for (const [key, part] of Object.entries(value)) {
    if (Object.hasOwn(otherFields, key)) known[key] = part;
    else {
      const read = readPresent(anyJson, part, place.at(key));
      if (read === BAD) isWhole = false;
      else options[key] = read;
    }
  }
  const read = object('endpoint', otherFields).read(known, place);
  if (read === BAD || !isWhole) return BAD;
  return {
    type: read.type,
    address: read.address,
    path: null,
    mapping: NO_MAPPING,
    credential: read.credential,
    options: Object.freeze(options),
  };
}

export const endpoint: Shape<Endpoint> = {
  kind: 'endpoint',
  fields: httpFields,
  read(value, place) {
    if (!isPlainMap(value)) return place.bad('endpoint must be a map such as {type: http, address: "http://127.0.0.1:8080"}');
    const map = value as Readonly<Record<string, unknown>>;
    if ('type' in map && map['type'] !== 'http') return readOther(map, place);
    const read = http.read(map, place);
    return read === BAD ? BAD : { ...read, options: NO_OPTIONS };
  },
  schema: () => ({
    type: 'object',
    properties: { type: { type: 'string' } },
    required: ['type'],
    allOf: [{ if: { properties: { type: { const: 'http' } }, required: ['type'] }, then: http.schema() }],
  }),
};

/**
 * The JSON Schema of a file with endpoints in it, when it is known what each transport takes. Here only http is: the others
 * are read by their adapters, which stand above. @param tables by endpoint type, all keys but `type`.
 */
export function withEndpointTypes(schema: SchemaNode, tables: Readonly<Record<string, FieldTable>>): SchemaNode {
  const more = Object.entries(tables).map(([type, fields]) => ({
    if: { properties: { type: { const: type } }, required: ['type'] },
    then: object('endpoint', { type: typeField, ...fields }).schema(),
  }));
  return deepened(schema, more) as SchemaNode;
}

function deepened(node: unknown, more: readonly SchemaNode[]): unknown {
  if (Array.isArray(node)) return node.map((each) => deepened(each, more));
  if (!isPlainMap(node)) return node;
  const copy: Record<string, unknown> = {};
  for (const [key, part] of Object.entries(node as SchemaNode)) {
    const inner = deepened(part, more) as SchemaNode;
    copy[key] = key === 'endpoint' && isOpen(inner) ? { ...inner, allOf: [...(inner['allOf'] as SchemaNode[]), ...more] } : inner;
  }
  return copy;
}

/** The schema of an endpoint, and no other property of that name. */
function isOpen(node: SchemaNode): boolean {
  return isPlainMap(node) && Array.isArray(node['allOf']);
}
