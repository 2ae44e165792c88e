/**
 * JetStream over requests: storing with an expectation, reading without a consumer, making a stream and reading back what the
 * server made of it. Every outcome is a value. Nothing is repeated here: whether a repeat is safe, only the caller knows.
 */
import { type BusReply, type Headers, replyWords, sequence, STATUS } from './bus-message.ts';
import {
  type ApiProblem,
  configIn,
  conflictOf,
  differences,
  type Json,
  NEW_STREAM,
  NO_MESSAGE_FOUND,
  NO_SUCH_STREAM,
  parseJson,
  problemOf,
  STREAM_NAME_TAKEN,
  type Stored,
  storedIn,
  type StreamFacts,
  streamFacts,
  type StreamSpec,
  subjectsOf,
  timestamp,
  wireConfig,
} from './jetstream.ts';
import { patternProblem, subjectProblem } from './subject.ts';

export interface Failed {
  readonly failed: string;
}

export type Appended =
  | { readonly seq: number; readonly duplicate: boolean }
  /** The expected sequence is not the last one; the last one is this (null: the server does not say). Nothing was stored. */
  | { readonly conflict: number | null }
  /** `ambiguous`: it may have been stored all the same. */
  | { readonly failed: string; readonly ambiguous: boolean };

export interface AppendOptions {
  /** Refuse unless this is the last sequence of the whole stream. */
  readonly expectLastSeq?: number;
  /** Refuse unless this is the last sequence of this subject; 0 = the subject has no message. */
  readonly expectLastSubjectSeq?: number;
  /** A second one with the same id within the stream's window is not stored. */
  readonly msgId?: string;
  /** Refuse when another stream would take it. */
  readonly stream?: string;
  readonly headers?: Headers;
  readonly timeoutMs?: number;
}

export type StreamReady =
  | { readonly facts: StreamFacts; readonly change: 'created' | 'updated' | 'none'; readonly ignored: readonly string[] }
  | Failed;

/** How requests get out. `askApi` takes subjects of the server's own API, behind `$JS.API.`. */
export interface Asking {
  ask(subject: string, data: Uint8Array, timeoutMs: number, headers: Headers | undefined): Promise<BusReply>;
  askApi(verb: string, data: Uint8Array, timeoutMs: number): Promise<BusReply>;
}

type Answer = { readonly json: Json } | { readonly failed: string; readonly problem: ApiProblem | null };

const TIMEOUT_MS = 5_000;
/** Requests that `readAll` has out at a time. */
const READ_WINDOW = 64;
const EMPTY = new Uint8Array(0);
const NOT_JETSTREAM = 'the answer is not JetStream’s';

export class Streams {
  readonly #asking: Asking;

  constructor(asking: Asking) {
    this.#asking = asking;
  }

  async append(subject: string, data: Uint8Array, options: AppendOptions): Promise<Appended> {
    const headers: Record<string, string> = { ...options.headers };
    if (options.expectLastSeq !== undefined) headers['Nats-Expected-Last-Sequence'] = String(options.expectLastSeq);
    if (options.expectLastSubjectSeq !== undefined) headers['Nats-Expected-Last-Subject-Sequence'] = String(options.expectLastSubjectSeq);
    if (options.stream !== undefined) headers['Nats-Expected-Stream'] = options.stream;
    if (options.msgId !== undefined) headers['Nats-Msg-Id'] = options.msgId;
    const what = `storing ${subject}`;
    const reply = await this.#asking.ask(subject, data, options.timeoutMs ?? TIMEOUT_MS, headers);
    if (reply.kind === 'no_responder') return { failed: `${what}: no stream takes it`, ambiguous: false };
    if (reply.kind !== 'ok') {
      return { failed: replyWords(reply, what), ambiguous: reply.kind === 'timeout' || (reply.kind === 'unreachable' && reply.sent) };
    }
    const answer = parseJson(reply.message.data);
    const problem = answer === null ? null : problemOf(answer);
    if (problem !== null) {
      const conflict = conflictOf(problem);
      return conflict === null ? { failed: `${what}: ${problem.words}`, ambiguous: false } : { conflict: conflict.lastSeq };
    }
    const seq = answer?.['seq'];
    if (typeof seq !== 'number' || typeof answer?.['stream'] !== 'string') return { failed: `${what}: ${NOT_JETSTREAM}`, ambiguous: true };
    return { seq, duplicate: answer['duplicate'] === true };
  }

  async last(stream: string, subject: string, timeoutMs: number): Promise<Stored | null | Failed> {
    const problem = subjectProblem(subject);
    const what = `reading ${subject} of ${stream}`;
    if (problem !== null) return { failed: `${what}: the subject ${problem}` };
    const reply = await this.#asking.askApi(`DIRECT.GET.${stream}.${subject}`, EMPTY, timeoutMs);
    if (reply.kind !== 'ok') return { failed: replyWords(reply, what) };
    const { message } = reply;
    const status = message.header(STATUS);
    if (status === '404') return null;
    const seq = sequence(message.header('Nats-Sequence'));
    const stored = message.header('Nats-Subject');
    if (status !== null || seq === null || stored === null) return { failed: `${what}: ${status ?? NOT_JETSTREAM}` };
    return { subject: stored, seq, data: message.data, timestampMs: timestamp(message.header('Nats-Time-Stamp') ?? '') };
  }

  async lastAtLeader(stream: string, subject: string, timeoutMs: number): Promise<Stored | null | Failed> {
    const problem = subjectProblem(subject);
    if (problem !== null) return { failed: `reading ${subject} of ${stream}: the subject ${problem}` };
    return await this.#get(stream, { last_by_subj: subject }, timeoutMs);
  }

