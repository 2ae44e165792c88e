/**
 * What may not come in at a port of the sidecar at all, whatever the path. The port for agents is open to the user's
 * browser, and guarded by what browsers say of themselves (`base/host-guard.ts`); the port for sidecars has stricter rules.
 * Who is calling, and whether the caller may, is not decided here.
 */
import type { IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import {
  BAD_TARGET,
  framingProblem,
  HostGuard,
  isSimplePost,
  type Refusal,
  refusal,
  SIMPLE_POST,
  withoutPort,
} from '../../base/host-guard.ts';
import type { SidecarAddress } from '../../proto/language/types.ts';
import { Code } from '../../proto/wire/codes.ts';

const BAD_PEER_HOST = refusal(
  403,
  'host',
  'the Host header names no host of this sidecar (an IP address, localhost, an address under `sidecars` in the table, or one of sidecar.allowed_hosts)',
);
const BROWSER = refusal(403, 'origin', 'this port is for sidecars; requests of browsers are refused');

/** The code of a refusal before routing. */
export function codeOfRefusal({ status }: Refusal): Code {
  return status === 400 ? Code.invalid_request : status === 401 ? Code.unauthenticated : Code.forbidden;
}

/** Guards the port for agents. */
export class LocalGuard extends HostGuard {
  /** @param extraNames further host names, lower case, without port. */
  constructor(extraNames: readonly string[]) {
    super(extraNames, 'the Host header names no host of this sidecar (localhost, 127.0.0.1, [::1], or one of sidecar.allowed_hosts)');
  }
}

/** What the guard of the mesh port asks the table: the names under which sidecars are reached. */
export interface MeshNames {
  /** A table is in force; until then any name may be right, and nothing is served. */
  readonly ready: boolean;
  sidecars(): readonly SidecarAddress[];
}

/**
 * Guards the port for sidecars: no browser has any business there. A rebound name is always a name, so a Host that is an
 * address needs no further look; names are those of the table, since that is where peers have them from.
 */
export class MeshGuard {
  readonly #names: ReadonlySet<string>;
  readonly #table: MeshNames;
  readonly #isProved: boolean;
  #listed: { readonly of: readonly SidecarAddress[]; readonly names: ReadonlySet<string> } = { of: [], names: new Set() };

  /**
   * @param extraNames further host names, lower case, without port.
   * @param isProved TLS has proved who is there, and there is no other credential.
   */
  constructor(extraNames: readonly string[], table: MeshNames, isProved = false) {
    this.#names = new Set(['localhost', ...extraNames]);
    this.#table = table;
    this.#isProved = isProved;
  }

  /** Null = it may go on to routing. */
  check(request: IncomingMessage): Refusal | null {
    const framing = framingProblem(request);
    if (framing !== null) return framing;
    const { headers } = request;
    if ((request.url as string).charCodeAt(0) !== 0x2f) return BAD_TARGET;
    if (headers.origin !== undefined || headers['sec-fetch-site'] !== undefined) return BROWSER;
    if (!this.#isOurs(headers.host)) return BAD_PEER_HOST;
    if (!this.#isProved && headers.authorization === undefined && isSimplePost(request)) return SIMPLE_POST;
    return null;
  }

  #isOurs(host: string | undefined): boolean {
    if (host === undefined) return false;
    const name = withoutPort(host);
    if (isIP(name) === 4 || (name.startsWith('[') && isIP(name.slice(1, -1)) === 6)) return true;
    return this.#names.has(name) || !this.#table.ready || this.#namesInTable().has(name);
  }

  #namesInTable(): ReadonlySet<string> {
    const sidecars = this.#table.sidecars();
    if (this.#listed.of !== sidecars) this.#listed = { of: sidecars, names: new Set(sidecars.map(({ mesh }) => new URL(mesh).hostname)) };
    return this.#listed.names;
  }
}
