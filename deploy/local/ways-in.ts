/**
 * One call in each way that an agent may call in by. Each is written with what its users have anyway (an HTTP client, a gRPC
 * client with the `.proto` file, a program that knows of nothing but `http_proxy`, a WebSocket); none of it is Agent-Reach's.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type Client, credentials, loadPackageDefinition, Metadata, type ServiceError } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { WebSocket } from 'ws';
import type { Place } from './files.ts';
import { pythonPath } from './python.ts';
import { treeFile } from './tree.ts';

const MOST_MS = 10_000;
const JSON_TYPE = { 'content-type': 'application/json' };

/** What came back, as far as every way tells it. */
export interface Told {
  readonly provider: string | null;
  readonly data: unknown;
}

/** Throws with its words when it is no success. */
export type WayIn = (place: Place, capability: string, payload: unknown) => Promise<Told>;

/** `POST /v1/invoke/{capability}` */
export const byHttp: WayIn = async (place, capability, payload) => {
  const answer = await post(place, `/v1/invoke/${capability}`, payload);
  return toldBy((await answer.json()) as Said);
};

/** `POST /rpc` */
export const byJsonRpc: WayIn = async (place, capability, payload) => {
  const answer = await post(place, '/rpc', { jsonrpc: '2.0', id: 'call-1', method: capability, params: payload });
  const { id, result, error } = (await answer.json()) as { id: unknown; result?: Said; error?: unknown };
  if (result === undefined || id !== 'call-1') throw new Error(`JSON-RPC: ${JSON.stringify(error)}`);
  return toldBy(result);
};

type Invoke = (request: object, metadata: Metadata, options: object, done: (error: ServiceError | null, reply: GrpcReply) => void) => void;
type Reach = new (address: string, by: unknown) => Client & { readonly Invoke: Invoke };
interface GrpcReply {
  readonly provider: string;
  readonly json: string;
}

/** `agentreach.v1.Reach/Invoke`, of proto/reach.proto */
export const byGrpc: WayIn = async (place, capability, payload) => {
  const loaded = loadSync('reach.proto', { includeDirs: [treeFile('proto')], keepCase: true, longs: Number });
  const { agentreach } = loadPackageDefinition(loaded) as unknown as { agentreach: { v1: { Reach: Reach } } };
  const client = new agentreach.v1.Reach(place.grpc, credentials.createInsecure());
  const metadata = new Metadata();
  metadata.set('authorization', `Bearer ${place.token}`);
  try {
    const reply = await new Promise<GrpcReply>((done, fail) => {
      const deadline = Date.now() + MOST_MS;
      client.Invoke({ capability, json: JSON.stringify(payload) }, metadata, { deadline }, (error, came) =>
        error === null ? done(came) : fail(error),
      );
    });
    return { provider: reply.provider, data: JSON.parse(reply.json) };
  } finally {
    client.close();
  }
};

/** A program that is told `http_proxy` and asks for a URL: the host is the capability, the path is the agent's own. */
export async function byProxy(
  place: Place,
  capability: string,
  path: string,
  payload: unknown,
): Promise<Told & { readonly program: string }> {
  const proxy = `http://${encodeURIComponent(place.member.agentId)}:${place.token}@${place.listen}`;
  const url = `http://${capability}${path}`;
  const body = JSON.stringify(payload);
  const env = { http_proxy: proxy, no_proxy: '', NO_PROXY: '' };
  const curl = ['-sS', '--max-time', String(MOST_MS / 1_000), '-H', 'content-type: application/json', '-d', body, '-i', url];
  const ran = (await run('curl', curl, env)) ?? (await run(pythonPath(), ['-c', URLLIB, url, body], env));
  if (ran === null || ran.code !== 0) throw new Error(`through the proxy: ${ran === null ? 'nothing could be started' : ran.err.trim()}`);
  const headEnd = ran.out.indexOf('\r\n\r\n');
  const provider = /^reach-provider: *(\S+)/im.exec(ran.out.slice(0, headEnd))?.[1] ?? null;
  return { provider, data: JSON.parse(ran.out.slice(headEnd)), program: ran.program };
}

/** Where there is no curl: Python's own client. */
const URLLIB = `import sys, urllib.request as r
answer = r.urlopen(r.Request(sys.argv[1], sys.argv[2].encode(), {"content-type": "application/json"}), timeout=10)
sys.stdout.write(str(answer.headers).strip() + "\\r\\n\\r\\n" + answer.read().decode())`;

/** The WebSocket of `/v1/channel`: `reach.invoke` on it, with the credential in place of a ticket. */
export const byChannel: WayIn = async (place, capability, payload) => {
  const headers = { authorization: `Bearer ${place.token}` };
  const socket = new WebSocket(`ws://${place.listen}/v1/channel`, { headers, handshakeTimeout: MOST_MS });
  try {
    await once(socket, 'open');
    socket.send(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'reach.invoke', params: { capability, payload } }));
    const [frame] = (await once(socket, 'message', { signal: AbortSignal.timeout(MOST_MS) })) as [Buffer];
    const { result, error } = JSON.parse(frame.toString('utf8')) as { result?: Said; error?: unknown };
    if (result === undefined) throw new Error(`on the channel: ${JSON.stringify(error)}`);
    return toldBy(result);
  } finally {
    socket.close();
  }
};

interface Said {
  readonly code?: number;
  readonly provider?: string | null;
  readonly data?: unknown;
}

function toldBy(said: Said): Told {
  if (said.code !== 0) throw new Error(JSON.stringify(said));
  return { provider: said.provider ?? null, data: said.data };
}

function post(place: Place, path: string, body: unknown): Promise<Response> {
  return fetch(`http://${place.listen}${path}`, {
    method: 'POST',
    headers: { ...JSON_TYPE, authorization: `Bearer ${place.token}` },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(MOST_MS),
  });
}

interface Run {
  readonly program: string;
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

/** Null when there is no such program. */
async function run(program: string, args: readonly string[], env: Readonly<Record<string, string>>): Promise<Run | null> {
  const child = spawn(program, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  let out = '';
  let err = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    err += text;
  });
  return await new Promise((done) => {
    child.once('error', () => done(null));
    child.once('close', (code) => done({ program, code, out, err }));
  });
}
