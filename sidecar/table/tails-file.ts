/** The last good states of single tails, on disk: what a sidecar sends and works by when it starts without NATS. One line each. */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { DurableFile } from './durable-file.ts';

const FORMAT = 1;
/** Between two writings. */
const EVERY_MS = 1_000;

export class TailsFile {
  readonly #file: DurableFile;
  readonly #env: string;
  readonly #clock: Clock;
  readonly #log: Logger;
  /** Tail to the line that says it. */
  readonly #lines = new Map<string, string>();
  #isStale = false;
  #timer: Timer | null = null;
  #writing: Promise<void> | null = null;

  constructor(file: DurableFile, env: string, clock: Clock, log: Logger) {
    this.#file = file;
    this.#env = env;
    this.#clock = clock;
    this.#log = log;
  }

  /** What was kept of this environment; empty when there is nothing that can be used. */
  load(): { readonly tail: string; readonly seq: number; readonly data: Uint8Array }[] {
    const [head, ...lines] = this.#file.read() ?? [];
    if (head !== this.#head()) return [];
    const kept: { tail: string; seq: number; data: Uint8Array }[] = [];
    for (const line of lines) {
      try {
        const { tail, seq, state } = JSON.parse(line) as { tail: string; seq: number; state: object };
        kept.push({ tail, seq, data: Buffer.from(JSON.stringify(state), 'utf8') });
        this.#lines.set(tail, line);
      } catch {
        // What cannot be read is asked for again.
      }
    }
    return kept;
  }

  /** @param data JSON. Written soon. */
  put(tail: string, seq: number, data: Uint8Array): void {
    const state = Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('utf8');
    this.#lines.set(tail, `{"tail":${JSON.stringify(tail)},"seq":${seq},"state":${state}}`);
    this.#isStale = true;
    this.#timer ??= this.#clock.after(EVERY_MS, () => {
      this.#timer = null;
      void this.flush();
    });
  }

  /** Resolves when everything is on disk. */
  async flush(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = null;
    while (this.#writing !== null || this.#isStale) {
      this.#writing ??= this.#write();
      await this.#writing;
    }
  }

  async #write(): Promise<void> {
    this.#isStale = false;
    const trouble = await this.#file.write([this.#head(), ...this.#lines.values()]);
    this.#writing = null;
    if (trouble !== null) this.#log.warn(`the last good pools and rules: ${trouble}`);
  }

  #head(): string {
    return JSON.stringify({ format: FORMAT, kind: 'tails', env: this.#env });
  }
}
