/**
 * What comes in, pushed or read, on its way into the copy. Decides which epoch a message belongs to and what follows from
 * it: a capability that is complete is to be installed, one that is not is read further, a scope that has changed is
 * followed. A message that cannot be used is told, and leaves in force what was there.
 */
import type { BusMessage } from '../../base/bus-message.ts';
import { republished } from '../../base/bus-message.ts';
import { CONFIG_STREAM } from '../../proto/wire/subjects.ts';
import { NEVER } from './chain.ts';
import type { Copy } from './copy.ts';
import type { Follower } from './follower.ts';
import type { Held, Taken, TryOut } from './held.ts';
import type { Installer } from './installer.ts';
import { type Opened, open } from './readable.ts';
import type { ReadMessage, Reads } from './reads.ts';
import { capabilityTail, scopeChange } from './scope.ts';

export interface IntakeParts {
  readonly copy: Copy;
  readonly tryOut: TryOut;
  readonly reads: () => Reads;
  readonly follower: () => Follower;
  readonly installer: Installer;
  /** A message of an epoch that is neither held nor being read. */
  onOtherEpoch(): void;
  /** The scope of an epoch that is being read has come. */
  onNextScope(): void;
  onTaken(tail: string): void;
  onRefused(tail: string, seq: number, why: string): void;
}

export class Intake {
  readonly #parts: IntakeParts;

  constructor(parts: IntakeParts) {
    this.#parts = parts;
  }

  pushed(tail: string, message: BusMessage): void {
    const { copy } = this.#parts;
    const stored = republished(message);
    if (stored === null || stored.stream !== CONFIG_STREAM) {
      this.#parts.onRefused(tail, NEVER, 'it was not published by the registry: it has no sequence');
      return;
    }
    const opened = open(stored.data);
    if ('problem' in opened) {
      this.#parts.onRefused(tail, stored.seq, opened.problem);
      return;
    }
    const target = copy.of(opened.epoch);
    if (target === null) {
      this.#parts.onOtherEpoch();
      return;
    }
    const { judgement } = this.#take(target, tail, stored.seq, stored.lastSeq, opened);
    if (judgement === 'old') return;
    copy.counters.deltas++;
    if (judgement === 'next') return;
    copy.counters.gaps++;
    copy.isLossSuspected = true;
  }

  /** @param message null = the subject has none. */
  read(tail: string, message: ReadMessage | null): void {
    const { copy } = this.#parts;
    if (message === null) {
      copy.read.putAbsent(tail);
      this.#touched(copy.read, tail);
      return;
    }
    const opened = open(message.data);
    if ('problem' in opened) {
      this.#parts.onRefused(tail, message.seq, opened.problem);
      copy.read.putUnreadable(tail, message.seq);
      return;
    }
    const target = copy.of(opened.epoch);
    if (target === null) this.#parts.onOtherEpoch();
    else this.#take(target, tail, message.seq, null, opened);
  }

  #take(target: Held, tail: string, seq: number, before: number | null, opened: Opened): Taken {
    const isScope = tail === this.#parts.copy.scopeTail;
    const scopeBefore = target.scope?.state ?? null;
    const taken = isScope
      ? target.takeScope(tail, seq, before, opened)
      : target.takeCapability(tail, seq, before, opened, this.#parts.tryOut);
    if (taken.judgement === 'old') return taken;
    if (taken.problem !== null) this.#parts.onRefused(tail, seq, taken.problem);
    else {
      this.#parts.onTaken(tail);
      if (isScope) this.#scopeMoved(target, scopeBefore);
      else this.#touched(target, tail);
    }
    return taken;
  }

  #scopeMoved(target: Held, before: ReadonlySet<string> | null): void {
    const { copy, installer } = this.#parts;
    if (target !== copy.held) {
      this.#parts.onNextScope();
      return;
    }
    const follower = this.#parts.follower();
    const { added, removed } = scopeChange(before ?? new Set(), target.scope?.state ?? new Set());
    // What was not ours when a beacon named it was not looked at.
    if (added.length > 0) copy.listedThrough = NEVER;
    for (const name of added) {
      follower.followCapability(name, target.tails(name).length > 1);
      this.#readMissing(target, name);
    }
    for (const name of removed) follower.unfollowCapability(name);
    installer.touch(removed);
  }

  /** Something of a capability has come: into force with it, or first what else belongs to it. */
  #touched(target: Held, tail: string): void {
    const at = capabilityTail(tail);
    if (at === null) return;
    const { copy, installer } = this.#parts;
    if (at.shard === 0 && target.tails(at.name).length > 1) this.#parts.follower().followCapability(at.name, true);
    if (target.shardsOf(at.name) === null) this.#readMissing(target, at.name);
    else if (target === copy.held) installer.touch([at.name]);
  }

  /** What cannot be read now is found missing by the next comparison. */
  #readMissing(target: Held, name: string): void {
    const { copy } = this.#parts;
    const reads = this.#parts.reads();
    for (const tail of target.missing(name))
      void reads.read(tail).then((isRead) => {
        if (!isRead) copy.isLossSuspected = true;
      });
  }
}
