/**
 * All channels of this sidecar: who may open one, who is heard and who has fallen silent, and the orderly end of all. One
 * look a second over all of them; no connection has a timer of its own.
 */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Timer } from '../../../base/clock.ts';
import type { Logger } from '../../../base/log.ts';
import { CHANNEL_PATH, ChannelClose, ENVELOPE_BYTES } from '../../../proto/wire/channel.ts';
import type { RpcNotification, RpcRequest } from '../../../proto/wire/json-rpc.ts';
import type { ChannelSettings } from '../../config.ts';
import { Principal } from '../../call/principal.ts';
import type { ChannelHub } from '../../transports/channel-hub.ts';
import type { ChannelDoor, Front } from '../front.ts';
import { ChannelConnection, type Channels } from './connection.ts';
import { serveMessage } from './serve.ts';
import { Tickets } from './tickets.ts';

const LOOK_EVERY_MS = 1_000;
/** So much later than it was due, a look finds a process that stood still: what its agents said meanwhile is still to be read. */
const HALTED_MS = 2_000;
/** Connections of one agent: it serves on one, and a few of its processes may call on others. */
export const MAX_PER_AGENT = 16;
/** How long a peer may take to answer the closing word at the very end. */
const LAST_WORD_MS = 500;
/** Beyond the send buffer there are whole messages only: so many of the largest before it counts as not reading at all. */
const LARGEST_AHEAD = 2;

export class AllChannels implements Channels, ChannelDoor {
  readonly front: Front;
  readonly hub: ChannelHub;
  readonly settings: ChannelSettings;
  readonly tickets: Tickets;
  readonly maxInFlight: number;
  readonly sendBufferBytes: number;
  readonly maxMessageBytes: number;
  readonly hardBytes: number;
  readonly #log: Logger;
  readonly #connections = new Set<ChannelConnection>();
  readonly #perAgent = new Map<string, number>();
  #looking: Timer | null = null;
  #lookAt = 0;
  #isClosing = false;
  #whenEmpty: (() => void) | null = null;
  /** Told now and then of each agent that takes calls here that it lives. */
  onLife: (agentId: string) => void = () => {};

