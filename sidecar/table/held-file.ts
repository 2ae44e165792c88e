/**
 * What is held of the registry, on disk: what a sidecar starts from when NATS is away. One line for the epoch and the
 * scope, one for each message with its sequence, so that a restart goes on where it stopped and asks only for what is
 * newer. Written at most once a second, beside the calls. A copy of another environment is not believed.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import type { DurableFile } from './durable-file.ts';
import { Held, type Taken, type TryOut } from './held.ts';
import { open } from './readable.ts';

const FORMAT = 1;
/** Between two writings. What a crash in between costs is asked for again. */
const EVERY_MS = 1_000;

interface Head {
  readonly format: number;
  readonly env: string;
  readonly epoch: string;
  readonly savedAt: string;
  readonly scope: { readonly tail: string; readonly seq: number; readonly state: object };
}

export class HeldFile {
  readonly #file: DurableFile;
  readonly #env: string;
  readonly #scopeTail: string;
  readonly #clock: Clock;
  readonly #log: Logger;
  #next: Held | null = null;
  #timer: Timer | null = null;
  #writing: Promise<void> | null = null;
  #trouble = '';

  constructor(file: DurableFile, env: string, scopeTail: string, clock: Clock, log: Logger) {
    this.#file = file;
    this.#env = env;
    this.#scopeTail = scopeTail;
    this.#clock = clock;
    this.#log = log;
  }

  /** Why the copy on disk is older than it should be; '' = it is not. */
  get trouble(): string {
    return this.#trouble;
  }

  /** Null when there is no copy, or none that can be used. */
  load(tryOut: TryOut): { readonly held: Held; readonly savedAt: string } | null {
    const lines = this.#file.read();
    if (lines === null) return null;
    const head = parsed<Head>(lines[0]);
    if (head === null || head.format !== FORMAT || head.env !== this.#env || head.scope?.tail !== this.#scopeTail) return null;
    const held = new Held(head.epoch);
    const scope = open(Buffer.from(JSON.stringify(head.scope.state)));
    if ('problem' in scope || !isTaken(held.takeScope(head.scope.tail, head.scope.seq, null, scope))) return null;
    for (const line of lines.slice(1)) {
      const entry = parsed<{ tail: string; seq: number; state: object }>(line);
      if (entry === null) return null;
      const state = open(Buffer.from(JSON.stringify(entry.state)));
      // What another version of this program has kept and this one cannot read is asked for again, and refused aloud then.
      if ('problem' in state || !isTaken(held.takeCapability(entry.tail, entry.seq, null, state, tryOut))) held.forget(entry.tail);
    }
    return { held, savedAt: head.savedAt };
  }

  /** Writes it soon. */
  keep(held: Held): void {
    this.#next = held;
    this.#timer ??= this.#clock.after(EVERY_MS, () => {
      this.#timer = null;
      this.#write();
    });
  }

  /** Writes at once what waits; resolves when it is on disk. */
  async flush(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = null;
    await this.#writing;
    this.#write();
    await this.#writing;
  }

  #write(): void {
    if (this.#next === null) return;
    if (this.#writing !== null) {
      this.keep(this.#next);
      return;
    }
    const held = this.#next;
    this.#next = null;
    this.#writing = this.#file.write(this.#lines(held)).then((trouble) => {
      this.#writing = null;
      if (trouble !== null && trouble !== this.#trouble) this.#log.warn(`the last good registry: ${trouble}`);
      this.#trouble = trouble ?? '';
    });
  }

  /** The states are never written to, so that what is held now can be put into words little by little. */
  #lines(held: Held): Iterable<string> {
    const entries = [...held.capabilities()];
    const { scope } = held;
    const state = { wire: REGISTRY_WIRE, epoch: held.epoch, capabilities: [...(scope?.state ?? [])] };
    const head: Head = {
      format: FORMAT,
      env: this.#env,
      epoch: held.epoch,
      savedAt: new Date(this.#clock.wallMs()).toISOString(),
      scope: { tail: this.#scopeTail, seq: scope?.seq ?? 0, state },
    };
    return linesOf(head, entries);
  }
}

function* linesOf(
  head: Head,
  entries: readonly (readonly [string, { readonly seq: number; readonly state: object }])[],
): Generator<string> {
  yield JSON.stringify(head);
  for (const [tail, { seq, state }] of entries) yield JSON.stringify({ tail, seq, state });
}

function isTaken(taken: Taken): boolean {
  return taken.judgement !== 'old' && taken.problem === null;
}

function parsed<T>(text: string | undefined): T | null {
  try {
    return JSON.parse(text ?? '') as T;
  } catch {
    return null;
  }
}
