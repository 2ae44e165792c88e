/**
 * JetStream over requests: storing with an expectation, reading without a consumer, making a stream and reading back what the
 * server made of it. Every outcome is a value. Nothing is repeated here: whether a repeat is safe, only the caller knows.
 */
import { GIVEN_OUT, type Headers, replyWords, sequence, STATUS } from './bus-message.ts';
import {
  configIn,
  differences,
  type Json,
  NEW_STREAM,
  NO_MESSAGE_FOUND,
  DELETE_FAILED,
  NO_SUCH_SEQUENCE,
  NO_SUCH_STREAM,
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
import { API_TIMEOUT_MS, type ApiAnswer, type Asking, askJson, type Failed } from './jetstream-api.ts';
import { type Appended, NOT_JETSTREAM, readPubAck } from './pub-ack.ts';
import { patternProblem, subjectProblem } from './subject.ts';

export type { Appended, Failed };

const NOTHING = Buffer.alloc(0);

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

/** Requests that `readAll` has out at a time. */
const READ_WINDOW = 64;
/** No such stream; no such sequence; and what 2.9 says of the latter. */
const GONE: ReadonlySet<number> = new Set([NO_SUCH_STREAM, NO_MESSAGE_FOUND, NO_SUCH_SEQUENCE, DELETE_FAILED]);
const EMPTY = new Uint8Array(0);

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
    const reply = await this.#asking.ask(subject, data, options.timeoutMs ?? API_TIMEOUT_MS, headers);
    if (reply.kind === 'no_responder') return { failed: `${what}: no stream takes it`, ambiguous: false };
    if (reply.kind !== 'ok') {
      return { failed: replyWords(reply, what), ambiguous: reply.kind === 'timeout' || (reply.kind === 'unreachable' && reply.sent) };
    }
    return readPubAck(reply.message.data, subject);
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
    // Once by this answer: twice, and it has been stored as one.
    const data = (message.times?.(GIVEN_OUT) ?? 1) === 1 ? message.data : NOTHING;
    return { subject: stored, seq, data, timestampMs: timestamp(message.header('Nats-Time-Stamp') ?? '') };
  }

  async lastAtLeader(stream: string, subject: string, timeoutMs: number): Promise<Stored | null | Failed> {
    const problem = subjectProblem(subject);
    if (problem !== null) return { failed: `reading ${subject} of ${stream}: the subject ${problem}` };
    return await this.#get(stream, { last_by_subj: subject }, timeoutMs);
  }

  /** Subjects that match and how many messages each has. */
  async subjects(stream: string, pattern: string): Promise<Map<string, number> | Failed> {
    const problem = patternProblem(pattern);
    if (problem !== null) return { failed: `listing ${pattern} of ${stream}: the subject ${problem}` };
    const all = new Map<string, number>();
    for (let offset = 0, total = 1; offset < total; ) {
      const page = await this.#json(`STREAM.INFO.${stream}`, { subjects_filter: pattern, offset });
      if ('failed' in page) return { failed: page.failed };
      const found = subjectsOf(page.json);
      if (found.size === 0) break;
      for (const [subject, count] of found) all.set(subject, count);
      offset += found.size;
      total = typeof page.json['total'] === 'number' ? page.json['total'] : 0;
    }
    return all;
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

  async deleteMessage(stream: string, seq: number): Promise<true | null | Failed> {
    // overwriting it on disk would cost as much as a write, and nothing in it is more secret than in its neighbours
    const reply = await this.#json(`STREAM.MSG.DELETE.${stream}`, { seq, no_erase: true });
    if (!('failed' in reply)) return true;
    const code = reply.problem?.errCode ?? 0;
    return GONE.has(code) ? null : { failed: reply.failed };
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

  async #get(stream: string, what: object, timeoutMs: number = API_TIMEOUT_MS): Promise<Stored | null | Failed> {
    const reply = await this.#json(`STREAM.MSG.GET.${stream}`, what, timeoutMs);
    if ('failed' in reply) return reply.problem?.errCode === NO_MESSAGE_FOUND ? null : { failed: reply.failed };
    return storedIn(reply.json) ?? { failed: `STREAM.MSG.GET.${stream}: ${NOT_JETSTREAM}` };
  }

  async #json(verb: string, body: object | null, timeoutMs: number = API_TIMEOUT_MS): Promise<ApiAnswer> {
    return await askJson(this.#asking, verb, body, timeoutMs);
  }
}
