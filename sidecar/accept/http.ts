/** The port for agents, on localhost. One line a route: what a route does stands in the file it names. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { CHANNEL_PATH } from '../../proto/wire/channel.ts';
import { Code } from '../../proto/wire/codes.ts';
import { agents, deregister, finished, heartbeat, register } from './agents.ts';
import { refuse } from './answer.ts';
import { cast, messages } from './cast.ts';
import type { AllChannels } from './channel/all-channels.ts';
import { offerChannel, Upgrades } from './channel/upgrade.ts';
import type { Front } from './front.ts';
import { LocalGuard } from './guard.ts';
import { acknowledge, inbox } from './inbox.ts';
import { invoke, notNow, refuseNow } from './invoke.ts';
import { recording } from './recording.ts';
import { rpc, RPC_PATH } from './json-rpc.ts';
import { openApi } from './openapi.ts';
import { capabilities, explain, health, json, metrics, ready } from './pages.ts';
import { intercept, refuseTunnel } from './proxy.ts';
import { isProxied, ProxyGuard } from './proxy-guard.ts';
import { resetRate, setRate } from './rates.ts';
import { targetAfter } from './request.ts';
import { Port } from './server.ts';
import { stream } from './stream.ts';
import { cancelTask, extendTask, task, taskDone } from './tasks.ts';
import { traceHeld } from './traces.ts';

const INVOKE = '/v1/invoke/';
const STREAM = '/v1/stream/';
const EXPLAIN = '/v1/explain/';
const CAST = '/v1/cast/';
const TASK = '/v1/tasks/:task';
const INBOX = '/v1/inbox';
const AGENTS = '/v1/agents';
const RECORDING = '/v1/recording';
const RATE = '/v1/rates/:agent';
const TRACE = '/v1/traces/:trace';

type Handler = (request: FastifyRequest, reply: FastifyReply) => void;

export function httpPort(front: Front, channels: AllChannels | null = null): Port {
  const { allowedHosts, listen, socket } = front.engine.config;
  const guard = new LocalGuard(allowedHosts);
  const proxyGuard = new ProxyGuard(allowedHosts);
  const { apiToken } = front;
  const port = new Port(front, {
    listen,
    ...(socket === null ? {} : { socket }),
    guard: (request) => (isProxied(request) ? proxyGuard : guard).check(request) ?? (apiToken === null ? null : apiToken.check(request)),
    proxy: {
      isMeant: isProxied,
      serve: (request, response) => intercept(front, request, response),
      tunnel: (request, socket) => refuseTunnel(front, request, socket),
    },
    ...(channels === null ? {} : { upgrades: new Upgrades(channels) }),
  });
  const { app } = port;
  const onInvoke: Handler = (request, reply) => {
    reply.hijack();
    if (!notNow(front, reply.raw)) void invoke(front, request.raw, reply.raw, askedBy(request, INVOKE), request.body);
  };
  const onStream: Handler = (request, reply) => {
    reply.hijack();
    if (!notNow(front, reply.raw)) void stream(front, request.raw, reply.raw, askedBy(request, STREAM), request.body);
  };
  const onExplain: Handler = (request, reply) => {
    reply.hijack();
    if (!notNow(front, reply.raw)) explain(front, request.raw, reply.raw, askedBy(request, EXPLAIN), request.body);
  };
  app.post(`${INVOKE}*`, onInvoke);
  app.route({ method: ['GET', 'POST'], url: `${STREAM}*`, handler: onStream });
  app.route({ method: ['GET', 'POST'], url: `${EXPLAIN}*`, handler: onExplain });
  app.post(
    `${CAST}*`,
    page((request, reply) => {
      if (!notNow(front, reply.raw)) void guarded(front, reply, cast(front, request.raw, reply.raw, askedBy(request, CAST), request.body));
    }),
  );
  app.post(
    '/v1/messages',
    page((request, reply) => {
      if (!notNow(front, reply.raw)) void guarded(front, reply, messages(front, request.raw, reply.raw, request.body));
    }),
  );
  app.get(
    TASK,
    page((request, reply) => void guarded(front, reply, task(front, request.raw, reply.raw, taskIn(request)))),
  );
  app.delete(
    TASK,
    page((request, reply) => void guarded(front, reply, cancelTask(front, request.raw, reply.raw, taskIn(request)))),
  );
  app.post(
    `${TASK}/done`,
    page((request, reply) => void guarded(front, reply, taskDone(front, request.raw, reply.raw, taskIn(request), request.body))),
  );
  app.post(
    `${TASK}/extend`,
    page((request, reply) => extendTask(front, request.raw, reply.raw, taskIn(request))),
  );
  app.get(
    INBOX,
    page((request, reply) => void guarded(front, reply, inbox(front, request.raw, reply.raw))),
  );
  app.post(
    `${INBOX}/ack`,
    page((request, reply) => void guarded(front, reply, acknowledge(front, request.raw, reply.raw, request.body))),
  );
  app.post(
    RPC_PATH,
    page((request, reply) => void guarded(front, reply, rpc(front, request.raw, reply.raw, request.body))),
  );
  app.get(
    '/v1/capabilities',
    page((request, reply) => {
      // While the table is not there an empty list would be a lie.
      if (!front.table.ready) refuseNow(front, reply.raw);
      else capabilities(front, request.raw, reply.raw);
    }),
  );
  app.post(
    CHANNEL_PATH,
    page((request, reply) => {
      if (front.draining) refuseNow(front, reply.raw);
      else if (channels === null) refuse(reply.raw, Code.invalid_request, 404, 'no agent can dial in here', 'keep');
      else offerChannel(channels, request.raw, reply.raw);
    }),
  );
  app.get(
    CHANNEL_PATH,
    page((_request, reply) => {
      reply.raw.setHeader('upgrade', 'websocket');
      refuse(reply.raw, Code.invalid_request, 426, 'here a WebSocket is opened, and this request does not ask for one', 'close');
    }),
  );
  app.put(
    RATE,
    page((request, reply) => setRate(front, request.raw, reply.raw, agentIn(request), request.body)),
  );
  app.delete(
    RATE,
    page((request, reply) => resetRate(front, request.raw, reply.raw, agentIn(request))),
  );
  app.get(
    AGENTS,
    page((request, reply) => agents(front, request.raw, reply.raw)),
  );
  app.post(
    AGENTS,
    page((request, reply) => void guarded(front, reply, register(front, request.raw, reply.raw, request.body))),
  );
  app.delete(
    `${AGENTS}/:agent`,
    page((request, reply) => void guarded(front, reply, deregister(front, request.raw, reply.raw, agentIn(request)))),
  );
  app.post(
    `${AGENTS}/:agent/heartbeat`,
    page((request, reply) => heartbeat(front, request.raw, reply.raw, agentIn(request))),
  );
  app.post(
    `${AGENTS}/:agent/finished`,
    page((request, reply) => finished(front, request.raw, reply.raw, agentIn(request))),
  );
  app.route({ method: ['GET', 'HEAD'], url: '/v1/health', handler: page((_request, reply) => health(front, reply.raw)) });
  app.route({ method: ['GET', 'HEAD'], url: '/v1/ready', handler: page((_request, reply) => ready(front, reply.raw)) });
  app.get(
    '/metrics',
    page((request, reply) => void metrics(front, request.raw, reply.raw)),
  );
  app.route({
    method: ['GET', 'POST'],
    url: RECORDING,
    handler: page((request, reply) => void recording(front, request.raw, reply.raw, request.body)),
  });
  app.get(
    TRACE,
    page((request, reply) => traceHeld(front, request.raw, reply.raw, (request.params as Record<string, string>)['trace'] ?? '')),
  );
  app.get(
    '/v1/openapi.json',
    page((_request, reply) => json(reply.raw, 200, openApi())),
  );
  return port;
}

function agentIn(request: FastifyRequest): string {
  return (request.params as Record<string, string>)['agent'] ?? '';
}

function taskIn(request: FastifyRequest): string {
  return (request.params as Record<string, string>)['task'] ?? '';
}

/** What goes wrong on the way to an answer is a fault of ours. */
function guarded(front: Front, reply: FastifyReply, work: Promise<void>): Promise<void> {
  return work.catch((error: unknown) => {
    front.observation.fault(error);
    refuse(reply.raw, Code.internal, 500, 'a fault in Agent-Reach', 'close');
  });
}

/** A page writes its answer itself. */
function page(write: Handler): Handler {
  return (request, reply) => {
    reply.hijack();
    write(request, reply);
  };
}

/** The target as the caller wrote it; the router's own reading only when the path is spelled unusually (`/v1/%69nvoke/…`). */
function askedBy(request: FastifyRequest, prefix: string): string {
  return targetAfter(request.raw.url as string, prefix) ?? (request.params as Record<string, string>)['*'] ?? '';
}
