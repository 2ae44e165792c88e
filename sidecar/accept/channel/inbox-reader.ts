/**
 * The agent's inbox on its channel: entries leave as notifications `reach.message` for as long as the agent takes them. What it
 * does not take waits in the inbox, not here: when the send buffer is full no more is asked for until it has run half empty.
 */
import { ChannelMethod } from '../../../proto/wire/channel.ts';
import type { InboxDoor, InboxEntry, InboxFollowing, InboxReader, InboxRefusal } from '../../inbox/door.ts';
import { entryText } from '../inbox-text.ts';

/** What an inbox needs of its connection. */
export interface ReadOn {
  readonly agentId: string;
  readonly isOver: boolean;
  /** The one that reads on it now. */
  reader: InboxOnChannel | null;
  sendText(head: string, bytes: Buffer | null, tail: string): void;
  /** True when no more should be sent for now; then `resume` is called when it may. */
  isFull(waiting: { resume(): void }): boolean;
}

const HEAD = `{"jsonrpc":"2.0","method":"${ChannelMethod.message}","params":`;

export class InboxOnChannel implements InboxReader {
  readonly #on: ReadOn;
  #following: InboxFollowing | null = null;
  #isOver = false;

  constructor(on: ReadOn) {
    this.#on = on;
  }

  /** Nothing comes before `begin`. A connection has one reader: a former one gives way when this one has succeeded. */
  async open(inbox: InboxDoor, from: number | null): Promise<InboxFollowing | InboxRefusal> {
    const on = this.#on;
    const former = on.reader;
    // From here on: a former one on this connection ends without a word, since the agent asked for it.
    on.reader = this;
    const came = await inbox.follow(on.agentId, from, this);
    if (!came.ok) {
      if (on.reader === this) on.reader = former;
      return came;
    }
    if (on.isOver || this.#isOver) came.close();
    else this.#following = came;
    return came;
  }

  begin(): void {
    this.#following?.ready();
  }

  take(entry: InboxEntry): boolean {
    if (this.#isOver) return false;
    this.#on.sendText(HEAD, entryText(entry), '}');
    return !this.#on.isFull(this);
  }

  /** The connection has room again. */
  resume(): void {
    this.#following?.ready();
  }

  ended(why: 'replaced' | 'closing'): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const on = this.#on;
    if (on.reader !== this) return;
    on.reader = null;
    on.sendText(`{"jsonrpc":"2.0","method":"${ChannelMethod.messagesEnd}","params":{"why":"${why}"}}`, null, '');
  }

  /** The connection is over, or another reader takes this one's place on it. */
  close(): void {
    this.#isOver = true;
    this.#following?.close();
    this.#following = null;
    if (this.#on.reader === this) this.#on.reader = null;
  }
}
