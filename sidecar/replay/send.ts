/**
 * Sends the recorded requests anew, through a whole sidecar of its own on a virtual clock, and compares the answers. In the place of
 * every provider stands a mock that gives the recorded answers (`transports/recorded-mock.ts`): no socket is opened, and a recording
 * holds no address that one could be opened to.
 *
 * Sent are calls that somebody had been asked for. Breakers are off: what the recorded state of health did to a call, `replay` shows.
 */
import { parseExact, writeExact } from '../../base/json-exact.ts';
import { SeededRandom } from '../../base/random.ts';
import { VirtualClock } from '../../base/virtual-clock.ts';
import { openSource, Place } from '../../proto/language/reader.ts';
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import { assemble } from '../assemble.ts';
import { Call, HttpAsk } from '../call/call.ts';
import { Principal } from '../call/principal.ts';
import { NO_BODY, Reply } from '../call/reply.ts';
import { sidecarShape, type SidecarConfig } from '../config.ts';
import type { Engine, Observer } from '../engine.ts';
import { Health } from '../health/health.ts';
import { StaticTokens } from '../identify/static-tokens.ts';
import { outbound } from '../pipeline.ts';
import type { RecordedFile, RecordingSource } from '../record/reading.ts';
import type { AttemptRecord, CallRecord, RecordedBody, SendRecord } from '../record/shapes.ts';
import type { CapabilityPart } from '../table/compile.ts';
import { InstalledTable } from '../table/installed.ts';
import { registerTransports, Transports } from '../transports/index.ts';
import { exactJson, heldAgainst, RecordedAnswers, type RecordedRequest } from '../transports/recorded-answers.ts';
import { type GivenAnswer, RecordedMock } from '../transports/recorded-mock.ts';
import { type Changes, policiesOf, readChanges } from './changes.ts';
import { judgedReply } from './judged-reply.ts';

/** What one request came to. */
export interface Sent {
  /** From 1. */
  readonly number: number;
  readonly asked: string;
  readonly traceId: string;
  readonly code: number;
  /** What is different; empty = nothing. */
  readonly diff: readonly string[];
  /** Null = every request of it was recorded. */
  readonly miss: string | null;
  readonly notCompared: readonly string[];
}

export interface SendReport {
  readonly target: string;
  readonly sent: readonly Sent[];
  /** Calls that nobody had been asked for, or whose request is not kept. */
  readonly notSent: number;
  /** Recorded answers that nobody asked for. */
  readonly left: number;
  readonly remarks: readonly string[];
}

/** What is sent of a recorded request; null = it cannot be sent. */
export function requestOf(record: CallRecord): { readonly body: Buffer; readonly headers: Record<string, string> } | null {
  if (record.end !== 'outbound' || record.caller === null || record.asked === '') return null;
  if (!record.sends.some(({ sends }) => sends.length > 0)) return null;
  const headers: Record<string, string> = { ...record.own };
  delete headers[Header.path];
  return { body: bodyOf(record.body), headers };
}

export async function sendToSandbox(recording: RecordingSource, changes: Changes, limit: number): Promise<SendReport> {
  const sent: Sent[] = [];
  let notSent = 0;
  let left = 0;
  let number = 0;
  for (const file of recording.files) {
    const sandbox = new Sandbox(file, changes);
    for (const record of file.calls) {
      if (number >= limit) break;
      number++;
      const one = await sandbox.send(number, record);
      if (one === null) notSent++;
      else sent.push(one);
    }
    left += sandbox.left;
  }
  return { target: 'sandbox', sent, notSent, left, remarks: recording.remarks };
}

class Sandbox {
  readonly #clock = new VirtualClock();
  readonly #table: InstalledTable;
  readonly #engine: Engine;
  readonly #answers: RecordedAnswers<GivenAnswer>;
  readonly #file: RecordedFile;
  readonly #changes: Changes;
  readonly #parts = new Map<number, CapabilityPart>();
  #installed = '';
  #miss: string | null = null;
  readonly #notCompared = new Set<string>();

