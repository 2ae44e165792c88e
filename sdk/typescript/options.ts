/** Where the sidecar is and who calls: options first, then the environment, then the sidecar's shipped address. */
import { type Clock, realClock } from '../../base/clock.ts';
import { type Random, systemRandom } from '../../base/random.ts';

const DEFAULT_URL = 'http://127.0.0.1:7700';
const UNIX = 'unix:';

export interface ReachOptions {
  /** Of the sidecar, or `unix:/path` of its socket. Default: `REACH_URL`, else `http://127.0.0.1:7700`. */
  readonly url?: string;
  /** The agent's own. Default: `REACH_TOKEN`; without one no credential is sent. */
  readonly token?: string;
  /** What the sidecar itself wants to be shown (its `api_token`). Default: `REACH_API_TOKEN`. */
  readonly apiToken?: string;
  /** Told what nobody waits for: lost connections, faults of handlers. Default: one line on stderr. */
  readonly log?: (line: string) => void;
  /** For tests. */
  readonly clock?: Clock;
  /** For tests. */
  readonly random?: Random;
}

export interface Settings {
  readonly host: string;
  readonly port: number;
  /** A socket in the file system instead of host and port; null = none. */
  readonly socketPath: string | null;
  /** Without a slash at its end. */
  readonly url: string;
  /** '' = none. */
  readonly token: string;
  /** '' = none. */
  readonly apiToken: string;
  readonly log: (line: string) => void;
  readonly clock: Clock;
  readonly random: Random;
}

/** Throws, in one sentence, for an address that cannot be a sidecar's. */
export function settingsOf(options: ReachOptions): Settings {
  const text = options.url ?? (process.env['REACH_URL'] || DEFAULT_URL);
  const socketPath = text.startsWith(UNIX) ? text.slice(UNIX.length) : null;
  if (socketPath !== null && !socketPath.startsWith('/'))
    throw new TypeError(`the address of a sidecar's socket reads like unix:/run/reach/agents.sock, not ${JSON.stringify(text)}`);
  const url = socketPath !== null ? new URL('http://localhost') : URL.canParse(text) ? new URL(text) : null;
  if (url === null || url.protocol !== 'http:' || (url.pathname !== '/' && url.pathname !== ''))
    throw new TypeError(`the sidecar's address reads like ${DEFAULT_URL}, not ${JSON.stringify(text)}`);
  return {
    host: url.hostname.replace(/^\[|\]$/g, ''),
    port: url.port === '' ? 80 : Number(url.port),
    socketPath,
    url: socketPath === null ? url.origin : text,
    token: options.token ?? process.env['REACH_TOKEN'] ?? '',
    apiToken: options.apiToken ?? process.env['REACH_API_TOKEN'] ?? '',
    log: options.log ?? ((line) => void process.stderr.write(`agent-reach: ${line}\n`)),
    clock: options.clock ?? realClock,
    random: options.random ?? systemRandom,
  };
}
