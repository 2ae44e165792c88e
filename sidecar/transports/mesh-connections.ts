/**
 * The encrypted connections that are open, in and out, and whether they may stay. Three things end one before its time:
 * - files of this sidecar have changed: it is *outdated*, serves what is under way on it, and the next call makes another one. So a new
 *   certificate comes into use without a dropped call, and the old ones are out of use before an authority is taken out of the files;
 * - an authority was taken out, and the certificate at the other end hangs on no other one: it is cut at once;
 * - the control plane has taken back the sidecar at the other end: it is cut at once.
 */
import { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import type { DetailedPeerCertificate, TLSSocket } from 'node:tls';
import type { PeerCertificate } from '../call/peer.ts';

/** From the certificate of a sidecar to the authority in the files; nobody has more. */
const MAX_CHAIN = 8;
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;

class Held {
  readonly peer: PeerCertificate;
  /** Of the files with which it was made. */
  readonly version: number;

  constructor(peer: PeerCertificate, version: number) {
    this.peer = peer;
    this.version = version;
  }
}

export class MeshConnections {
  readonly #open = new Map<Socket, Held>();

  hold(socket: TLSSocket, peer: PeerCertificate, version: number): void {
    this.#open.set(socket, new Held(peer, version));
    socket.once('close', () => this.#open.delete(socket));
  }

  /** Made with other files than those of `version`, or its certificate has ended meanwhile. One that is not known here is not. */
  isOutdated(socket: Socket, version: number, nowSec: number): boolean {
    const held = this.#open.get(socket);
    return held !== undefined && (held.version !== version || held.peer.untilSec <= nowSec);
  }

  /** Cuts those whose certificate hangs on none of these authorities, in PEM. @returns how many */
  cutStrangers(ca: string): number {
    const authorities = certificatesIn(ca);
    return this.#cut((socket) => !isVouchedFor((socket as TLSSocket).getPeerCertificate(true), authorities));
  }

  /** Cuts those of sidecars that have been taken back. @returns how many */
  cutRevoked(isRevoked: (peer: PeerCertificate) => boolean): number {
    return this.#cut((_socket, { peer }) => isRevoked(peer));
  }

  #cut(mustEnd: (socket: Socket, held: Held) => boolean): number {
    let count = 0;
    for (const [socket, held] of this.#open) {
      if (!mustEnd(socket, held)) continue;
      socket.destroy();
      count++;
    }
    return count;
  }
}

function certificatesIn(pem: string): X509Certificate[] {
  return (pem.match(CERTIFICATE) ?? []).map((text) => new X509Certificate(text));
}

/** Signatures along the chain were checked when the connection was made; what may have changed is where it ends. */
function isVouchedFor(shown: DetailedPeerCertificate | null, authorities: readonly X509Certificate[]): boolean {
  for (let at: DetailedPeerCertificate | null = shown, i = 0; at?.raw !== undefined && i < MAX_CHAIN; at = at.issuerCertificate, i++) {
    const certificate = new X509Certificate(at.raw);
    if (authorities.some((each) => certificate.checkIssued(each) && certificate.verify(each.publicKey))) return true;
    if (at.issuerCertificate === at) return false;
  }
  return false;
}
