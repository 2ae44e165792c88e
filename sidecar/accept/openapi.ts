/**
 * The OpenAPI 3.1 document of the agents' port, kept by hand beside the routes: deriving it from per-route schemas would
 * make the framework validate and serialise every call a second time. A test holds it against the routes that exist, and
 * the codes in it come from the closed table. Made once, on first reading.
 */
import { MAX_DURATION_MS } from '../../base/duration.ts';
import { CODES } from '../../proto/wire/codes.ts';
import { FRAMES_TYPE } from '../../proto/wire/frames.ts';
import { Header } from '../../proto/wire/headers.ts';

type Json = { readonly [key: string]: unknown };

let made: Json | null = null;

export function openApi(): Json {
  made ??= document();
  return made;
}

const ref = (place: string): Json => ({ $ref: `#/components/${place}` });
const content = (type: string, schema: Json): Json => ({ [type]: { schema } });
const jsonAnswer = (description: string, schema: Json): Json => ({ description, content: content('application/json', schema) });

function document(): Json {
  return {
    openapi: '3.1.0',
    info: {
      title: 'Agent-Reach sidecar',
      version: '1',
      description:
        'The port that agents use, on localhost. An agent says what it needs; the sidecar decides who serves it and can say why. Requests of web pages (foreign Host, Origin or Sec-Fetch-Site) are refused with 403 on every path. The same port is a forward proxy: with `http_proxy` set to it, `http://<capability>/…` reaches whoever serves the capability, method, path, query, headers and body kept (a range in `Reach-Range`, the token as `Proxy-Authorization`).',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/', description: 'This sidecar' }],
    security: [{ bearer: [] }, { bearer: [], apiToken: [] }],
    tags: [
      { name: 'calls', description: 'Reaching other agents' },
      { name: 'messages', description: 'Durable messages: casts, tasks and what becomes of them' },
      { name: 'looking', description: 'What there is, and how it is doing' },
      { name: 'agents', description: 'Registering with the registry, where there is one' },
    ],
    paths: paths(),
    components: {
      securitySchemes: {
        bearer: {
          type: 'http',
          scheme: 'bearer',
          description: "The token that the sidecar's configuration gives to this agent. Not needed where `anonymous` is set.",
        },
        apiToken: {
          type: 'apiKey',
          in: 'header',
          name: 'Reach-Api-Token',
          description: "The sidecar's own token, beside the agent's, where `sidecar.api_token` is set. Health and readiness do without.",
        },
      },
      parameters: parameters(),
      headers: responseHeaders(),
      responses: responses(),
      schemas: schemas(),
    },
  };
}

const CALL_PARAMETERS: readonly string[] = [
  'Target',
  'DeadlineMs',
  'DeadlineTotalMs',
  'Budget',
  'Step',
  'Affinity',
  'SequenceId',
  'Pin',
  'Tags',
  'Execution',
  'NoRetry',
  'IdempotencyKey',
  'PowerId',
  'Path',
  'Traceparent',
  'Tracestate',
];

const callParameters = (...more: string[]): Json[] => [...CALL_PARAMETERS, ...more].map((name) => ref(`parameters/${name}`));

function paths(): Json {
  const payload = {
    description: 'The payload. JSON as a rule; its bytes are passed on unchanged.',
    required: false,
    content: { 'application/json': { schema: {} }, '*/*': { schema: {} } },
  };
  const invoke = {
    tags: ['calls'],
    operationId: 'invoke',
    summary: 'Call a capability and wait for its Result.',
    parameters: callParameters('Mode', 'ModeQuery', 'Explain'),
    requestBody: payload,
    responses: {
      200: {
        description: "The Result; in raw mode the provider's own status, headers and body, with the rest in Reach-* headers.",
        headers: rawHeaders(),
        content: { ...content('application/json', ref('schemas/Result')), '*/*': { schema: {} } },
      },
      default: ref('responses/Problem'),
    },
  };
  const stream = (operationId: string, body: Json | null): Json => ({
    tags: ['calls'],
    operationId,
    summary: 'Call a capability and take its answer as it comes.',
    description:
      'Chunks as the provider sends them, unless `Accept` asks for another form. ' +
      "`text/event-stream`: a provider's own events pass through; each line of an `application/x-ndjson` body (message-oriented providers: gRPC, NATS) becomes one event; chunks of other text become `data:` lines, other bytes `event: base64`. " +
      'A whole stream of made events ends with `event: end`, a cut one of either kind with `event: error`; their data have the fields of the Result but `data`. A comment every 15 s says that an idle stream lives. ' +
      'One that is cut because a sidecar stops ends with `event: going_away` instead (frames: a cut with `"going_away": true`), whose `resume` is a token: the same request with it in `Reach-Resume` goes to the same provider, which is told in `Last-Event-ID` what the caller has had. ' +
      'One event or line above `limits.event` (1 MiB) ends the stream with 1005. ' +
      `\`${FRAMES_TYPE}\`: binary frames, for heavy streams. Each has a head of six bytes (version 1, type, length of the payload as four bytes, big endian): 1 data, 2 the proper end (payload: the Result but \`data\`, as JSON), 3 a cut (the same, with its \`error\`), 4 a sign of life. The body's own type stands in \`Reach-Content-Type\`. ` +
      'A cut stream of plain chunks breaks off without its last chunk: an HTTP client reports an incomplete answer. ' +
      'Three clocks end a stream that does not go on: `streaming.first_chunk` (1003), `streaming.idle` (1006), the total deadline (5001). A stream whose contract declares `streaming.done`, or that only the end of its connection delimits, ends with 1006 (ambiguous) unless its last word came. Nothing is repeated once the head was sent.',
    parameters: callParameters('Accept', 'Resume'),
    ...(body === null ? {} : { requestBody: body }),
    responses: {
      200: {
        description: 'The answer, as it comes.',
        headers: rawHeaders(),
        content: {
          'text/event-stream': { schema: { type: 'string' } },
          [FRAMES_TYPE]: { schema: { type: 'string', format: 'binary' } },
          '*/*': { schema: {} },
        },
      },
      default: ref('responses/Problem'),
    },
  });
  const explain = (operationId: string, body: Json | null): Json => ({
    tags: ['looking'],
    operationId,
    summary: 'Who would serve this call now, and why every other candidate was left out. Nothing is sent.',
    parameters: callParameters(),
    ...(body === null ? {} : { requestBody: body }),
    responses: { 200: jsonAnswer('The decision.', ref('schemas/Explanation')), default: ref('responses/Problem') },
  });
  const rpc = {
    tags: ['calls'],
    operationId: 'rpc',
    summary: 'JSON-RPC 2.0: one message or a batch.',
    description:
      '`method` is a capability, an alias, or either with `@` and a range; `params` (an object or a list) is its payload, byte for byte, `null` when there are none. `result` is the Result, in raw mode only its data. ' +
      '`error.code` is one of the protocol, or the code of the table for this protocol; `error.data` is the problem document that HTTP would carry. The headers hold for every message of a batch; each is a call of its own before limits and ACL. ' +
      'A notification (no `id`; `"id": null` is none) is a cast: a durable message, never answered; standalone it is carried out without a promise. One that is not accepted, alone or in a batch of nothing else, is told by the status of its code with `Reach-Code` and `Reach-Detail` (how many), without a body; beside answers these headers say it. `reach.cast` takes a message as `POST /v1/messages` does, and is answered; `reach.task` and `reach.cancel_task` with `{task_id}` are what `GET` and `DELETE /v1/tasks/{task}` are. A batch above `limits.batch` is refused whole. `reach.explain` with `{capability, payload?}` answers what `/v1/explain` does. Streams have no form here: use `/v1/stream`. ' +
      'Only a request that is not about any message (no calls are taken now, events are wanted) has another status than 200 and 204; it carries an error with the id `null` all the same.',
    parameters: callParameters('Mode', 'ModeQuery', 'Explain').slice(1),
    requestBody: {
      required: true,
      content: content('application/json', {
        oneOf: [ref('schemas/RpcMessage'), { type: 'array', minItems: 1, items: ref('schemas/RpcMessage') }],
      }),
    },
    responses: {
      200: jsonAnswer('The answer, or those to a batch in the order of its messages; errors too.', {
        oneOf: [ref('schemas/RpcAnswer'), { type: 'array', items: ref('schemas/RpcAnswer') }],
      }),
      204: { description: 'There were only notifications, and all are durable.' },
      406: jsonAnswer('Only events would be accepted.', ref('schemas/RpcAnswer')),
      503: jsonAnswer('No calls are taken now.', ref('schemas/RpcAnswer')),
      default: ref('responses/Problem'),
    },
  };
  const look = (operationId: string, summary: string, responsesOf: Json): Json => ({
    tags: ['looking'],
    operationId,
    summary,
    security: [],
    responses: { ...responsesOf, default: ref('responses/Problem') },
  });
  const health = jsonAnswer('Alive, and in what condition.', ref('schemas/Health'));
  const readiness = {
    200: jsonAnswer('A call can succeed.', ref('schemas/Ready')),
    503: jsonAnswer('Not yet, or not any more.', ref('schemas/Ready')),
  };
  return {
    '/v1/invoke/{target}': { post: invoke },
    '/v1/stream/{target}': { post: stream('stream', payload), get: stream('streamWithoutPayload', null) },
    '/v1/explain/{target}': { post: explain('explainWithPayload', payload), get: explain('explain', null) },
    '/rpc': { post: rpc },
    ...messagePaths(payload),
    '/v1/capabilities': {
      get: {
        tags: ['looking'],
        operationId: 'capabilities',
        summary: 'What the caller may call.',
        responses: {
          200: jsonAnswer('Capabilities with their versions, schemas and examples.', ref('schemas/Capabilities')),
          default: ref('responses/Problem'),
        },
      },
    },
    '/v1/recording': {
      get: {
        tags: ['looking'],
        operationId: 'recording',
        summary: 'By the operator: how the recording of calls stands.',
        responses: { 200: jsonAnswer('How it stands.', ref('schemas/Recording')), default: ref('responses/Problem') },
      },
      post: {
        tags: ['looking'],
        operationId: 'record',
        summary: 'By the operator: start or stop recording calls. What may be kept of them stands in the settings.',
        requestBody: {
          required: true,
          content: content('application/json', {
            type: 'object',
            properties: {
              on: { type: 'boolean' },
              share: { type: 'number', exclusiveMinimum: 0, maximum: 1 },
              capability: { type: 'string' },
              caller: { type: 'string' },
              codes: { type: 'array', items: { type: 'integer' } },
              failed_only: { type: 'boolean' },
            },
            required: ['on'],
          }),
        },
        responses: { 200: jsonAnswer('How it stands now.', ref('schemas/Recording')), default: ref('responses/Problem') },
      },
    },
    '/v1/traces/{trace}': {
      get: {
        tags: ['looking'],
        operationId: 'trace',
        summary:
          'The spans that this sidecar still holds of a trace. An agent sees those of what it asked for or served, the operator all.',
        parameters: [
          {
            name: 'trace',
            in: 'path',
            required: true,
            description: 'The trace id: 32 hex digits.',
            schema: { type: 'string', pattern: '^[0-9a-f]{32}$' },
          },
        ],
        responses: {
          200: jsonAnswer('The spans, by when they began.', { type: 'object' }),
          default: ref('responses/Problem'),
        },
      },
    },
    '/v1/agents': {
      get: {
        tags: ['agents'],
        operationId: 'agents',
        summary: 'The agents that this sidecar registers. An agent sees itself, the operator all.',
        responses: {
          200: jsonAnswer('The agents, and what became of their registration.', ref('schemas/Agents')),
          default: ref('responses/Problem'),
        },
      },
      post: {
        tags: ['agents'],
        operationId: 'register',
        summary: 'Register an agent at this sidecar, or the same agent anew.',
        description:
          'The credential is the agent’s own, or the operator’s (`sidecar.operator_token`). The body is written as in a file: `contracts` (as far as the registry does not know them) and `provider`; `via` is this sidecar. JSON or YAML. The agent then beats (`/heartbeat`), or answers calls, at least once a lease.',
        requestBody: {
          required: true,
          content: {
            ...content('application/json', ref('schemas/Registration')),
            ...content('application/yaml', ref('schemas/Registration')),
          },
        },
        responses: {
          201: jsonAnswer('It is in force.', ref('schemas/Agent')),
          202: jsonAnswer(
            'The control plane cannot be reached now. It will be told; until then the agent is reached through this sidecar only.',
            ref('schemas/Agent'),
          ),
          409: {
            description: 'The registry refuses it (it breaks a contract, for one), with everything that is wrong.',
            content: content('application/problem+json', ref('schemas/Refusal')),
          },
          422: {
            description: 'It cannot be read, with everything that is wrong and where.',
            content: content('application/problem+json', ref('schemas/Refusal')),
          },
          default: ref('responses/Problem'),
        },
      },
    },
    '/v1/agents/{agent}': {
      delete: {
        tags: ['agents'],
        operationId: 'deregister',
        summary: 'Take an agent out. Calls under way end in peace.',
        parameters: [ref('parameters/Agent')],
        responses: {
          204: { description: 'It is out here, and everywhere as soon as the control plane hears of it.' },
          default: ref('responses/Problem'),
        },
      },
    },
    '/v1/agents/{agent}/heartbeat': {
      post: {
        tags: ['agents'],
        operationId: 'heartbeat',
        summary: 'A sign of life. 404: register again.',
        parameters: [ref('parameters/Agent')],
        responses: { 200: jsonAnswer('How it stands.', ref('schemas/Agent')), default: ref('responses/Problem') },
      },
    },
    '/v1/agents/{agent}/finished': {
      post: {
        tags: ['agents'],
        operationId: 'finished',
        summary: 'The agent has made its last call: a sidecar that stops waits for it no more.',
        description:
          'While a sidecar stops it takes the calls with which the agents beside it finish their work, until they have been quiet for `shutdown.quiet`. An agent that says so is not waited for. Harmless at any other time.',
        parameters: [ref('parameters/Agent')],
        responses: { 204: { description: 'Heard.' }, default: ref('responses/Problem') },
      },
    },
    '/v1/channel': {
      post: {
        tags: ['agents'],
        operationId: 'channelTicket',
        summary: 'A ticket with which an agent without a port dials in, for clients that can set no headers on a WebSocket.',
        description:
          'Open a WebSocket at `url` with `?ticket=` behind it. The ticket serves once. A client that can set headers opens `GET /v1/channel` with its credential instead.',
        responses: { 201: jsonAnswer('The address and the ticket.', ref('schemas/ChannelOffer')), default: ref('responses/Problem') },
      },
      get: {
        tags: ['agents'],
        operationId: 'channel',
        summary: 'Dial in: a WebSocket on which the agent is called, and calls. Text frames are JSON-RPC 2.0, stream chunks are binary.',
        parameters: [
          {
            name: 'ticket',
            in: 'query',
            required: false,
            description: 'From `POST /v1/channel`, or from the answer to a registration; absent: the credential is in `Authorization`.',
            schema: { type: 'string' },
          },
        ],
        responses: {
          101: { description: 'The channel is open.' },
          401: {
            description: 'No known credential, or a ticket that is unknown, used or too old.',
            content: content('application/problem+json', ref('schemas/Problem')),
          },
          default: ref('responses/Problem'),
        },
      },
    },
    '/v1/health': {
      get: look('health', 'Alive, and in what condition.', { 200: health }),
      head: look('healthHead', 'The same without a body.', { 200: { description: 'Alive.' } }),
    },
    '/v1/ready': {
      get: look('ready', 'Whether a call can succeed now.', readiness),
      head: look('readyHead', 'The same without a body.', {
        200: { description: 'A call can succeed.' },
        503: { description: 'Not now.' },
      }),
    },
    '/metrics': {
      get: look('metrics', 'Metrics in the Prometheus text format.', {
        200: { description: 'The metrics.', content: content('text/plain', { type: 'string' }) },
      }),
    },
    '/v1/openapi.json': { get: look('openapi', 'This document.', { 200: jsonAnswer('This document.', { type: 'object' }) }) },
  };
}

const CAST_PARAMETERS: readonly string[] = [
  'Role',
  'AgentHeader',
  'MessageType',
  'MessageTags',
  'Priority',
  'Retryable',
  'Expires',
  'WorkingTimeMs',
  'ReplyTo',
  'InReplyTo',
  'SequenceId',
  'Affinity',
  'Execution',
  'IdempotencyKey',
  'PowerId',
  'BestEffort',
  'Path',
  'Traceparent',
  'Tracestate',
];

function messagePaths(payload: Json): Json {
  const rates = Object.fromEntries(
    ['ratelimit-limit', 'ratelimit-remaining', 'ratelimit-reset'].map((name) => [name, ref(`headers/${name}`)]),
  );
  const accepted = {
    202: {
      ...jsonAnswer('It is durable, and where.', ref('schemas/Accepted')),
      headers: { location: { description: 'The task.', schema: { type: 'string' } }, ...rates },
    },
    429: {
      description: 'Above the rate of this agent (3004).',
      headers: { 'retry-after': { schema: { type: 'integer' } }, ...rates },
      content: content('application/problem+json', ref('schemas/Problem')),
    },
    default: ref('responses/Problem'),
  };
  const known = {
    404: { description: 'Not known, or another agent’s.', content: content('application/problem+json', ref('schemas/Problem')) },
  };
  const parameters = [ref('parameters/Task')];
  return {
    '/v1/cast/{target}': {
      post: {
        tags: ['messages'],
        operationId: 'cast',
        summary: 'Hand over a durable message to whoever serves a capability.',
        description:
          'Answered when the message is durable: in the stream, or on this machine’s disk while NATS is away. What becomes of it stands at `GET /v1/tasks/{task}` and in the sender’s inbox. A queue that is full, and NATS and disk away, are 7001: nothing was accepted, unless the detail says that it is in doubt.',
        parameters: ['Target', ...CAST_PARAMETERS].map((name) => ref(`parameters/${name}`)),
        requestBody: payload,
        responses: accepted,
      },
    },
    '/v1/messages': {
      post: {
        tags: ['messages'],
        operationId: 'message',
        summary: 'Hand over a durable message that says everything itself. It may address a role or an agent.',
        description:
          'The same as `/v1/cast`, as one JSON object. `source`, `task_id` and the like are stamped and cannot be said; a field that is not known is refused. The payload’s bytes are passed on unchanged. A message to an agent that offers no `agent.message.handle` lies in that agent’s inbox, if the sender may call it for anything at all; it is `done` once it is there.',
        requestBody: { required: true, content: content('application/json', ref('schemas/Message')) },
        responses: accepted,
      },
    },
    '/v1/tasks/{task}': {
      get: {
        tags: ['messages'],
        operationId: 'task',
        summary: 'What became of a task: its state, its events, its result.',
        description:
          'With `Accept: text/event-stream` each change is an event `state` whose data is the task; the last one has `is_final: true`. A comment every 15 s says that the stream lives.',
        parameters: [
          ...parameters,
          {
            name: 'wait',
            in: 'query',
            required: false,
            description: 'Answer when it has ended, or after this time with its unit, at most 60s.',
            schema: { type: 'string' },
            example: '10s',
          },
        ],
        responses: {
          200: {
            description: 'The task.',
            content: { ...content('application/json', ref('schemas/Task')), 'text/event-stream': { schema: { type: 'string' } } },
          },
          ...known,
          default: ref('responses/Problem'),
        },
      },
      delete: {
        tags: ['messages'],
        operationId: 'cancelTask',
        summary: 'Call a task off.',
        responses: {
          200: jsonAnswer('It was stopped.', ref('schemas/TaskOutcome')),
          202: jsonAnswer(
            'Nobody has it yet: it is called off when somebody takes it, unless that happens in the same moment.',
            ref('schemas/TaskOutcome'),
          ),
          ...known,
          409: {
            description: 'It has ended, or cannot be stopped any more.',
            content: content('application/problem+json', ref('schemas/Problem')),
          },
          default: ref('responses/Problem'),
        },
        parameters,
      },
    },
    '/v1/rates/{agent}': {
      put: {
        tags: ['messages'],
        operationId: 'setRate',
        summary:
          'By the operator, in an emergency: another rate of messages for one agent, at this sidecar alone and until it stops. Stronger than a quota, which `reachctl quota` sets for all of them.',
        parameters: [ref('parameters/Agent')],
        requestBody: {
          required: true,
          content: content('application/json', {
            type: 'object',
            properties: { per_sec: { type: 'number', exclusiveMinimum: 0 }, burst: { type: 'integer', minimum: 1 } },
            required: ['per_sec'],
          }),
        },
        responses: { 200: jsonAnswer('The rate in force.', ref('schemas/AgentRate')), default: ref('responses/Problem') },
      },
      delete: {
        tags: ['messages'],
        operationId: 'resetRate',
        summary: 'By the operator: the rate of the settings again.',
        parameters: [ref('parameters/Agent')],
        responses: { 200: jsonAnswer('The rate in force.', ref('schemas/AgentRate')), default: ref('responses/Problem') },
      },
    },
    '/v1/inbox': {
      get: {
        tags: ['messages'],
        operationId: 'inbox',
        summary: 'What waits for the caller: results and final states of its tasks, and messages to it.',
        description:
          'From a position on, in order. Positions rise and have gaps; `next` is where to go on. With `Accept: text/event-stream` each entry is an event (`state` or `message`) whose id is its position, also those that come later; `Last-Event-ID` takes the place of `from`. One event stream or channel of an agent reads at a time, the last that asked; the former gets an event `end`. Entries are kept for 24 hours, acknowledged or not.',
        parameters: [
          {
            name: 'from',
            in: 'query',
            required: false,
            description: 'Position of the entry that is wanted next. Default: after what is acknowledged.',
            schema: { type: 'integer', minimum: 0 },
          },
          {
            name: 'limit',
            in: 'query',
            required: false,
            description: 'Entries at most.',
            schema: { type: 'integer', minimum: 1, maximum: 1_000, default: 100 },
          },
          {
            name: 'wait',
            in: 'query',
            required: false,
            description: 'Answer when there is an entry, or after this time with its unit, at most 60s.',
            schema: { type: 'string' },
            example: '30s',
          },
        ],
        responses: {
          200: {
            description: 'Entries, perhaps none.',
            content: {
              ...content('application/json', {
                type: 'object',
                properties: {
                  entries: { type: 'array', items: INBOX_ENTRY },
                  next: { type: 'integer', description: 'Ask for this one next.' },
                  floor: { type: 'integer', description: 'Everything up to it is acknowledged.' },
                },
                required: ['entries', 'next', 'floor'],
              }),
              'text/event-stream': { schema: { type: 'string' } },
            },
          },
          409: inboxProblem('There has been nothing at this position.'),
          410: inboxProblem('What was at this position is not kept any more. `inbox.from` is the oldest that is.'),
          default: ref('responses/Problem'),
        },
      },
    },
    '/v1/inbox/ack': {
      post: {
        tags: ['messages'],
        operationId: 'acknowledgeInbox',
        summary: 'Everything up to a position has been taken.',
        requestBody: {
          required: true,
          content: content('application/json', {
            type: 'object',
            properties: { seq: { type: 'integer', minimum: 1 } },
            required: ['seq'],
          }),
        },
        responses: {
          200: jsonAnswer('Up to where; it never goes back.', {
            type: 'object',
            properties: { floor: { type: 'integer' } },
            required: ['floor'],
          }),
          409: inboxProblem('There has been nothing at this position.'),
          default: ref('responses/Problem'),
        },
      },
    },
    '/v1/tasks/{task}/done': {
      post: {
        tags: ['messages'],
        operationId: 'taskDone',
        summary: 'By the agent that has answered 202 to the work: how it ended. The body is the result.',
        parameters: [...parameters, ref('parameters/Status')],
        requestBody: payload,
        responses: {
          200: jsonAnswer('The result is durable.', ref('schemas/TaskOutcome')),
          404: { description: 'The agent has no such task here.', content: content('application/problem+json', ref('schemas/Problem')) },
          409: {
            description: 'It took too long and is somebody else’s by now, in doubt, or has ended: the result is not taken.',
            content: content('application/problem+json', ref('schemas/Problem')),
          },
          default: ref('responses/Problem'),
        },
      },
    },
    '/v1/tasks/{task}/extend': {
      post: {
        tags: ['messages'],
        operationId: 'extendTask',
        summary: 'By the agent that works on it: the time of the try begins anew.',
        parameters,
        responses: {
          200: jsonAnswer('What is left.', { type: 'object', properties: { task_id: { type: 'string' }, left_ms: { type: 'integer' } } }),
          404: { description: 'The agent has no such task here.', content: content('application/problem+json', ref('schemas/Problem')) },
          default: ref('responses/Problem'),
        },
      },
    },
  };
}

function header(name: string, description: string, schema: Json, example?: unknown): Json {
  return { name, in: 'header', required: false, description, schema, ...(example === undefined ? {} : { example }) };
}

function parameters(): Json {
  const ms = { type: 'integer', minimum: 0 };
  const text = { type: 'string' };
  return {
    Agent: {
      name: 'agent',
      in: 'path',
      required: true,
      description: 'An agent id, `team.role.id`.',
      schema: text,
      example: 'crm.order.7f3a',
    },
    Target: {
      name: 'target',
      in: 'path',
      required: true,
      description:
        'A capability, `domain.object.action`, or an alias; with `@` and a semver range after it when the version matters. Percent-encoded where needed.',
      schema: text,
      example: 'crm.order.query@^2.0',
    },
    DeadlineMs: header(
      Header.deadlineMs,
      "What is left of the task's time, whole milliseconds. 0 or less: over already. Absolute times are refused.",
      ms,
      2500,
    ),
    DeadlineTotalMs: header(Header.deadlineTotalMs, 'The whole time that the task had.', ms, 10000),
    WorkingTimeMs: header(
      Header.deadlineTotalMs,
      'Working time of all tries, whole milliseconds from 1 to 2592000000 (30 days). `Reach-Deadline-Ms`, what is left of a call, does not shorten a message.',
      { ...ms, minimum: 1, maximum: MAX_DURATION_MS },
      60000,
    ),
    Budget: header(
      Header.budget,
      "Budgets of the task's steps in their order, milliseconds.",
      text,
      'intent=1500, order=2500, generation=2000',
    ),
    Step: header(Header.step, 'Which step this call is: it may use what is left minus the budgets of the later steps.', text, 'order'),
    Affinity: header(Header.affinity, 'The conversation key: calls with the same key meet the same agent.', text),
    SequenceId: header(Header.sequenceId, "The sender's conversation; the key when no other is given.", text),
    Pin: header(Header.pin, 'The provider that is wanted, by agent id.', text, 'crm.order.a'),
    Resume: header(Header.resume, 'The token that came with the `going_away` of a stream: goes on from there.', text),
    Tags: header(Header.tags, 'Only providers with these tags.', text, 'lang=en, tier=gold'),
    Task: {
      name: 'task',
      in: 'path',
      required: true,
      description: 'The id of a task, as the answer to its submission says it.',
      schema: { type: 'string', pattern: '^[a-z0-9]{8,40}$' },
    },
    Role: header(Header.role, 'Only workers of this role, or with a tag of this name.', text, 'retriever'),
    AgentHeader: header(Header.agent, 'Only this agent.', text, 'crm.order.7f3a'),
    MessageType: header(Header.messageType, '`task_request` when it is left out.', text, 'task_request'),
    MessageTags: header(
      Header.tags,
      'Tags of the message: rules ask for them, and providers whose `target` names them get only what fits.',
      text,
      'lang=de, tenant=acme',
    ),
    Priority: header(Header.priority, 'The lane; a rule may decide otherwise.', { enum: ['high', 'normal', 'low'] }),
    Retryable: header(Header.retryable, 'Whether a failed try may be followed by another.', { enum: ['true', 'false'] }),
    Expires: header(Header.expires, 'When it is given up that nobody has begun, from acceptance, with its unit.', text, '10m'),
    ReplyTo: header(Header.replyTo, 'Where result and states go.', { enum: ['inbox', 'none'] }),
    InReplyTo: header(Header.inReplyTo, 'The id of the task that it belongs to.', text),
    BestEffort: header(
      Header.bestEffort,
      '`1`: where nothing can be durable it is carried out at once as a call, and nothing is promised (`durable: none`).',
      { enum: ['1', '0'] },
    ),
    Status: header(Header.status, 'The agent’s own status: 200 … 299 done (the default), 400 … 599 its error.', { type: 'integer' }),
    NoRetry: header(Header.retry, '`none`: a failed attempt is not followed by another, here or elsewhere; a fallback still is.', {
      enum: ['none'],
    }),
    Execution: header(Header.execution, 'How often the work may run, for this call.', { enum: ['once', 'idempotent', 'keyed'] }),
    IdempotencyKey: header(Header.idempotencyKey, 'The same key with the same payload means the same work. Passed to the provider.', {
      type: 'string',
      maxLength: 256,
    }),
    PowerId: header(Header.powerId, 'The same, minted when the task was created.', { type: 'string', maxLength: 256 }),
    Path: header(Header.path, 'The path so far, as it was received: it is what loops are found by.', text),
    Mode: header(Header.mode, "`raw`: the provider's own answer instead of the envelope.", { enum: ['raw', 'envelope'] }),
    ModeQuery: {
      name: 'mode',
      in: 'query',
      required: false,
      description: 'The same as the header.',
      schema: { enum: ['raw', 'envelope'] },
    },
    Explain: header(Header.explain, '`1` or `true`: the Result carries what every stage decided.', { enum: ['1', 'true'] }),
    Accept: header('accept', `\`text/event-stream\` asks for server-sent events, \`${FRAMES_TYPE}\` for binary frames.`, text),
    Traceparent: header(Header.traceparent, 'W3C trace context. A malformed one starts a new trace and never fails the call.', text),
    Tracestate: header(Header.tracestate, 'W3C trace state.', text),
  };
}

const RAW_HEADERS: Readonly<Record<string, readonly [string, string]>> = {
  Code: [Header.code, 'Code of the Result; 0 = success.'],
  TraceId: [Header.traceId, 'Trace id of the call.'],
  ElapsedMs: [Header.elapsedMs, 'Milliseconds in the sidecar and beyond.'],
  Attempts: [Header.attempts, 'How many attempts were made.'],
  Provider: [Header.provider, 'Agent id of the provider that answered.'],
  Version: [Header.version, 'Version that answered.'],
  Degraded: [Header.degraded, '`true` when a fallback answered.'],
  Replay: [Header.replay, '`true`: the first answer to this key once more; the provider was not asked.'],
  Sandbox: [Header.sandbox, '`true`: a mock answered, and no agent.'],
  DefinitelySuccess: [Header.definitelySuccess, '`true` when an empty or neutral answer is declared to be a success.'],
  Ambiguous: [Header.ambiguous, 'On failure: whether the provider may have acted.'],
  Detail: [Header.detail, 'On failure: why, percent-encoded.'],
  Retry: [Header.retry, 'On failure: `none` when nobody on the way back should repeat the call. An agent passes it on with the answer.'],
  RetryAfterMs: [Header.retryAfterMs, 'When to come back, where it is known.'],
  ContentType: [Header.contentType, 'Of a stream in binary frames: the content type of the body in them.'],
};

function rawHeaders(): Json {
  return Object.fromEntries(Object.entries(RAW_HEADERS).map(([key, [name]]) => [name, ref(`headers/${key}`)]));
}

function responseHeaders(): Json {
  const raw = Object.entries(RAW_HEADERS).map(([key, [, description]]) => [key, { description, schema: { type: 'string' } }] as const);
  const rate = {
    'ratelimit-limit': { description: 'Messages (of calls: calls) at once.', schema: { type: 'integer' } },
    'ratelimit-remaining': { description: 'What is left of them.', schema: { type: 'integer' } },
    'ratelimit-reset': { description: 'Seconds until all are there again.', schema: { type: 'integer' } },
  };
  return { ...Object.fromEntries(raw), ...rate };
}

function responses(): Json {
  return {
    Problem: {
      description: `A failure, as RFC 9457 describes it. Codes and their HTTP status: ${CODES.filter((entry) => entry.code !== 0)
        .map((entry) => `${entry.code} ${entry.name} (${entry.http})`)
        .join(', ')}. 6001 keeps the provider's own status when it is 4xx or 5xx.`,
      headers: {
        'retry-after': { description: 'Seconds, where it is known when to come back.', schema: { type: 'integer' } },
        [Header.retry]: { description: '`none`: nobody on the way back should repeat the call.', schema: { enum: ['none'] } },
      },
      content: content('application/problem+json', ref('schemas/Problem')),
    },
  };
}

function schemas(): Json {
  const text = { type: 'string' };
  const textOrNull = { type: ['string', 'null'] };
  const ms = { type: 'number', minimum: 0 };
  const flag = { type: 'boolean' };
  const count = { type: 'integer', minimum: 0 };
  const code = { enum: CODES.map((entry) => entry.code) };
  const name = { enum: CODES.map((entry) => entry.name) };
  const object = (properties: Json, required: readonly string[] = Object.keys(properties)): Json => ({
    type: 'object',
    properties,
    required,
  });
  const list = (items: Json): Json => ({ type: 'array', items });
  const traceLine = object({ at_ms: ms, stage: text, reason: text, code: { type: 'integer' }, words: text });
  const resultFields = {
    data: {
      description:
        "The provider's answer, byte by byte as it came when it is JSON; text as a string; other bytes as {base64, content_type}.",
    },
    elapsed_ms: ms,
    definitely_success: flag,
    degraded: flag,
    replay: { type: 'boolean', description: 'Only when true: the first answer to this key once more.' },
    sandbox: { type: 'boolean', description: 'Only when true: a mock answered, and no agent.' },
    provider: textOrNull,
    version: textOrNull,
    attempts: list(ref('schemas/Attempt')),
    trace_id: text,
  };
  const sometimes = {
    rate_limit: {
      ...object({ limit: count, remaining: count, reset_ms: ms }),
      description:
        'Of a caller that operators have given a quota of calls: at once, what is left, until all are there again. The same stands in RateLimit headers.',
    },
    cause: { type: 'string', description: 'With a fallback: the failure that led to it.' },
    capability: { ...textOrNull, description: 'With reach-explain: the canonical name.' },
    decision: { ...list(traceLine), description: 'With reach-explain: what every stage decided.' },
  };
  const required = Object.keys(resultFields).filter((key) => key !== 'replay');
  return {
    Error: object({ code, name, message: text, retryable: flag, ambiguous: flag, detail: text }),
    Attempt: object(
      {
        provider: text,
        capability: text,
        version: text,
        at_ms: ms,
        elapsed_ms: ms,
        code,
        status: count,
        started: { enum: ['not_started', 'started', 'done'] },
        name,
        detail: text,
      },
      ['provider', 'version', 'at_ms', 'elapsed_ms', 'code', 'status', 'started'],
    ),
    Result: {
      ...object(
        {
          code: { const: 0 },
          status: { ...count, description: "The provider's status." },
          error: { type: 'null' },
          ...resultFields,
          ...sometimes,
        },
        ['code', 'status', 'error', ...required],
      ),
      description: 'A success. A failure has the same fields in its problem document.',
    },
    Problem: {
      ...object(
        {
          type: { type: 'string', format: 'uri' },
          title: text,
          status: count,
          detail: text,
          instance: text,
          code,
          name,
          retryable: flag,
          ambiguous: flag,
          retry_after_ms: count,
          error: ref('schemas/Error'),
          ...resultFields,
          ...sometimes,
        },
        ['type', 'title', 'status', 'detail', 'code', 'name', 'retryable', 'ambiguous', 'error'],
      ),
      description: 'The Result fields are missing when the request never became a call (unknown path, refused head, sidecar not ready).',
    },
    RpcMessage: {
      ...object(
        {
          jsonrpc: { const: '2.0' },
          method: { ...text, description: '`name`, alias or `name@range`; or `reach.explain`.' },
          params: { type: ['object', 'array', 'null'] },
          id: { type: ['string', 'number', 'null'], description: 'Absent: a notification. It comes back letter by letter.' },
        },
        ['jsonrpc', 'method'],
      ),
      examples: [{ jsonrpc: '2.0', method: 'crm.order.query@^2.0', params: { id: 7 }, id: 1 }],
    },
    RpcAnswer: object(
      {
        jsonrpc: { const: '2.0' },
        result: { description: 'The Result; in raw mode its data alone; for reach.explain the explanation.' },
        error: object({ code: { type: 'integer' }, message: text, data: ref('schemas/Problem') }),
        id: { type: ['string', 'number', 'null'] },
      },
      ['jsonrpc', 'id'],
    ),
    Explanation: object({
      asked: text,
      caller: textOrNull,
      capability: textOrNull,
      range: textOrNull,
      affinity_key: textOrNull,
      table_version: count,
      would_serve: { oneOf: [object({ provider: text, version: text }), { type: 'null' }] },
      refusal: { oneOf: [object({ code, name, detail: text }), { type: 'null' }] },
      decision: list(traceLine),
      candidates: list({ type: 'object' }),
      hints: {
        ...list(text),
        description: 'Headers of the request that begin with `Reach-` and that nothing reads: misspelt ones, as a rule.',
      },
      table_source: text,
      table_stale_because: { ...textOrNull, description: 'Why the table may not be the newest; null when it is.' },
      table_stale_for_ms: ms,
    }),
    Capabilities: object({
      caller: text,
      table_version: count,
      serves: {
        description: 'What the table has the caller itself for, as a provider; null when it is none.',
        oneOf: [object({ endpoint: text, offers: list(text) }), { type: 'null' }],
      },
      capabilities: list(ref('schemas/Capability')),
    }),
    Capability: object({
      name: text,
      aliases: list(text),
      default_range: textOrNull,
      versions: list(
        object({
          version: text,
          description: text,
          execution: { enum: ['once', 'idempotent', 'keyed'] },
          streaming: flag,
          tags: { type: 'object', additionalProperties: text },
          examples: list({}),
          input: { description: 'JSON Schema 2020-12, or null.' },
          output: { description: 'JSON Schema 2020-12, or null.' },
          timeout_ms: ms,
          deadline_ms: ms,
          providers: object({ known: count, usable: count }),
        }),
      ),
    }),
    Accepted: object({
      task_id: text,
      power_id: {
        ...text,
        description: 'The key of the work: the sender’s own, or the one that was minted. Use it when you submit the work again.',
      },
      durable: { enum: ['stream', 'local-disk', 'none'], description: 'none: no promise was asked for.' },
      state: { enum: ['accepted', 'parked'], description: 'parked: nobody is there to work on it now, and it waits.' },
      capability: text,
      version: { ...textOrNull, description: 'null: a role or an agent is addressed.' },
      lane: { enum: ['high', 'normal', 'low'] },
      rule: { ...textOrNull, description: 'The rule that decided.' },
      trace_id: text,
    }),
    Message: {
      ...object(
        {
          target: {
            oneOf: [text, object({ capability: text, role: text, agent: text }, [])],
            description: 'A capability with or without a range, or an object; at least one of the three.',
          },
          capability: { ...text, description: 'Instead of target.' },
          target_role: text,
          target_agent: text,
          message_type: text,
          tags: { type: 'object', additionalProperties: text },
          custom_tags: { type: 'object', additionalProperties: text, description: 'Another name of tags.' },
          sequence_id: text,
          priority: { enum: ['high', 'normal', 'low'] },
          retryable: flag,
          expires: { oneOf: [text, count], description: 'A time with its unit, or milliseconds.' },
          deadline: { ...count, maximum: MAX_DURATION_MS, description: 'Working time of all tries, milliseconds.' },
          reply_to: { enum: ['inbox', 'none'] },
          in_reply_to: text,
          power_id: text,
          execution: { enum: ['once', 'idempotent', 'keyed'] },
          affinity: text,
          best_effort: flag,
          payload: {},
          payload_base64: text,
          content_type: text,
          headers: { type: 'object', additionalProperties: text },
        },
        [],
      ),
      additionalProperties: false,
      examples: [{ target: { role: 'retriever' }, message_type: 'task_request', priority: 'high', payload: { query: 'late orders' } }],
    },
    Task: object({
      task_id: text,
      power_id: text,
      capability: text,
      state: { enum: ['accepted', 'waiting', 'received', 'done', 'failed', 'dead_lettered', 'in_doubt', 'expired', 'parked', 'cancelled'] },
      is_final: flag,
      lane: textOrNull,
      accepted_at_ms: { type: ['integer', 'null'] },
      received_at_ms: { type: ['integer', 'null'], description: 'When its worker had it.' },
      by: { ...textOrNull, description: 'The agent that has it, or had it last.' },
      version: textOrNull,
      attempts: count,
      code,
      cause: textOrNull,
      detail: textOrNull,
      status: count,
      replay: { ...flag, description: 'The result had been made before, for the same key.' },
      trace_id: textOrNull,
      events: list({ type: 'object' }),
      content_type: textOrNull,
      result: { description: 'As `data` of a Result; null = none, or none yet.' },
    }),
    AgentRate: object({ agent: text, limit: count, remaining: count }),
    TaskOutcome: object({ task_id: text, outcome: text }),
    Health: object(
      {
        status: { enum: ['ok', 'stale', 'starting', 'draining'] },
        sidecar: text,
        table: object({
          version: count,
          age_ms: ms,
          source: text,
          stale_because: textOrNull,
          refusals: count,
          problems: list(object({ file: text, line: count, column: count, path: text, message: text })),
        }),
        config_stale: { ...flag, description: 'A change could be missing here.' },
        registry: { oneOf: [ref('schemas/Registry'), { type: 'null' }], description: 'null = standalone.' },
        sandbox: { ...flag, description: 'Only when true: all providers are mocks, and whatever is sent here reaches no agent.' },
        calls: object({ started: count, ended: count, in_flight: count }),
      },
      ['status', 'sidecar', 'table', 'config_stale', 'registry', 'calls'],
    ),
    Recording: object({
      on: flag,
      folder: text,
      filter: object({ share: { type: 'number' }, capability: text, caller: text, codes: list(count), failed_only: flag }),
      bytes: count,
      disk_fails: flag,
      recorded: count,
      not_recorded: object({ disk: count, cpu: count, rotated: count, fault: count }),
    }),
    Registry: object({
      connected: { ...flag, description: 'There is a connection to NATS.' },
      reconnects: count,
      epoch: { ...text, description: 'Of the registry as it is held here; empty = nothing is held yet.' },
      applied_seq: count,
      confirmed: { ...flag, description: 'Everything in scope has been compared since the connection came.' },
      scope: { ...count, description: 'Capabilities that this sidecar may use or hosts.' },
      beacon_ago_ms: { type: ['integer', 'null'], description: 'Since the control plane was last heard.' },
      stale_for_ms: count,
      counters: object({ deltas: count, gaps: count, repairs: count, comparisons: count, epochs: count, reconnects: count }),
      refused: list(object({ tail: text, seq: count, why: text })),
      kept: {
        ...list(object({ capability: text, provider: text })),
        description:
          'Providers that are kept for a while although a registry that has begun anew does not name them: they have answered lately.',
      },
      announced: { ...flag, description: 'The registry has been told all that is to be told.' },
      announce_trouble: textOrNull,
      agents: object({ pending: count, in_force: count, refused: count, gone: count }),
      own_file_trouble: { ...textOrNull, description: 'Why the newest own file is not what is announced.' },
      unusable: {
        ...list(object({ provider: text, why: text })),
        description: 'Providers that the registry names and this sidecar cannot reach.',
      },
    }),
    Registration: {
      ...object({ contracts: list({ type: 'object' }), provider: { type: 'object' } }, ['provider']),
      description: 'As in a table file; `reach-sidecar schema` prints the whole form.',
      examples: [
        {
          contracts: [{ name: 'crm.order.query', version: '2.1.0', description: 'Find orders of a customer', acl: 'public' }],
          provider: {
            agent_id: 'crm.order.7f3a',
            offers: ['crm.order.query@2.1.0'],
            endpoint: { type: 'http', address: 'http://127.0.0.1:8080' },
          },
        },
      ],
    },
    Agent: object({
      agent: text,
      state: {
        enum: ['pending', 'in_force', 'refused', 'gone'],
        description:
          'gone: nothing was heard of it for a whole lease, and it is back with its next beat; or it dials in, and is not connected.',
      },
      source: { enum: ['file', 'api'] },
      seq: count,
      offers: list(text),
      code: { ...count, description: 'Why it was refused; 0 = it was not.' },
      problems: list(text),
      warnings: list(text),
      idle_ms: count,
      lease_ms: count,
      channel: { ...ref('schemas/ChannelOffer'), description: 'In the answer to a registration with `endpoint: {type: channel}`.' },
    }),
    ChannelOffer: object({ url: text, ticket: text, expires_in_ms: count }),
    Agents: object({ sidecar: text, agents: list(ref('schemas/Agent')) }),
    Refusal: {
      allOf: [ref('schemas/Problem'), object({ problems: list(text) })],
      description: 'With everything that is wrong.',
    },
    Ready: object({
      ready: flag,
      status: { enum: ['ok', 'stale', 'starting', 'draining'] },
      why: { type: ['string', 'null'], description: 'Why it is not ready; null = it is.' },
      lacks: { type: 'array', items: { type: 'string' }, description: 'What does not work although calls do.' },
    }),
  };
}

const INBOX_ENTRY = {
  type: 'object',
  description:
    'Beside these, what is said of the task (`state`, `code`, `detail`, `by`, `version`, `attempts`, …) or of the message (`source`, `message_type`, `tags`, `sequence_id`, `in_reply_to`, …). A state that is not final is `received` (the agent has it) or `waiting` (for its next try).',
  properties: {
    seq: { type: 'integer', description: 'Its position.' },
    kind: { type: 'string', enum: ['state', 'message'] },
    task_id: { type: 'string' },
    data: { description: 'JSON as its author wrote it, text as a string, other bytes as {base64, content_type}; null = none.' },
  },
  required: ['seq', 'kind', 'task_id', 'data'],
} as const;

function inboxProblem(description: string): object {
  return {
    description,
    content: content('application/problem+json', {
      allOf: [
        ref('schemas/Problem'),
        {
          type: 'object',
          properties: {
            inbox: {
              type: 'object',
              properties: {
                why: { type: 'string', enum: ['gone', 'ahead', 'invalid', 'unreachable'] },
                from: { type: 'integer', description: 'From here on it would succeed; 0 = not known.' },
              },
            },
          },
        },
      ],
    }),
  };
}
