/** Which version of the program this is, from the package file beside it. */
import { readFileSync } from 'node:fs';

export function packageVersion(): string {
  for (const place of ['../package.json', '../../package.json']) {
    try {
      return (JSON.parse(readFileSync(new URL(place, import.meta.url), 'utf8')) as { version: string }).version;
    } catch {
      // The compiled program stands one folder deeper than the source.
    }
  }
  return 'unknown';
}
