/**
 * The way out to an agent inside this process: a function call instead of a socket. Which agents there are is the hub's
 * affair (`embedded.ts` fills it); what one of them is asked and answers goes through the same exchange and reply as over
 * any wire, so that time, cancelling, limits and judgement are the same.
 */
import type { Endpoint } from '../../proto/language/types.ts';
import { Code } from '../../proto/wire/codes.ts';
import { failed, type Reply } from '../call/reply.ts';
import type { Mode } from './http-exchange.ts';
import { isProblems, readOptions } from './options.ts';
import type { Exchange, Transport, TransportContext, TransportKind } from './transport.ts';

export class LocalTransport implements Transport {
  readonly #context: TransportContext;
  #closed = false;

  constructor(context: TransportContext) {
    this.#context = context;
  }

  invoke(exchange: Exchange): Promise<Reply> {
    return this.#send(exchange, 'whole');
  }

  cast(exchange: Exchange): Promise<Reply> {
    return this.#send(exchange, 'head');
  }

  invokeStream(exchange: Exchange): Promise<Reply> {
    return this.#send(exchange, 'stream');
  }

  close(): Promise<void> {
    this.#closed = true;
    return Promise.resolve();
  }

  #send(exchange: Exchange, mode: Mode): Promise<Reply> {
    const { agentId } = exchange.candidate.provider;
    if (this.#closed) return Promise.resolve(failed(Code.connection_lost, 'not_started', 'the sidecar is closing its connections'));
    const agent = this.#context.local?.of(agentId) ?? null;
    if (agent === null)
      return Promise.resolve(failed(Code.connect_timeout, 'not_started', `${agentId} is not served in this process at present`));
    return agent.send(exchange, mode);
  }
}

function problemsOf({ address, credential, options }: Endpoint): readonly string[] {
  const read = readOptions({}, options);
  return [
    ...(address === '' ? [] : ['address: an agent inside the process has none: leave it out']),
    ...(credential === null ? [] : ['credential: nothing is sent to an agent inside the process: leave it out']),
    ...(isProblems(read) ? read : []),
  ];
}

export const localKind: TransportKind = { make: (context) => new LocalTransport(context), problems: problemsOf, fields: {} };
