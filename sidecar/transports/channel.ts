/**
 * The way out to agents that have dialled in: the agent's connection, when it is there, takes the call. An agent that is not
 * there was never asked, so the call may go elsewhere whatever the work is. One that hangs on another sidecar is reached
 * over that sidecar's mesh port, like every hosted agent; nothing here knows the difference.
 */
import { ChannelMethod } from '../../proto/wire/channel.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { Endpoint } from '../../proto/language/types.ts';
import { failed, type Reply } from '../call/reply.ts';
import type { Version } from '../table/snapshot.ts';
import type { ChannelHub, ChannelLink } from './channel-hub.ts';
import type { Exchange, Transport, TransportContext, TransportKind } from './transport.ts';

/** What is the same in every call to a candidate, and the connection that took the last one: with thousands of agents a search costs. */
export class ChannelTarget {
  readonly owner: ChannelTransport;
  /** Of the message that says a call: method and the beginning of its params. One text for all candidates of a version. */
  readonly head: string;
  link: ChannelLink | null = null;

  constructor(owner: ChannelTransport, head: string) {
    this.owner = owner;
    this.head = head;
  }
}

function headFor(version: Version): string {
  const names = { capability: version.capability.name, version: version.text };
  return `"method":"${ChannelMethod.invoke}","params":${JSON.stringify(names).slice(0, -1)}`;
}

export class ChannelTransport implements Transport {
  readonly #hub: ChannelHub | null;
  readonly #heads = new WeakMap<Version, string>();

  constructor(context: TransportContext) {
    this.#hub = context.channels ?? null;
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

  /** The connections are the way in's: they end with its port. */
  close(): Promise<void> {
    return Promise.resolve();
  }

  #send(exchange: Exchange, mode: 'whole' | 'stream' | 'head'): Promise<Reply> {
    const { candidate } = exchange;
    let target = candidate.prepared;
    if (!(target instanceof ChannelTarget) || target.owner !== this) {
      target = new ChannelTarget(this, this.#headOf(candidate.version));
      candidate.prepared = target;
    }
    const link = this.#linkOf(target as ChannelTarget, candidate.provider.agentId);
    if (link === null)
      return Promise.resolve(failed(Code.connect_timeout, 'not_started', `${candidate.provider.agentId} is not dialled in here`));
    return link.send(exchange, (target as ChannelTarget).head, mode);
  }

  #headOf(version: Version): string {
    let head = this.#heads.get(version);
    if (head === undefined) {
      head = headFor(version);
      this.#heads.set(version, head);
    }
    return head;
  }

  #linkOf(target: ChannelTarget, agentId: string): ChannelLink | null {
    const { link } = target;
    if (link !== null && !link.isOver) return link;
    target.link = this.#hub === null ? null : this.#hub.of(agentId);
    return target.link;
  }
}

/** A dial-in agent says nothing of where it is: it comes. */
function problems(endpoint: Endpoint): readonly string[] {
  const found: string[] = [];
  if (endpoint.address !== '') found.push('a channel has no address: the agent dials in, leave `address` out');
  if (endpoint.credential !== null)
    found.push('a channel has no credential: the agent proves itself when it dials in, leave `credential` out');
  for (const key of Object.keys(endpoint.options))
    found.push(`unknown key ${JSON.stringify(key)}: a channel is written {type: channel}, nothing else`);
  return found;
}

export const channelKind: TransportKind = { make: (context) => new ChannelTransport(context), problems, fields: {} };
