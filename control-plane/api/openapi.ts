/** The OpenAPI document, from the routes themselves: a route that is not described cannot be mounted. */
import { CODES } from '../../proto/wire/codes.ts';
import type { Described, Route } from './route.ts';

type Json = Record<string, unknown>;

export function openApi(routes: readonly Route[], version: string): Json {
  const paths: Record<string, Json> = {};
  for (const route of routes) {
    const path = route.path.replace(/:([a-z]+)/g, '{$1}');
    (paths[path] ??= {})[route.method.toLowerCase()] = operation(route);
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Agent-Reach control plane',
      version,
      description:
        'The registry, what operators order, and the state of the fleet. Every replica answers questions; what changes something is answered by the leader, to which the others redirect (307). Browsers sign in (POST /v1/session) and send a cookie instead of the token; with it, changes must carry X-Reach-Csrf, and a replica that does not lead carries them to the leader itself.',
    },
    components: {
      securitySchemes: { operator: { type: 'http', scheme: 'bearer', description: "An operator's token." } },
      schemas: { Problem: problemSchema() },
      responses: {
        Problem: {
          description: `A refusal, as RFC 9457 describes it. Codes: ${CODES.filter(({ code }) => code !== 0)
            .map(({ code, name }) => `${code} ${name}`)
            .join(', ')}.`,
          content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } },
        },
      },
    },
    paths,
  };
}

function operation(route: Route): Json {
  const parameters = [
    ...(route.params ?? []).map((each) => parameter(each, 'path')),
    ...(route.query ?? []).map((each) => parameter(each, 'query')),
  ];
  const contentType = route.answer.contentType ?? 'application/json';
  const responses: Record<string, Json> = {
    [route.answer.status]: {
      description: route.answer.doc,
      content: {
        [contentType]: { schema: route.answer.schema ?? (contentType === 'application/json' ? { type: 'object' } : { type: 'string' }) },
      },
    },
    default: { $ref: '#/components/responses/Problem' },
  };
  if (route.onLeader) responses['307'] = { description: 'This replica does not lead: ask the one named in Location.' };
  return {
    operationId: `${route.method.toLowerCase()}${route.path.replace(/[/:.]+([a-z])/g, (_, letter: string) => letter.toUpperCase())}`,
    summary: route.summary,
    ...(route.role === 'open' ? { security: [] } : { security: [{ operator: [] }], description: `Needs the role ${route.role}.` }),
    ...(parameters.length > 0 ? { parameters } : {}),
    ...(route.body === undefined
      ? {}
      : { requestBody: { description: route.body.doc, content: { [route.body.contentType]: { schema: route.body.schema } } } }),
    responses,
  };
}

function parameter({ name, doc, example }: Described, where: 'path' | 'query'): Json {
  return {
    name,
    in: where,
    required: where === 'path',
    description: doc,
    schema: { type: 'string' },
    ...(example === undefined ? {} : { example }),
  };
}

function problemSchema(): Json {
  const text = { type: 'string' };
  const place = { type: 'integer', minimum: 0 };
  return {
    type: 'object',
    required: ['type', 'title', 'status', 'detail', 'code', 'name', 'retryable'],
    properties: {
      type: { type: 'string', format: 'uri' },
      title: text,
      status: { type: 'integer' },
      detail: text,
      code: { enum: CODES.map(({ code }) => code) },
      name: { enum: CODES.map(({ name }) => name) },
      retryable: { type: 'boolean' },
      ambiguous: { type: 'boolean' },
      problems: {
        type: 'array',
        description: 'Mistakes in a document, with their places.',
        items: { type: 'object', properties: { file: text, line: place, column: place, path: text, message: text } },
      },
    },
  };
}
