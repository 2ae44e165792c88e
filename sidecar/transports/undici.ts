/**
 * The two parts of undici that the HTTP adapters use. Its front module loads fetch, cache, WebSocket and mocks as well: six
 * megabytes that no sidecar needs. A test holds these against the front module, so that an upgrade cannot part them.
 */
import connect from 'undici/lib/core/connect.js';
import client from 'undici/lib/dispatcher/client.js';

export const Client = client;
export const buildConnector = connect;
