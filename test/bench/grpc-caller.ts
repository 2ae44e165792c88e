/**
 * The load over gRPC: grpc-js as a program would use it, but with its message made once and the answer's bytes looked at
 * instead of read into objects. All callers of one target share its one connection, as they do in programs.
 */
import { Client, credentials, Metadata } from '@grpc/grpc-js';
import { InvokeRequest } from '../../proto/wire/reach-messages.ts';
import type { Caller, CallerDone, Target } from './connection.ts';

const PATH = '/agentreach.v1.Reach/Invoke';
const asItIs = (bytes: Buffer): Buffer => bytes;

/** One caller: one RPC at a time. */
class GrpcCaller implements Caller {
  sentAt = 0;
  readonly #client: Client;
  readonly #request: Buffer;
  readonly #expected: Buffer;
  readonly #metadata: Metadata;
  readonly #done: CallerDone;
  readonly #isOwner: boolean;
  #isClosed = false;

  constructor(client: Client, target: Target, request: Buffer, expected: Buffer, done: CallerDone, isOwner: boolean) {
    this.#client = client;
    this.#request = request;
    this.#expected = expected;
    this.#done = done;
    this.#isOwner = isOwner;
    this.#metadata = new Metadata();
    for (const [name, value] of Object.entries(target.headers)) this.#metadata.set(name, value);
  }

  open(): Promise<void> {
    return new Promise((opened, refused) => {
      this.#client.waitForReady(Date.now() + 5_000, (error) => (error === undefined ? opened() : refused(error)));
    });
  }

  send(now: number): void {
    this.sentAt = now;
    this.#client.makeUnaryRequest(PATH, asItIs, asItIs, this.#request, this.#metadata, (error, reply) => {
      if (this.#isClosed) return;
      if (error !== null) this.#done(this, `${error.code} ${error.details}`);
      else this.#done(this, reply?.includes(this.#expected) === true ? null : 'the reply does not hold the answer of the agent');
    });
  }

  close(): void {
    this.#isClosed = true;
    if (this.#isOwner) this.#client.close();
  }
}

export function grpcCallers(target: Target, count: number, question: Buffer, expected: Buffer, done: CallerDone): Caller[] {
  const client = new Client(`127.0.0.1:${target.port}`, credentials.createInsecure(), { 'grpc.use_local_subchannel_pool': 1 });
  const request = Buffer.from(InvokeRequest.write({ capability: target.asks ?? '', input: { case: 'payload', value: question } }));
  return Array.from({ length: count }, (_each, i) => new GrpcCaller(client, target, request, expected, done, i === 0));
}
