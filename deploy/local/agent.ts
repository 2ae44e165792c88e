/**
 * What every agent of the demo team is: a plain HTTP server on localhost and nothing of Agent-Reach inside. It is asked
 * with `POST /{capability}`, counts what it was asked, and asks others through its own sidecar, handing on the path, the
 * trace and what is left of the time. `GET /_count` and `POST /_control` are for the demo's eyes and hands only.
 */
import { appendFileSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

/** One request to this agent. */
export interface Asked {
  readonly payload: Readonly<Record<string, unknown>>;
  /** The conversation; '' when the caller named none. */
  readonly session: string;
  /** The version of the capability that the caller means. */
  readonly version: string;
  /** Milliseconds left of the caller's time, as the sidecar said. */
  readonly remainingMs: number;
  /** The key of the work: the same at every start of it. '' when it has none. */
  readonly key: string;
  /** Asks another capability through this agent's own sidecar; gives the Result, or the problem document of a refusal. */
  readonly ask: (target: string, payload: unknown, more?: Readonly<Record<string, string>>) => Promise<Record<string, unknown>>;
  /** What every request that belongs to this work carries, with the agent's own credential. */
  readonly handedOn: Readonly<Record<string, string>>;
  /** Sends a message through this agent's own sidecar; throws when it is not taken. */
  readonly send: (message: object) => Promise<void>;
}

/** An answer other than 200: the agent's own "no". */
export class Refusal {
  readonly status: number;
  readonly body: unknown;
  constructor(status: number, body: unknown) {
    this.status = status;
    this.body = body;
  }
}

export type Work = (asked: Asked) => unknown;

/** What an agent is told when it is started. */
export const self = {
  agentId: process.env['AGENT_ID'] ?? 'demo.agent.x',
  /** Where it writes down what it did, one line each, before it answers; '' = nowhere. */
  journal: process.env['AGENT_JOURNAL'] ?? '',
  /** A folder that all agents of the team share, as they would a database. */
  store: process.env['AGENT_STORE'] ?? '',
};

/** A line in the journal, at once: a kill cannot hide what was done. */
export function note(line: string): void {
  if (self.journal !== '') appendFileSync(self.journal, `${line}\n`);
}

/** Serves the capabilities of `works`, each taking about `workMs`. */
export function serve(works: Readonly<Record<string, Work>>, workMs: number): void {
  const executions: Record<string, number> = {};
  let delayMs = 0;

  const server = createServer((request, response) => {
    const answer = (status: number, body: unknown): void => {
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(JSON.stringify(body));
    };
    respond(request).then(
      (reply) => (reply instanceof Refusal ? answer(reply.status, reply.body) : answer(200, reply)),
      (error: unknown) => answer(500, { error: String(error) }),
    );
  });

  async function respond(request: IncomingMessage): Promise<unknown> {
    const at = Date.now();
    const path = (request.url ?? '').slice(1);
    const payload = await bodyOf(request);
    if (path === '_count') return { agent: self.agentId, pid: process.pid, executions };
    if (path === '_control') {
      delayMs = Number(payload['delay_ms'] ?? 0);
      return { agent: self.agentId, delay_ms: delayMs };
    }
    const work = Object.hasOwn(works, path) ? works[path] : undefined;
    if (work === undefined || request.method !== 'POST') return new Refusal(404, { error: `${self.agentId} has no ${path}` });
    executions[path] = (executions[path] ?? 0) + 1;
    await sleep(workMs + delayMs);
    return work(askedBy(request.headers, payload, at));
  }

  // Longer than the sidecar keeps an idle connection, so that none is closed under a request.
  server.keepAliveTimeout = 120_000;
  server.listen(Number(process.env['AGENT_PORT'] ?? 0), '127.0.0.1');
  server.once('error', (error) => {
    process.stderr.write(`${self.agentId} cannot listen: ${error.message}\n`);
    process.exitCode = 1;
  });
  process.once('SIGTERM', () => process.exit(0));
  process.once('SIGINT', () => process.exit(0));
}

function askedBy(headers: IncomingHttpHeaders, payload: Record<string, unknown>, at: number): Asked {
  const remainingMs = Number(headers['reach-deadline-ms'] ?? 10_000);
  return {
    payload,
    session: String(headers['x-session'] ?? ''),
    version: String(headers['reach-version'] ?? ''),
    remainingMs,
    key: String(headers['idempotency-key'] ?? ''),
    handedOn: handedOn(headers),
    ask: (target, question, more = {}) =>
      ask(target, question, { ...handedOn(headers), ...more }, Math.max(1, remainingMs - (Date.now() - at))),
    send: (message) => send(message, handedOn(headers)),
  };
}

async function send(message: object, headers: Readonly<Record<string, string>>): Promise<void> {
  const answer = await fetch(`${process.env['SIDECAR_URL'] ?? ''}/v1/messages`, {
    method: 'POST',
    headers,
    body: JSON.stringify(message),
  });
  const text = await answer.text();
  if (answer.status !== 202) throw new Error(`a message was not taken: ${answer.status} ${text}`);
}

/** What a sub-call must hand on, so that deadline, trace and loop check hold for the whole task. */
const HANDED_ON = ['reach-path', 'reach-deadline-total-ms', 'traceparent', 'x-session'] as const;

function handedOn(from: IncomingHttpHeaders): Record<string, string> {
  const headers: Record<string, string> = {
    authorization: `Bearer ${process.env['SIDECAR_TOKEN'] ?? ''}`,
    'content-type': 'application/json',
  };
  for (const name of HANDED_ON) {
    const value = from[name];
    if (typeof value === 'string') headers[name] = value;
  }
  return headers;
}

async function ask(
  target: string,
  payload: unknown,
  headers: Readonly<Record<string, string>>,
  leftMs: number,
): Promise<Record<string, unknown>> {
  const answer = await fetch(`${process.env['SIDECAR_URL'] ?? ''}/v1/invoke/${target}`, {
    method: 'POST',
    headers: { ...headers, 'reach-deadline-ms': String(Math.floor(leftMs)) },
    body: JSON.stringify(payload),
  });
  return (await answer.json()) as Record<string, unknown>;
}

async function bodyOf(request: IncomingMessage): Promise<Record<string, unknown>> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const text = Buffer.concat(chunks).toString('utf8');
  return text === '' ? {} : (JSON.parse(text) as Record<string, unknown>);
}