  constructor(front: Front, hub: ChannelHub, log: Logger) {
    const { clock, config } = front.engine;
    this.front = front;
    this.hub = hub;
    this.settings = config.channel;
    this.tickets = new Tickets(clock, config.channel.ticketTtlMs);
    this.maxInFlight = config.channel.inFlight;
    this.sendBufferBytes = config.channel.sendBufferBytes;
    this.maxMessageBytes = config.limits.bodyBytes + ENVELOPE_BYTES;
    this.hardBytes = config.channel.sendBufferBytes + LARGEST_AHEAD * config.limits.bodyBytes;
    this.#log = log;
    front.onTakenBack.add((agent, by) => this.#takenBack(agent, by));
  }

  get size(): number {
    return this.#connections.size;
  }

  get serving(): number {
    return this.hub.size;
  }

  /** Why an agent cannot have a connection (more) now; null = it can. */
  whyFull(agentId: string): string | null {
    if (this.#connections.size >= this.settings.connections)
      return `${this.settings.connections} channels are open, the limit of this sidecar (channel.connections)`;
    if ((this.#perAgent.get(agentId) ?? 0) >= MAX_PER_AGENT) return `${agentId} has ${MAX_PER_AGENT} channels open, the limit of one agent`;
    return null;
  }

  /** The address is the one that the request has reached this port by. @param by whose credential has asked; null = an operator's */
  offer(agentId: string, request: IncomingMessage, by: Principal | null): ReturnType<ChannelDoor['offer']> {
    return {
      url: `ws://${request.headers.host ?? 'localhost'}${CHANNEL_PATH}`,
      ticket: this.tickets.issue(by ?? new Principal(agentId)),
      expires_in_ms: this.tickets.ttlMs,
    };
  }

  open(socket: Duplex, principal: Principal): ChannelConnection {
    const connection = new ChannelConnection(this, socket, principal);
    this.#connections.add(connection);
    this.#perAgent.set(principal.agent, (this.#perAgent.get(principal.agent) ?? 0) + 1);
    if (this.#looking === null) this.#lookLater();
    this.#log.debug({ agent: principal.agent }, 'a channel is open');
    return connection;
  }

  /** From now on it gets calls; whoever got them before does no more. */
  serveOn(connection: ChannelConnection): void {
    if (connection.isServing || connection.isOver) return;
    connection.isServing = true;
    const former = this.hub.attach(connection);
    if (former instanceof ChannelConnection)
      former.end({ code: ChannelClose.replaced, words: `a newer connection of ${connection.agentId} has taken over` });
  }

  serve(connection: ChannelConnection, message: RpcRequest | RpcNotification): void {
    serveMessage(this, connection, message);
  }

  gone(connection: ChannelConnection, code: number, why: string): void {
    this.#connections.delete(connection);
    const { agentId } = connection;
    const left = (this.#perAgent.get(agentId) ?? 1) - 1;
    if (left === 0) {
      this.#perAgent.delete(agentId);
      // It needs this sidecar no more, when that is about to stop.
      if (this.front.draining) this.front.finishing?.said(agentId);
    } else this.#perAgent.set(agentId, left);
    if (connection.isServing) this.hub.detach(connection);
    if (why === '') this.#log.debug({ agent: agentId, code }, 'a channel was closed');
    else this.#log.warn({ agent: agentId, code, why }, 'a channel was closed');
    if (this.#connections.size > 0) return;
    this.#looking?.cancel();
    this.#looking = null;
    this.#whenEmpty?.();
  }

  /** Its credential counts no more: it comes back with another one, or not at all. */
  #takenBack(agent: string, by: Principal | null): void {
    this.tickets.forgetOf(agent);
    if (!this.#perAgent.has(agent)) return;
    for (const connection of this.#connections)
      if (connection.agentId === agent && (by === null || by === connection.principal))
        connection.end({ code: ChannelClose.unauthenticated, words: 'its credential has been taken back, or has run out' });
  }

  /** The sidecar has begun to stop: its agents hear of it, and finish. */
  tellGoodbye(graceMs: number): void {
    for (const connection of this.#connections) connection.tellGoodbye(graceMs);
  }

  /** Tells every agent, lets what is under way end within the grace, and ends what is left. Resolves when none is left. */
  async close(graceMs: number): Promise<void> {
    this.#isClosing = true;
    for (const connection of this.#connections) connection.leave(graceMs);
    if (this.#connections.size === 0) return;
    const enough = (): void => {
      for (const connection of this.#connections) connection.end({ code: 1001, words: 'the sidecar stops' });
    };
    if (graceMs <= LAST_WORD_MS) {
      enough();
      return;
    }
    await new Promise<void>((done) => {
      const timer = this.front.engine.clock.after(graceMs - LAST_WORD_MS, enough);
      this.#whenEmpty = () => {
        timer.cancel();
        done();
      };
    });
  }

  /** Bytes that wait for agents which do not read, over all channels. */
  get waitingBytes(): number {
    let sum = 0;
    for (const { outbox } of this.#connections) sum += outbox.bytes;
    return sum;
  }

  get isClosing(): boolean {
    return this.#isClosing;
  }

  #lookLater(): void {
    const { clock } = this.front.engine;
    this.#lookAt = clock.now() + LOOK_EVERY_MS;
    this.#looking = clock.after(LOOK_EVERY_MS, () => this.#look());
  }

  #look(): void {
    const now = this.front.engine.clock.now();
    const lateMs = now - this.#lookAt;
    const haltedMs = lateMs > HALTED_MS ? lateMs : 0;
    this.tickets.forgetOld();
    for (const connection of this.#connections) this.#judge(connection, now, haltedMs);
    if (this.#connections.size > 0) this.#lookLater();
    else this.#looking = null;
  }

  #judge(connection: ChannelConnection, now: number, haltedMs: number): void {
    const { heartbeatMs, offlineAfterMs, stallMs } = this.settings;
    if (haltedMs > 0) {
      connection.heardAt += haltedMs;
      if (connection.outbox.blockedAt > 0) connection.outbox.blockedAt += haltedMs;
    }
    if (connection.heard) {
      connection.heard = false;
      // Told when it is news: not for every second of a busy connection.
      if (connection.isServing && now - connection.toldAt >= heartbeatMs / 3) {
        connection.toldAt = now;
        this.onLife(connection.agentId);
      }
      connection.heardAt = now;
    } else if (now - connection.heardAt >= offlineAfterMs) {
      connection.end({ code: ChannelClose.silent, words: `nothing was heard of it for ${Math.round(offlineAfterMs / 1_000)} s` });
      return;
    }
    const { blockedAt, bytes } = connection.outbox;
    // Many large answers may come at once to an agent that reads well: what counts is whether they are still there a second later.
    const wasOverfull = connection.isOverfull;
    connection.isOverfull = bytes > this.hardBytes;
    if ((blockedAt > 0 && now - blockedAt >= stallMs) || (wasOverfull && connection.isOverfull)) {
      connection.end({
        code: ChannelClose.stalled,
        words: `it does not read: ${bytes} bytes wait, and for ${Math.round((now - blockedAt) / 1_000)} s it has taken nothing`,
      });
      return;
    }
    if (now - Math.max(connection.heardAt, connection.pingedAt) >= heartbeatMs) connection.sendPing(now);
  }
}
