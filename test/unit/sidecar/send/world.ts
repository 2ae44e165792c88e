/** A sender with a small table, a stream that answers by script, and a control plane that does. */
import type { Appended } from '../../../../base/pub-ack.ts';
import { SeededRandom } from '../../../../base/random.ts';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { defaultsOf } from '../../../../proto/language/process-shapes.ts';
import { NO_RULES, type Rule, type RuleSet, type RuleSubject } from '../../../../proto/language/rule.ts';
import type { ProviderRecord, TableDocument } from '../../../../proto/language/types.ts';
import { decodeEnvelope, type Envelope } from '../../../../proto/wire/envelope.ts';
import { Subjects } from '../../../../proto/wire/subjects.ts';
import { submissionFrom } from '../../../../sidecar/accept/submission.ts';
import type { HeaderView } from '../../../../sidecar/call/call.ts';
import { Principal } from '../../../../sidecar/call/principal.ts';
import { Health } from '../../../../sidecar/health/health.ts';
import { type MessageSettings, messagesShape } from '../../../../sidecar/messages-config.ts';
import { Cancels } from '../../../../sidecar/send/cancels.ts';
import type { Submission, Submitted } from '../../../../sidecar/send/door.ts';
import { Home } from '../../../../sidecar/send/home.ts';
import { NO_OUTBOX, type Outbox } from '../../../../sidecar/send/outbox-door.ts';
import { Pools } from '../../../../sidecar/send/pools.ts';
import { Post } from '../../../../sidecar/send/post.ts';
import { Rates } from '../../../../sidecar/send/rate.ts';
import { Sender } from '../../../../sidecar/send/sender.ts';
import { compile } from '../../../../sidecar/table/compile.ts';
import type { Snapshot } from '../../../../sidecar/table/snapshot.ts';
import { StageWitness } from '../../../support/stage-witness.ts';
import { documentOf } from '../../../support/route-table.ts';

export const ASKER = new Principal('support.planner.1');

interface Sent {
  readonly subject: string;
  readonly data: Buffer;
  readonly msgId: string;
}

/** Answers are given by hand, or at once by `auto`. */
export class ScriptedStream {
  readonly sent: Sent[] = [];
  readonly waiting: ((outcome: Appended) => void)[] = [];
  auto: ((count: number) => Appended) | null = (count) => ({ seq: count, duplicate: false });
  isOpen = true;

  send(subject: string, data: Uint8Array, options: { readonly msgId?: string } | null, then: (outcome: Appended) => void): boolean {
    if (!this.isOpen) return false;
    this.sent.push({ subject, data: Buffer.from(data), msgId: options?.msgId ?? '' });
    const { auto } = this;
    if (auto === null) this.waiting.push(then);
    else queueMicrotask(() => then(auto(this.sent.length)));
    return true;
  }
}

export class ScriptedBus {
  connected = true;
  maxPayload = 1_048_576;
  readonly asked: { subject: string; body: Record<string, unknown> }[] = [];
  readonly published: { subject: string; body: Record<string, unknown> }[] = [];
  /** Answers of the control plane and of workers; null = nobody answers. */
  answer: (subject: string) => object | null = () => ({ wire: 1, ok: true, why: '' });
  readonly #listeners = new Set<(state: { connected: boolean; reconnects: number; why: string }) => void>();

  get state(): { connected: boolean; reconnects: number; why: string } {
    return { connected: this.connected, reconnects: 0, why: this.connected ? '' : 'the connection is lost' };
  }

