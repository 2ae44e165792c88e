/** The version of the package that this code is part of. */
import { readFileSync } from 'node:fs';

/** From the nearest package.json above; `unknown` when there is none. */
export function packageVersion(): string {
  for (const place of ['../package.json', '../../package.json', '../../../package.json']) {
    try {
      const { name, version } = JSON.parse(readFileSync(new URL(place, import.meta.url), 'utf8')) as { name?: string; version: string };
      if (name === 'agent-reach') return version;
    } catch {
      // The compiled and the bundled program stand deeper than the source.
    }
  }
  return 'unknown';
}
