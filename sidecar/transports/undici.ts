/**
 * The two parts of undici that the HTTP adapters use. Its front module loads fetch, cache, WebSocket and mocks as well: six
 * megabytes that no sidecar needs. A test holds these against the front module, so that an upgrade cannot part them.
 */
import { createRequire } from 'node:module';
import type { buildConnector as BuildConnector, Client as ClientClass } from 'undici';

const load = createRequire(import.meta.url);

export type Client = ClientClass;
export const Client = load('undici/lib/dispatcher/client.js') as typeof ClientClass;
export const buildConnector = load('undici/lib/core/connect.js') as typeof BuildConnector;
