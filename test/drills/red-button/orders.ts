/** What the red-button drill and its processes of sidecars say to each other. */

export interface StartOrder {
  readonly do: 'start';
  readonly nats: string;
  readonly env: string;
  readonly meshToken: string;
  readonly capability: string;
  readonly names: readonly string[];
}

export type SidecarsOrder =
  | StartOrder
  /** Forgets what was noted so far, and says what a call through each is answered now. */
  | { readonly do: 'arm' }
  | { readonly do: 'noted' }
  | { readonly do: 'probe' };

/** Name of the sidecar, and when (milliseconds of the shared monotonic clock) a call through it was first answered 2006. */
export type Noted = readonly (readonly [sidecar: string, atMs: number])[];

/** Code by sidecar. */
export type Codes = Readonly<Record<string, number>>;
