/** The settings of the sidecar that a scenario runs in: those that decide something, read as in its own configuration. */
import { type Bad, BAD, type Place } from '../../proto/language/reader.ts';
import { isPlainMap } from '../../proto/language/shapes.ts';
import { type SidecarConfig, sidecarFields, sidecarShape } from '../config.ts';

/** The rest is about sockets, files and tokens, which the lab has none of: taking them would promise something. */
const MEANT: ReadonlySet<string> = new Set(['name', 'locality', 'max_deadline', 'max_hops', 'retry_budget', 'affinity', 'ejection']);

/** `raw` null = nothing was written: every default. */
export function readSidecarSection(raw: unknown, place: Place): SidecarConfig | Bad {
  const map = isPlainMap(raw) ? (raw as Readonly<Record<string, unknown>>) : {};
  let isClean = true;
  for (const key of Object.keys(map)) {
    if (MEANT.has(key) || !Object.hasOwn(sidecarFields, key)) continue;
    place
      .at(key)
      .badKey(`${key} means nothing in the lab, which has no sockets, files or tokens; what counts here is ${[...MEANT].join(', ')}`);
    isClean = false;
  }
  const read = sidecarShape.read({ name: 'lab', ...map }, place);
  return read === BAD || !isClean ? BAD : read.config;
}