  constructor(file: RecordedFile, changes: Changes) {
    this.#file = file;
    this.#changes = changes;
    const recorded = changes.config(file.head.config);
    const config = settingsOf(recorded.name);
    const clock = this.#clock;
    const health = new Health(clock, { consecutive: 0, forMs: 0 });
    this.#table = new InstalledTable(clock, health, recorded);
    this.#answers = new RecordedAnswers(answersOf(file));
    const mock = new RecordedMock(this.#answers, clock, (exchange, outcome) => {
      if ('why' in outcome)
        this.#miss ??= `asked ${exchange.candidate.provider.agentId}: ${outcome.why}${outcome.diff.length === 0 ? '' : `: ${outcome.diff.join('; ')}`}`;
      else for (const place of outcome.notCompared) this.#notCompared.add(place);
    });
    const kinds = Object.fromEntries(Object.keys(registerTransports(null)).map((type) => [type, { make: () => mock, problems: () => [] }]));
    this.#engine = assemble({
      clock,
      random: new SeededRandom(1),
      config: { ...config, maxDeadlineMs: recorded.maxDeadlineMs, maxHops: recorded.maxHops, retryBudget: recorded.retryBudget },
      table: this.#table,
      health,
      identities: new StaticTokens([], [], null),
      transports: new Transports(
        {
          clock,
          random: new SeededRandom(2),
          secret: () => '',
          connectTimeoutMs: config.connectTimeoutMs,
          connectionsPerOrigin: config.connectionsPerOrigin,
          maxResponseHeaderBytes: config.limits.headerBytes,
        },
        kinds,
      ),
      observer: NOBODY,
    });
  }

  get left(): number {
    return this.#answers.left;
  }

  async send(number: number, record: CallRecord): Promise<Sent | null> {
    const request = requestOf(record);
    if (request === null) return null;
    this.#install(record);
    this.#miss = null;
    this.#notCompared.clear();
    const clock = this.#clock;
    const call = new Call('sandbox', record.asked, request.headers, request.body, record.body.type, false, clock);
    call.principal = new Principal((record.caller as { readonly agent: string }).agent);
    call.traceId = record.trace_id;
    const [conversation] = Object.values(record.conversations);
    if (conversation !== undefined) request.headers[Header.affinity] = `recorded-${conversation.owner.toString(36)}`;
    if (record.http !== null) call.http = new HttpAsk(record.http.method, record.http.target);
    const running = outbound(this.#engine, call);
    await clock.advance(0);
    while (!call.settled) {
      const next = clock.nextAt();
      if (next === null) break;
      await clock.advanceTo(next);
    }
    await running;
    const { diff, notCompared } = answerDiff(record, call.code, call.status, call.reply?.body ?? NO_BODY);
    return {
      number,
      asked: record.asked,
      traceId: record.trace_id,
      code: call.code,
      diff: this.#miss === null ? diff : [],
      miss: this.#miss,
      notCompared: [...new Set([...this.#notCompared, ...notCompared])],
    };
  }

  #install({ parts, overrides }: CallRecord): void {
    const [first] = overrides;
    const key = `${parts.join()} ${first?.[1] ?? 0}`;
    if (key === this.#installed) return;
    this.#installed = key;
    const all = new Map<string, CapabilityPart>();
    for (const id of parts) {
      const part = this.#part(id);
      if (part !== null) all.set(part.name, part);
    }
    this.#table.installParts(all, this.#changes.overrides ?? this.#file.overrides(first?.[1] ?? 0), 'recording');
  }

  #part(id: number): CapabilityPart | null {
    const known = this.#parts.get(id);
    if (known !== undefined) return known;
    const recorded = this.#file.part(id);
    if (recorded === null) return null;
    const part: CapabilityPart = {
      ...recorded,
      // What was left out of a payload must not be held against it.
      contracts: recorded.contracts.map((contract) => ({ ...contract, input: null, output: null })),
      policies: [...policiesOf(recorded.name, recorded.policies, this.#changes), ...NO_BREAKERS],
    };
    this.#parts.set(id, part);
    return part;
  }
}

const NOBODY: Observer = { callStarted: () => undefined, attemptEnded: () => undefined, callEnded: () => undefined, bug: () => undefined };

const NO_BREAKERS = (() => {
  const read = readChanges(null, ['breaker.enabled=false', 'slow_start=0ms']);
  return 'settings' in read ? read.settings : [];
})();

function settingsOf(name: string): SidecarConfig {
  const { source, value } = openSource(JSON.stringify({ name }), 'recording');
  const read = sidecarShape.read(value, new Place(source));
  return (read as { readonly config: SidecarConfig }).config;
}

/** Every answer that was recorded, attempt by attempt. */
export function answersOf(file: RecordedFile): RecordedRequest<GivenAnswer>[] {
  const requests: RecordedRequest<GivenAnswer>[] = [];
  for (const [i, record] of file.calls.entries()) {
    if (record.end !== 'outbound' || record.caller === null) continue;
    const { agent } = record.caller;
    record.decision.attempts.forEach((attempt, n) => {
      for (const send of record.sends[n]?.sends ?? [])
        requests.push({
          capability: attempt.capability,
          version: attempt.version,
          caller: agent,
          http: record.http,
          body: record.body,
          answer: { reply: () => replyOf(attempt, send, record), afterMs: attempt.elapsed_ms },
          name: `call ${i + 1}, attempt ${n + 1}`,
        });
    });
  }
  return requests;
}

/** Null = it was given up before it answered. */
function replyOf(attempt: AttemptRecord, send: SendRecord, record: CallRecord): Reply | null {
  const { code, started, status, detail, reused, retry_after_ms: retryAfterMs, own } = send;
  if (code === Code.cancelled && attempt.code !== 0) return null;
  if (code !== 0) return new Reply(code as Code, started, status, own, NO_BODY, null, detail, reused, retryAfterMs);
  if (attempt.code !== 0 && status < 300) return judgedReply(attempt, own, reused, retryAfterMs);
  const isDefinite = attempt.code === 0 && record.definitely && record.decision.provider === attempt.provider;
  const headers = isDefinite ? { ...own, [Header.definitelySuccess]: 'true' } : own;
  const body = send.body === null ? NO_BODY : bodyOf(send.body);
  const reply = new Reply(0, 'done', status, headers, body, null, detail, reused, retryAfterMs);
  reply.end = 'known';
  return reply;
}

/** As it was, as far as it was kept; zeros where only the size is known. */
export function bodyOf(body: RecordedBody): Buffer {
  if (body.base64 !== undefined) return Buffer.from(body.base64, 'base64');
  if (body.json !== undefined) return Buffer.from(writeExact(exactJson(body)));
  return Buffer.alloc(body.bytes);
}

/** Against the recorded decision, and the answer of whoever served it. */
export function answerDiff(
  { decision, sends }: CallRecord,
  code: number,
  status: number,
  body: Buffer,
): { readonly diff: readonly string[]; readonly notCompared: readonly string[] } {
  const diff: string[] = [];
  if (code !== decision.code) diff.push(`code: now ${code}, recorded ${decision.code}`);
  if (status !== decision.status) diff.push(`status: now ${status}, recorded ${decision.status}`);
  const answered = sends[decision.attempts.length - 1]?.sends.at(-1) ?? null;
  const last = answered?.body ?? null;
  // It is asked for whole here, and its body is given by no mock.
  if (diff.length === 0 && answered?.stream != null && decision.code === 0)
    return { diff, notCompared: [`the streamed answer (${answered.stream.bytes} bytes)`] };
  // A static text of a fallback stands in no attempt.
  if (diff.length > 0 || last === null || decision.code !== 0 || decision.provider === null) return { diff, notCompared: [] };
  if (last.json !== undefined) {
    const held = heldAgainst(exactJson(last), parsed(body));
    return { diff: held.diff.map((words) => `answer: ${words}`), notCompared: held.notCompared.map((place) => `answer ${place}`) };
  }
  if (last.base64 !== undefined)
    return { diff: body.equals(Buffer.from(last.base64, 'base64')) ? [] : ['answer: other bytes'], notCompared: [] };
  if (last.bytes !== body.length) return { diff: [`answer: now ${body.length} bytes, recorded ${last.bytes}`], notCompared: [] };
  return { diff, notCompared: last.bytes === 0 ? [] : [`the answer, of which only the size is recorded (${last.bytes} bytes)`] };
}

function parsed(body: Buffer): unknown {
  try {
    return parseExact(body);
  } catch {
    return undefined;
  }
}
