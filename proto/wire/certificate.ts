/**
 * The name in a sidecar's certificate: one URI `reach://<env>/sidecar/<name>` among its alternative names. Nothing else in
 * a certificate says who it is; host names and addresses are not looked at, since sidecars move.
 */
const URI = /^URI:reach:\/\/([a-zA-Z0-9_-]{1,64})\/sidecar\/([a-z0-9][a-z0-9_-]{0,62})$/;

export interface NamedIn {
  readonly env: string;
  readonly sidecar: string;
}

/**
 * @param names as Node writes the alternative names: `URI:reach://prod/sidecar/a, DNS:a.internal`. Names with anything
 *   special in them are quoted there, and ours never are.
 * @returns null when there is none of ours, or more than one.
 */
export function sidecarIn(names: string | undefined): NamedIn | null {
  let found: NamedIn | null = null;
  for (const part of (names ?? '').split(', ')) {
    if (part.includes('"')) return null;
    const match = URI.exec(part);
    if (match === null) continue;
    if (found !== null) return null;
    found = { env: match[1] as string, sidecar: match[2] as string };
  }
  return found;
}
