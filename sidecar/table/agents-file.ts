/**
 * The agents that registered through the API, on disk: a sidecar that is killed and started again goes on hosting them,
 * without their having to notice and register again. Each gets a whole lease to give a sign of life.
 */
import type { Logger } from '../../base/log.ts';
import type { AgentRegistration } from '../../proto/wire/registry.ts';
import type { DurableFile } from './durable-file.ts';
import type { OwnAgents } from './own-agents.ts';

const HEAD = { format: 1, kind: 'agents' };

export class AgentsFile {
  readonly #file: DurableFile;
  readonly #log: Logger;
  readonly #isUsable: (registration: AgentRegistration) => boolean;
  #own: OwnAgents | null = null;
  #writing: Promise<void> | null = null;
  #isStale = false;

  /** @param isUsable whether what was kept, perhaps by another version of this program, can be routed to. */
  constructor(file: DurableFile, log: Logger, isUsable: (registration: AgentRegistration) => boolean) {
    this.#file = file;
    this.#log = log;
    this.#isUsable = isUsable;
  }

  /** Puts back who was there, and keeps the file up to date from now on. */
  attach(own: OwnAgents, now: number): void {
    for (const registration of this.#load()) own.put(registration, 'api', now);
    this.#own = own;
    own.onApiChange = () => this.#keep();
  }

  /** Resolves when everything is on disk. */
  async flush(): Promise<void> {
    while (this.#writing !== null) await this.#writing;
  }

  #load(): AgentRegistration[] {
    const [head, ...lines] = this.#file.read() ?? [];
    try {
      if (head === undefined || JSON.stringify(JSON.parse(head)) !== JSON.stringify(HEAD)) return [];
      return lines.map((line) => JSON.parse(line) as AgentRegistration).filter((each) => this.#isUsable(each));
    } catch {
      return [];
    }
  }

  /** One writing at a time; what comes meanwhile is written by the next. */
  #keep(): void {
    this.#isStale = true;
    if (this.#writing !== null) return;
    this.#writing = this.#write().finally(() => {
      this.#writing = null;
    });
  }

  async #write(): Promise<void> {
    while (this.#isStale) {
      this.#isStale = false;
      const agents = [...(this.#own?.all() ?? [])].filter(({ source }) => source === 'api');
      const lines = [JSON.stringify(HEAD), ...agents.map(({ registration }) => JSON.stringify(registration))];
      const trouble = await this.#file.write(lines);
      if (trouble !== null) this.#log.warn(`the agents that registered here: ${trouble}`);
    }
  }
}
