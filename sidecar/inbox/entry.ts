/**
 * One message of an inbox as it is held in memory: its bytes as they lie in the stream (a line of JSON, a newline, the body),
 * cut only when they are given out.
 */
import { parseJson } from '../../base/jetstream.ts';
import type { InboxMessage, TaskEvent } from '../../proto/wire/messages.ts';
import { CONTROL } from '../../proto/wire/subjects.ts';
import type { InboxEntry } from './door.ts';

const NEWLINE = 0x0a;

export class Entry implements InboxEntry {
  readonly seq: number;
  readonly kind: 'state' | 'message';
  readonly contentType: string;
  readonly #data: Buffer;
  readonly #headBytes: number;
  /** `clock.now()` when it was taken into memory. */
  readonly takenAt: number;
  /** It is not in the hot copy any more. */
  isGone = false;
  /** What its span is made of when it is given to its agent; null = it was, or no traces are made. */
  toTell: Waited | null = null;

  /** @param data is kept. */
  constructor(seq: number, { data, headBytes, contentType, head }: Read, takenAt: number) {
    this.seq = seq;
    this.kind = head.kind;
    this.contentType = contentType;
    this.#data = data;
    this.#headBytes = headBytes;
    this.takenAt = takenAt;
  }

  get bytes(): number {
    return this.#data.length;
  }

  get head(): Buffer {
    return this.#data.subarray(0, this.#headBytes);
  }

  get body(): Buffer {
    return this.#data.subarray(Math.min(this.#headBytes + 1, this.#data.length));
  }
}

/** An entry that waits for its agent. */
export interface Waited {
  readonly head: TaskEvent | InboxMessage;
  /** Wall clock of the server, or of whoever wrote it. */
  readonly storedAtMs: number;
}

export interface Read {
  readonly data: Buffer;
  readonly headBytes: number;
  readonly contentType: string;
  readonly head: TaskEvent | InboxMessage;
}

export const FORGED = 'a message was put into an inbox by another sidecar than the one that it says is its sender’s: it is passed over';

/**
 * A message says where its sender is at home, and the subject under which it was stored says who put it there, which NATS
 * permissions bind. @param writer of `InboxPlace`; null = it was stored without a name, by the version before
 */
export function isForged({ head }: Read, writer: string | null): boolean {
  return head.kind === 'message' && writer !== null && writer !== CONTROL && writer !== head.home;
}

/** Null when it is none of ours. */
export function readMessage(data: Buffer): Read | null {
  const at = data.indexOf(NEWLINE);
  const headBytes = at < 0 ? data.length : at;
  const head = parseJson(data.subarray(0, headBytes)) as unknown as TaskEvent | InboxMessage | null;
  if (head === null || typeof head.task_id !== 'string' || (head.kind !== 'state' && head.kind !== 'message')) return null;
  return { data, headBytes, contentType: typeof head.content_type === 'string' ? head.content_type : '', head };
}
