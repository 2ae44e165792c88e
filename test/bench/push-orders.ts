/** What the push bench and its processes of table clients say to each other. */

export interface ClientSpec {
  readonly name: string;
  readonly caller: string;
  /** Capabilities in its scope when it is complete. */
  readonly scope: number;
}

export type ClientsOrder =
  | { readonly do: 'start'; readonly url: string; readonly env: string; readonly clients: readonly ClientSpec[] }
  /** Forgets what was noted so far. */
  | { readonly do: 'arm' }
  | { readonly do: 'noted' }
  | { readonly do: 'memory' }
  /** Ends so many of them without a goodbye and starts them anew, one after another, with nothing on disk. */
  | { readonly do: 'rejoin'; readonly count: number };

/** Name of the client, what it saw, when (milliseconds of the shared monotonic clock). */
export type Noted = readonly (readonly [client: string, change: string, atMs: number])[];

export interface Memory {
  readonly usedBytes: number;
  readonly providersHeld: number;
  readonly capabilitiesHeld: number;
}

export interface Rejoined {
  readonly tookMs: readonly number[];
}

export interface Ready {
  readonly clients: number;
  readonly slowestMs: number;
}

/** The monotonic clock of the machine: on Linux the same for all its processes. */
export function sharedNowMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** What a table says of a provider: a change is one of these coming or going. */
export const Mark = {
  has: (agentId: string, weight: number): string => `${agentId}*${weight}`,
  gone: (agentId: string): string => `-${agentId}`,
} as const;
