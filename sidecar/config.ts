/** Signatures first; the body follows. */
import type { Problem, SecretRef, TableDocument } from '../proto/language/types.ts';

/** A secret: by reference, or written in the file itself (fine for a laptop, not for production). */
export type SecretSource = SecretRef | { readonly literal: string };

/** Host and port to bind. */
export interface Listen {
  /** Without brackets. */
  readonly host: string;
  /** 0 = any free one. */
  readonly port: number;
}

export interface CallerToken {
  /** `team.role.id`. */
  readonly agent: string;
  readonly token: SecretSource;
}

/** The sidecar's own settings, normalised: milliseconds, bytes, ratios 0-1, nothing missing. Frozen. */
export interface SidecarConfig {
  readonly name: string;
  /** Where agents call in. */
  readonly listen: Listen;
  /** The port for other sidecars; null = none. */
  readonly mesh: { readonly listen: Listen; readonly token: SecretSource } | null;
  readonly region: string | null;
  readonly zone: string | null;
  readonly callers: readonly CallerToken[];
  /** Unauthenticated local calls act as this agent; null = 401. */
  readonly anonymous: string | null;
  /** Extra Host names, lower case, without port. */
  readonly allowedHosts: readonly string[];
  readonly limits: { readonly bodyBytes: number; readonly headerBytes: number; readonly connections: number };
  readonly maxDeadlineMs: number;
  readonly maxHops: number;
  readonly retryBudget: { readonly ratio: number; readonly minPerSec: number };
  readonly affinity: { readonly maxEntries: number; readonly ttlMs: number };
  readonly connectTimeoutMs: number;
  readonly connectionsPerOrigin: number;
  readonly log: { readonly level: LogLevel; readonly access: 'all' | 'errors' | 'off' };
  readonly ejection: { readonly consecutive: number; readonly forMs: number };
}

export type LogLevel = 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'silent';

export type SidecarReading =
  | {
      readonly config: SidecarConfig;
      /** The table when the file holds it inline. */
      readonly document: TableDocument | null;
      /** As written in `sidecar.table`, to be read relative to the config file; null when the table is inline. */
      readonly tableFile: string | null;
    }
  | { readonly problems: readonly Problem[] };

export declare function readSidecarConfig(text: string, fileName: string): SidecarReading;
