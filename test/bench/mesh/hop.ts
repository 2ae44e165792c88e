/** What the three protocols of the mesh bench have in common: what is asked, how a caller looks, and the headers that travel. */
import { ANSWER, QUESTION } from '../payload.ts';

export const PROTOCOLS = ['http1', 'http2', 'grpc'] as const;
export type Protocol = (typeof PROTOCOLS)[number];

/** One end that asks. Rejects when something is not as it must be. */
export interface Caller {
  call(): Promise<void>;
  /** Asks for so many bytes and takes all of them. */
  stream(bytes: number): Promise<void>;
  close(): Promise<void>;
}

export const CHUNK_BYTES = 65_536;
export const CHUNK = Buffer.alloc(CHUNK_BYTES, 'mesh ');
export const UNARY_PATH = '/mesh/v1/invoke/crm.order.query';
export const STREAM_PATH = '/mesh/v1/invoke/crm.report.export';
export { ANSWER, QUESTION };

/** As between two sidecars. */
export const HEADERS: readonly (readonly [string, string])[] = [
  ['authorization', 'Bearer bench-mesh-token-0123456789'],
  ['reach-wire', '1'],
  ['reach-version', '2.0.0'],
  ['reach-provider', 'crm.order.b1'],
  ['reach-deadline-ms', '8000'],
  ['reach-deadline-total-ms', '8000'],
  ['traceparent', '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'],
  ['reach-path', 'crm.planner.a1>crm.order.query'],
  ['reach-caller', 'crm.planner.a1'],
  ['content-type', 'application/json'],
];

export interface Ports {
  readonly http1: number;
  readonly http2: number;
  readonly grpc: number;
}

export type HopOrder =
  | { readonly do: 'open'; readonly ports: Ports }
  | { readonly do: 'saturate'; readonly protocol: Protocol; readonly concurrency: number; readonly durationMs: number }
  | { readonly do: 'pace'; readonly ratePerSec: number; readonly durationMs: number }
  | { readonly do: 'stream'; readonly protocol: Protocol; readonly bytes: number };

export interface Paced {
  /** ms, sorted. */
  readonly times: Readonly<Record<Protocol, readonly number[]>>;
}