  onState(listener: (state: { connected: boolean; reconnects: number; why: string }) => void): { close(): void } {
    this.#listeners.add(listener);
    return { close: () => void this.#listeners.delete(listener) };
  }

  go(connected: boolean): void {
    this.connected = connected;
    for (const listener of [...this.#listeners]) listener(this.state);
  }

  publish(subject: string, data: Uint8Array): boolean {
    this.published.push({ subject, body: JSON.parse(Buffer.from(data).toString('utf8')) as Record<string, unknown> });
    return this.connected;
  }

  // biome-ignore lint/suspicious/noExplicitAny: stands for the bus
  request(subject: string, data: Uint8Array): Promise<any> {
    this.asked.push({ subject, body: JSON.parse(Buffer.from(data).toString('utf8')) as Record<string, unknown> });
    const answer = this.connected ? this.answer(subject) : null;
    return Promise.resolve(
      answer === null ? { kind: 'timeout' } : { kind: 'ok', message: { data: Buffer.from(JSON.stringify(answer), 'utf8') } },
    );
  }
}

export class ScriptedOutbox implements Outbox {
  readonly isThere = true;
  pending = 0;
  outcome: 'stored' | 'full' | 'broken' = 'stored';
  readonly kept: Sent[] = [];

  put(subject: string, data: Buffer, msgId: string): Promise<'stored' | 'full' | 'broken'> {
    if (this.outcome === 'stored') {
      this.kept.push({ subject, data: Buffer.from(data), msgId });
      this.pending++;
    }
    return Promise.resolve(this.outcome);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

export const MESSAGES: MessageSettings = defaultsOf(messagesShape);

export class SendWorld {
  readonly clock = new VirtualClock();
  readonly random = new SeededRandom(7);
  readonly health = new Health(this.clock, { consecutive: 3, forMs: 5_000 });
  readonly bus = new ScriptedBus();
  readonly stream = new ScriptedStream();
  readonly subjects = new Subjects('t');
  readonly home: Home;
  readonly rates: Rates;
  readonly pools: Pools;
  readonly post: Post;
  readonly cancels: Cancels;
  readonly sender: Sender;
  readonly decided: { readonly subject: RuleSubject; readonly rule: string | null }[] = [];
  readonly stages = new StageWitness();
  outbox: Outbox = NO_OUTBOX;
  rules: RuleSet = NO_RULES;
  table: Snapshot;
  #version = 0;

  constructor(providers: readonly ProviderRecord[], parts: Partial<TableDocument> = {}, settings: Partial<MessageSettings> = {}) {
    const all = { ...MESSAGES, rate: { perSec: 1_000_000, burst: 1_000_000 }, ...settings };
    const { clock, bus, subjects } = this;
    this.table = this.push(providers, parts);
    this.home = new Home(all.remembered, all.resultBytes);
    this.rates = new Rates(all.rate, all.rates);
    this.pools = new Pools({ bus, subjects, clock, sidecar: 'one', warn: () => undefined });
    this.post = new Post({ bus, stream: this.stream, outbox: () => this.outbox, clock, waitMs: all.ackWaitMs, maxOpen: all.inFlight });
    this.cancels = new Cancels({ bus, subjects, clock });
    this.sender = new Sender({
      clock,
      random: this.random,
      maxHops: 16,
      pools: this.pools,
      rules: () => this.rules,
      bus,
      table: { current: () => this.table },
      subjects,
      sidecar: 'one',
      settings: all,
      rates: this.rates,
      post: this.post,
      home: this.home,
      cancels: this.cancels,
      onDecided: (subject, rule) => this.decided.push({ subject, rule }),
      statements: null,
      stages: this.stages,
      instance: 'abcdefgh01',
    });
  }

  push(providers: readonly ProviderRecord[], parts: Partial<TableDocument> = {}): Snapshot {
    const here = { name: 'one', region: null, zone: null };
    const sidecars = [...new Set(providers.map(({ via }) => via).filter((via) => via !== null))].map((name) => ({
      name,
      mesh: `http://127.0.0.1:1/${name}`,
    }));
    this.table = compile(documentOf(providers, { sidecars, ...parts }), this.health, here, ++this.#version);
    return this.table;
  }

  submit(capability: string | null, headers: HeaderView = {}, payload = '{}', principal = ASKER): Promise<Submitted> {
    return this.sender.submit(submission(capability, headers, payload, principal));
  }

  /** As it left, or as it lies on the disk. */
  envelope(at = -1): Envelope {
    return (decodeEnvelope((this.stream.sent.at(at) as Sent).data) as { envelope: Envelope }).envelope;
  }

  close(): void {
    this.post.close();
    this.pools.close();
    this.cancels.close();
  }
}

export function submission(capability: string | null, headers: HeaderView = {}, payload = '{}', principal = ASKER): Submission {
  const read = submissionFrom(principal, capability, headers, Buffer.from(payload), 'application/json');
  if (typeof read === 'string') throw new Error(read);
  return read;
}

/** Rules that all match, in this order. */
export function rulesOf(...rules: readonly Partial<Rule>[]): RuleSet {
  const all = rules.map(
    (rule, i): Rule => ({
      name: `rule_${i}`,
      when: { messageType: null, sourceRole: null, targetRole: null, capability: null, tags: {} },
      dispatch: 'random',
      stickyBy: null,
      priority: null,
      fallback: null,
      ...rule,
    }),
  );
  return { version: 1, match: () => all };
}
