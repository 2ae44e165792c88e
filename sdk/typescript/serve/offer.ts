/** One capability that an agent serves, and its contract as it is registered. The registry judges it, nobody here. */

/** The word `public`, or who may call: `['role:planner', 'crm.*.*']`. */
export type Acl = 'public' | readonly string[];

/**
 * The contract's fields under their own names (`docs/config.md`). Only a sidecar with a registry wants them; at one with a
 * table file the contract stands there. Without `acl` no contract is sent, since the registry has one already.
 */
export interface ServeOptions {
  readonly acl?: Acl;
  readonly execution?: 'once' | 'idempotent' | 'keyed';
  readonly description?: string;
  readonly examples?: readonly unknown[];
  readonly aliases?: readonly string[];
  readonly tags?: Readonly<Record<string, string>>;
  /** JSON Schema (2020-12) of the payload. */
  readonly input?: unknown;
  /** JSON Schema (2020-12) of the answer. */
  readonly output?: unknown;
  readonly streaming?: boolean;
  /** Of one attempt, with its unit: `2s`. */
  readonly timeout?: string;
  /** Any other field of a contract: `affinity`, `retry`, `breaker`, `limits`, `success`. */
  readonly [field: string]: unknown;
}

export class Offer {
  readonly name: string;
  /** '' = not said. */
  readonly version: string;
  readonly options: ServeOptions;

  constructor(capability: string, options: ServeOptions) {
    const at = capability.indexOf('@');
    this.name = at < 0 ? capability : capability.slice(0, at);
    this.version = at < 0 ? '' : capability.slice(at + 1);
    this.options = options;
    if (this.name === '' || this.version === '')
      throw new TypeError(`serve wants a name and an exact version, such as crm.order.query@2.0.0, not ${JSON.stringify(capability)}`);
  }

  get key(): string {
    return `${this.name}@${this.version}`;
  }

  /** As it is registered; null = the registry has it. */
  get contract(): Readonly<Record<string, unknown>> | null {
    if (this.options.acl === undefined) return null;
    return { name: this.name, version: this.version, ...this.options };
  }
}
