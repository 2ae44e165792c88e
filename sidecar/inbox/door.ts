/** An agent's inbox, as the ways in see it: read from a position, wait, acknowledge. The position (`seq`) rises and has gaps. */
import type { InboxMessage, TaskEvent } from '../../proto/wire/messages.ts';

export interface InboxEntry {
  readonly seq: number;
  readonly head: TaskEvent | InboxMessage;
  readonly body: Buffer;
}

export type InboxPage =
  | {
      readonly ok: true;
      readonly entries: readonly InboxEntry[];
      /** Ask for this one next. */
      readonly next: number;
      /** Everything up to it is acknowledged. */
      readonly floor: number;
    }
  /** `gone`: earlier than what is kept (`from` says what is); `ahead`: later than anything there has been; `invalid`: no position. */
  | { readonly ok: false; readonly why: 'gone' | 'ahead' | 'invalid' | 'unreachable'; readonly from: number; readonly detail: string };

/** A reader that entries are pushed to. `take` false: no more until `ready()`. */
export interface InboxReader {
  take(entry: InboxEntry): boolean;
  /** Another reader of the same agent has taken over, or it fell too far behind. */
  ended(why: 'replaced' | 'too_slow' | 'closing'): void;
}

export interface InboxDoor {
  /** @param from null = after the acknowledged floor. @param waitMs how long to wait for the first one. */
  read(agent: string, from: number | null, limit: number, waitMs: number): Promise<InboxPage>;
  /** One reader an agent: the last one wins. */
  follow(agent: string, from: number | null, reader: InboxReader): Promise<{ ready(): void; close(): void } | Extract<InboxPage, { ok: false }>>;
  /** Everything up to `seq` has been taken. False = ahead of what was given out. */
  acknowledge(agent: string, seq: number): Promise<boolean>;
}
