/**
 * TLS between sidecars, both ends of it: who is at the other end is said by the certificate alone, and by nothing that the
 * peer writes afterwards. Sessions are never resumed: each connection proves itself anew, and what it costs is paid once a
 * connection. New files are for new connections; what becomes of those that are open stands in `mesh-connections.ts`.
 */
import { constants } from 'node:crypto';
import type { RequestListener, Server as HttpServer, ServerOptions } from 'node:http';
import { createServer, type Server } from 'node:https';
import type { Socket } from 'node:net';
import type { PeerCertificate as NodeCertificate, TLSSocket } from 'node:tls';
import type { buildConnector as Connector } from 'undici';
import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import { TlsFiles, type TlsMaterial, type TlsPaths } from '../../base/tls-files.ts';
import { sidecarIn } from '../../proto/wire/certificate.ts';
import { PeerCertificate } from '../call/peer.ts';
import { MeshConnections } from './mesh-connections.ts';
import type { SecureConnectors } from './pool.ts';
import { buildConnector } from './undici.ts';

/** A handshake takes milliseconds; who needs longer is holding a socket. */
const HANDSHAKE_MS = 5_000;

export class MeshTls implements SecureConnectors {
  readonly #env: string;
  readonly #files: TlsFiles;
  readonly #servers = new Set<Server>();
  readonly #connections = new MeshConnections();
  readonly #clock: Clock;
  readonly #log: Logger;
  #isRevoked: IsRevoked = () => false;

  /** Throws with a sentence when the files cannot be used. */
  constructor(env: string, self: string, paths: TlsPaths, reloadMs: number, clock: Clock, log: Logger) {
    this.#env = env;
    this.#clock = clock;
    this.#log = log;
    this.#files = new TlsFiles(paths, clock, reloadMs, (material) => problemOf(material, env, self, paths, clock.wallMs()));
    this.#files.onChange = (material) => {
      for (const server of this.#servers) server.setSecureContext(contextOf(material));
      const cut = this.#connections.cutStrangers(material.ca);
      log.info(
        { until: material.own.validTo, cut },
        'other files are in force between sidecars; open connections are replaced as they fall idle',
      );
    };
    this.#files.onTrouble = (why) => log.error({ why }, 'the new certificate cannot be used: the one before stays in force');
    this.#files.start();
  }

  /** Seconds since 1970 at which the certificate ends. */
  get endsAtSec(): number {
    return Date.parse(this.#files.material.own.validTo) / 1_000;
  }

  /** Why what stands in the files is not in force; '' = it is. */
  get trouble(): string {
    return this.#files.trouble;
  }

  /** Looks at the files now. */
  reload(): void {
    this.#files.look();
  }

  stop(): void {
    this.#files.stop();
  }

  /**
   * What the control plane says now of sidecars that it has taken back: their connections end, with whatever is under way on them, and
   * none is made to them. One that comes in anew is told why it is refused, call by call (`identify`).
   */
  judgeBy(isRevoked: IsRevoked): void {
    this.#isRevoked = isRevoked;
    const cut = this.#connections.cutRevoked(({ name, sinceSec }) => isRevoked(name, sinceSec));
    if (cut > 0) this.#log.warn({ cut }, 'connections of sidecars that have been taken back were cut');
  }

  /** It serves what is under way on it, and no more. */
  isOutdated(socket: Socket): boolean {
    return this.#connections.isOutdated(socket, this.#files.version, this.#clock.wallMs() / 1_000);
  }

  // ---- the port

  server(options: ServerOptions, handler: RequestListener): HttpServer {
    const server = createServer(
      {
        ...options,
        ...contextOf(this.#files.material),
        requestCert: true,
        rejectUnauthorized: true,
        handshakeTimeout: HANDSHAKE_MS,
        ALPNProtocols: ['http/1.1'],
      },
      handler,
    );
    this.#servers.add(server);
    server.on('secureConnection', (socket: TLSSocket) => {
      const peer = this.peerOf(socket);
      if (peer !== null) this.#connections.hold(socket, peer, this.#files.version);
    });
    server.on('close', () => this.#servers.delete(server));
    return server;
  }

  /** Who is at the other end; null = its certificate names no sidecar of this environment. */
  peerOf(socket: Socket): PeerCertificate | null {
    const secure = socket as TLSSocket;
    if (!secure.authorized) return null;
    return this.#peerIn(secure.getPeerCertificate());
  }

  /** @param certificate null, whatever its type says, when the other end has gone in the same moment */
  #peerIn(certificate: NodeCertificate | null): PeerCertificate | null {
    const named = sidecarIn(certificate?.subjectaltname);
    if (certificate === null || named === null || named.env !== this.#env) return null;
    return new PeerCertificate(named.sidecar, Date.parse(certificate.valid_from) / 1_000, Date.parse(certificate.valid_to) / 1_000);
  }

  // ---- the way out

  to(sidecar: string, options: object): Connector.connector {
    let version = 0;
    let connect: Connector.connector | null = null;
    return (asked, done) => {
      if (connect === null || version !== this.#files.version) {
        version = this.#files.version;
        connect = buildConnector({
          ...options,
          ...contextOf(this.#files.material),
          timeout: 0,
          allowH2: false,
          maxCachedSessions: 0,
          rejectUnauthorized: true,
          checkServerIdentity: (_host: string, certificate: NodeCertificate) => this.#mismatch(sidecar, certificate),
        });
      }
      const made = version;
      return connect(asked, (...[error, socket]: Parameters<Connector.Callback>) => {
        if (error !== null) return done(error, null);
        const peer = this.#peerIn((socket as TLSSocket).getPeerCertificate());
        if (peer !== null) this.#connections.hold(socket as TLSSocket, peer, made);
        done(null, socket);
      });
    };
  }

  #mismatch(sidecar: string, certificate: NodeCertificate): Error | undefined {
    const named = sidecarIn(certificate.subjectaltname);
    if (named?.env === this.#env && named.sidecar === sidecar)
      return this.#isRevoked(sidecar, Date.parse(certificate.valid_from) / 1_000)
        ? new Error(`the certificate of ${sidecar} has been taken back`)
        : undefined;
    return new Error(
      named === null
        ? 'its certificate names no sidecar'
        : `its certificate is that of ${named.sidecar} in ${named.env}, not of ${sidecar} in ${this.#env}`,
    );
  }
}

/** @param sinceSec when the certificate begins to count: one that was issued later is another one */
type IsRevoked = (sidecar: string, sinceSec: number) => boolean;

function contextOf({ cert, key, ca }: TlsMaterial) {
  return { cert, key, ca, minVersion: 'TLSv1.3', secureOptions: constants.SSL_OP_NO_TICKET } as const;
}

function problemOf({ own }: TlsMaterial, env: string, self: string, { cert }: TlsPaths, wallMs: number): string | null {
  const named = sidecarIn(own.subjectAltName);
  if (named === null || named.env !== env || named.sidecar !== self)
    return `${cert} is not the certificate of this sidecar: it must name reach://${env}/sidecar/${self}`;
  return Date.parse(own.validTo) <= wallMs ? `${cert} has expired (${own.validTo})` : null;
}
