/** The sidecar at the other end of a mesh connection, as its certificate says: found out once a connection. */
export class PeerCertificate {
  readonly name: string;
  /** When the certificate begins to count, seconds since 1970: an earlier one may have been taken back. */
  readonly sinceSec: number;
  /** When it ends to count. */
  readonly untilSec: number;

  constructor(name: string, sinceSec: number, untilSec: number) {
    this.name = name;
    this.sinceSec = sinceSec;
    this.untilSec = untilSec;
  }
}
