/** An agent's inbox, as the ways in see it: read from a position, wait, acknowledge. The position (`seq`) rises and has gaps. */

import type { Asking } from './asking.ts';

export interface InboxEntry {
  readonly seq: number;
  /** A state of a task that the agent has sent, or what another one sends to it. */
  readonly kind: 'state' | 'message';
  /** A JSON object: a `TaskEvent` or an `InboxMessage`. */
  readonly head: Buffer;
  /** Of the body; '' = not said. */
  readonly contentType: string;
  readonly body: Buffer;
}

export interface InboxRefusal {
  readonly ok: false;
  /** `gone`: earlier than what is kept (`from` says what is); `ahead`: later than anything there has been; `invalid`: no position. */
  readonly why: 'gone' | 'ahead' | 'invalid' | 'unreachable';
  /** The position from which reading would succeed; 0 = not known. */
  readonly from: number;
  readonly detail: string;
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
  | InboxRefusal;

/** A reader that entries are pushed to. `take` has taken the entry in any case; false: no more until `ready()`. */
export interface InboxReader {
  take(entry: InboxEntry): boolean;
  /** `replaced`: another reader of the same agent has taken over; `closing`: the sidecar stops, or the inbox was begun anew. */
  ended(why: 'replaced' | 'closing'): void;
}

export interface InboxFollowing {
  readonly ok: true;
  /** The first one that is given is this or a later one. */
  readonly from: number;
  readonly floor: number;
  /** Begins, and goes on after `take` gave false. Nothing is given before it was called. */
  ready(): void;
  close(): void;
}

export interface InboxDoor {
  /**
   * @param from null = after the acknowledged floor.
   * @param limit entries at most.
   * @param waitMs how long to wait for the first one.
   * @param asking absent = whoever asks does not leave.
   */
  read(agent: string, from: number | null, limit: number, waitMs: number, asking?: Asking): Promise<InboxPage>;
  /** One reader an agent: the last one wins. */
  follow(agent: string, from: number | null, reader: InboxReader): Promise<InboxFollowing | InboxRefusal>;
  /** Everything up to `seq` has been taken. A floor never goes back: what is lower changes nothing. */
  acknowledge(agent: string, seq: number): Promise<{ readonly ok: true; readonly floor: number } | InboxRefusal>;
}
