/**
 * What is laid over the table of a scenario: by one of its variants, or by a file that is given beside it (`--with`). An entry changes the
 * one of the same name, key by key, and is new where there is none; what a file says of capabilities and agents that a scenario does not
 * have is about other scenarios, and passes it by.
 */
import { openSource, Place, refuseUnknown, type Source } from '../../proto/language/reader.ts';
import { isPlainMap } from '../../proto/language/shapes.ts';
import { tableFields } from '../../proto/language/document.ts';
import { sidecarFields } from '../config.ts';
import { object, optional } from '../../proto/language/reader.ts';
import type { Entry, SectionName } from './draft.ts';
import { patched } from './patchwork.ts';

type RawMap = Readonly<Record<string, unknown>>;

export interface Overlay {
  readonly map: RawMap;
  readonly place: Place;
  /** It is meant for this scenario: what it names and the scenario does not have is new, or a slip. */
  readonly isOwn: boolean;
}

const KEYS: Readonly<Record<SectionName, readonly string[]>> = Object.freeze({
  contracts: ['name', 'version'],
  providers: ['agent_id'],
  policies: ['capability'],
  overrides: ['name'],
  rules: ['name'],
});

/** @param contracts of the scenario, which say what it is about */
export function overlaid(name: SectionName, entries: readonly Entry[], overlay: Overlay, contracts: readonly Entry[]): readonly Entry[] {
  const list = overlay.map[name];
  if (!Array.isArray(list)) {
    if (list !== undefined) overlay.place.at(name).bad(`${name} must be a list (lines that begin with "- ")`);
    return entries;
  }
  const after = [...entries];
  for (const [i, raw] of (list as unknown[]).entries()) {
    const place = overlay.place.at(name, i);
    const at = isPlainMap(raw) ? after.findIndex((entry) => isSame(name, entry.raw, raw as RawMap)) : -1;
    const old = after[at];
    if (old !== undefined)
      after[at] = { raw: { ...(old.raw as RawMap), ...(raw as RawMap) }, place: patched(old.place, raw as RawMap, place) };
    else if (overlay.isOwn || isAbout(name, raw, contracts)) after.push({ raw, place });
  }
  return after;
}

function isSame(name: SectionName, entry: unknown, patch: RawMap): boolean {
  return (
    isPlainMap(entry) &&
    KEYS[name].every((key) => !(key in patch && (entry as RawMap)[key] !== patch[key]) && KEYS[name].some((one) => one in patch))
  );
}

/** Something that is new to a scenario: operators' words about what it has. Of contracts and providers it has its own. */
function isAbout(name: SectionName, raw: unknown, contracts: readonly Entry[]): boolean {
  if (name === 'contracts' || name === 'providers') return false;
  if (name !== 'policies' || !isPlainMap(raw)) return true;
  const pattern = String((raw as RawMap)['capability']);
  if (pattern === '*') return true;
  const stem = pattern.endsWith('.*') ? pattern.slice(0, -1) : null;
  return contracts.some(({ raw: contract }) => {
    const known = isPlainMap(contract) ? String((contract as RawMap)['name']) : '';
    return stem === null ? known === pattern : known.startsWith(stem);
  });
}

const overlayFields = { ...tableFields, sidecar: optional(object('sidecar', sidecarFields), "The sidecar's own settings.", null) };

/** A file that is given beside the scenarios. Problems are those of its source. */
export function readOverlay(content: string, file: string): { readonly overlay: Overlay; readonly source: Source } {
  const { source, value } = openSource(content, file);
  const place = new Place(source);
  const isMap = isPlainMap(value);
  if (source.problems.length === 0 && !isMap)
    place.bad('the policies to try are a map with policies, overrides, rules, contracts, providers, sidecar');
  const map = isMap ? (value as RawMap) : {};
  refuseUnknown(map, overlayFields, place);
  if ('sidecars' in map) place.at('sidecars').badKey('the lab has one sidecar, which stands for all of them: leave sidecars out');
  return { overlay: { map, place, isOwn: false }, source };
}