  async readAll(stream: string, pattern: string): Promise<{ readonly messages: Stored[]; readonly lastSeq: number } | Failed> {
    const problem = patternProblem(pattern);
    if (problem !== null) return { failed: `reading ${pattern} of ${stream}: the subject ${problem}` };
    const subjects: string[] = [];
    let lastSeq = 0;
    for (let total = 1; subjects.length < total; ) {
      const page = await this.#json(`STREAM.INFO.${stream}`, { subjects_filter: pattern, offset: subjects.length });
      if ('failed' in page) return { failed: page.failed };
      if (subjects.length === 0) lastSeq = streamFacts(page.json).lastSeq;
      const found = subjectsOf(page.json);
      if (found.size === 0) break;
      subjects.push(...found.keys());
      total = typeof page.json['total'] === 'number' ? page.json['total'] : 0;
    }
    const messages: Stored[] = [];
    const failures: Failed[] = [];
    let next = 0;
    const read = async (): Promise<void> => {
      for (let subject = subjects[next++]; subject !== undefined && failures.length === 0; subject = subjects[next++]) {
        const found = await this.#get(stream, { last_by_subj: subject });
        if (found === null) continue;
        if ('failed' in found) failures.push(found);
        else messages.push(found);
      }
    };
    await Promise.all(Array.from({ length: Math.min(READ_WINDOW, subjects.length) }, read));
    return failures[0] ?? { messages: messages.sort((a, b) => a.seq - b.seq), lastSeq };
  }

  async history(stream: string, subject: string, limit: number, fromSeq: number): Promise<Stored[] | Failed> {
    const problem = patternProblem(subject);
    if (problem !== null) return { failed: `reading ${subject} of ${stream}: the subject ${problem}` };
    const messages: Stored[] = [];
    for (let seq = fromSeq; messages.length < limit; ) {
      const found = await this.#get(stream, { seq, next_by_subj: subject });
      if (found === null) break;
      if ('failed' in found) return found;
      messages.push(found);
      seq = found.seq + 1;
    }
    return messages;
  }

  async facts(name: string): Promise<StreamFacts | null | Failed> {
    const info = await this.#json(`STREAM.INFO.${name}`, null);
    if ('failed' in info) return info.problem?.errCode === NO_SUCH_STREAM ? null : { failed: info.failed };
    return streamFacts(info.json);
  }

  async ensure(spec: StreamSpec): Promise<StreamReady> {
    const wanted = wireConfig(spec);
    for (let attempt = 0; attempt < 3; attempt++) {
      const info = await this.#json(`STREAM.INFO.${spec.name}`, null);
      if (!('failed' in info)) return await this.#bring(spec, wanted, info.json);
      if (info.problem?.errCode !== NO_SUCH_STREAM) return { failed: info.failed };
      const made = await this.#json(`STREAM.CREATE.${spec.name}`, { ...NEW_STREAM, ...wanted });
      if (!('failed' in made)) return await this.#readBack(spec.name, wanted, 'created');
      // taken: another one was faster, and what it made is looked at
      if (made.problem?.errCode !== STREAM_NAME_TAKEN) return { failed: made.failed };
    }
    return { failed: `the stream ${spec.name} is made and deleted by others at the same time` };
  }

  async #bring(spec: StreamSpec, wanted: Json, info: Json): Promise<StreamReady> {
    const facts = streamFacts(info);
    const has = configIn(info);
    if (!facts.subjects.some((subject) => spec.subjects.includes(subject))) {
      return { failed: `the stream ${spec.name} is there already and holds something else: ${facts.subjects.join(' ')}` };
    }
    const missing = differences(wanted, has);
    if (missing.length === 0) return { facts, change: 'none', ignored: [] };
    const updated = await this.#json(`STREAM.UPDATE.${spec.name}`, { ...has, ...wanted });
    if ('failed' in updated) return { failed: `${updated.failed} (it should be ${missing.join('; ')})` };
    return await this.#readBack(spec.name, wanted, differences(configIn(updated.json), has).length > 0 ? 'updated' : 'none');
  }

  async #readBack(name: string, wanted: Json, change: 'created' | 'updated' | 'none'): Promise<StreamReady> {
    const info = await this.#json(`STREAM.INFO.${name}`, null);
    if ('failed' in info) return { failed: info.failed };
    return { facts: streamFacts(info.json), change, ignored: differences(wanted, configIn(info.json)) };
  }

  async #get(stream: string, what: object, timeoutMs: number = TIMEOUT_MS): Promise<Stored | null | Failed> {
    const reply = await this.#json(`STREAM.MSG.GET.${stream}`, what, timeoutMs);
    if ('failed' in reply) return reply.problem?.errCode === NO_MESSAGE_FOUND ? null : { failed: reply.failed };
    return storedIn(reply.json) ?? { failed: `STREAM.MSG.GET.${stream}: ${NOT_JETSTREAM}` };
  }

  async #json(verb: string, body: object | null, timeoutMs: number = TIMEOUT_MS): Promise<Answer> {
    const data = body === null ? EMPTY : Buffer.from(JSON.stringify(body), 'utf8');
    const reply = await this.#asking.askApi(verb, data, timeoutMs);
    if (reply.kind !== 'ok') return { failed: replyWords(reply, verb), problem: null };
    const json = parseJson(reply.message.data);
    if (json === null) return { failed: `${verb}: ${NOT_JETSTREAM}`, problem: null };
    const problem = problemOf(json);
    return problem === null ? { json } : { failed: `${verb}: ${problem.words}`, problem };
  }
}
