/**
 * The runs of a scenario that has variants: what is written under one is laid over the rest. Entries of the table change key by key, so
 * do mocks, settings and tasks; everything else takes the place of what was there.
 */
import { describe } from '../../base/duration.ts';
import { tableFields } from '../../proto/language/document.ts';
import { type Field, optional, Place, refuseUnknown } from '../../proto/language/reader.ts';
import { isPlainMap, text } from '../../proto/language/shapes.ts';
import { SECTIONS } from './draft.ts';
import { headFields, type RawMap } from './head.ts';
import type { Overlay } from './overlay.ts';
import { patched } from './patchwork.ts';

/** What a variant may say beside sections of the table. */
const VARIANT_KEYS: readonly (keyof typeof headFields)[] = ['seed', 'sidecar', 'as', 'table', 'mocks', 'tasks', 'steps', 'expect'];
const variantFields = {
  note: optional(text('text'), 'What it shows.', ''),
  ...(Object.fromEntries(VARIANT_KEYS.map((key) => [key, headFields[key]])) as Record<string, Field<unknown>>),
  ...tableFields,
};

/** One run of a file. */
export interface RunOf {
  readonly name: string | null;
  readonly map: RawMap;
  readonly place: Place;
  readonly overlays: readonly Overlay[];
}

export function runsOf(map: RawMap, root: Place): readonly RunOf[] {
  const { variants } = map;
  const plain = { name: null, map, place: root, overlays: [] };
  if (variants === undefined) return [plain];
  const at = root.at('variants');
  if (!isPlainMap(variants) || Object.keys(variants as RawMap).length === 0) {
    at.bad(`variants must be a map of them by name, such as {before: {…}, after: {…}}, not ${describe(variants)}`);
    return [plain];
  }
  return Object.entries(variants as RawMap).map(([name, raw]) => {
    const place = at.at(name);
    if (!isPlainMap(raw)) {
      place.bad(`${name} must be a map, not ${describe(raw)}`);
      return plain;
    }
    const variant = raw as RawMap;
    refuseUnknown(variant, variantFields, place);
    const { note: _, ...said } = variant;
    const head: Record<string, unknown> = {};
    for (const key of VARIANT_KEYS) if (key in said) head[key] = said[key];
    let where = patched(root, head, place);
    for (const key of ['sidecar', 'mocks', 'tasks'] as const) {
      const [before, after] = [map[key], head[key]];
      if (!isPlainMap(before) || !isPlainMap(after)) continue;
      head[key] = key === 'mocks' ? deeper(before as RawMap, after as RawMap) : { ...(before as RawMap), ...(after as RawMap) };
      where = patched(where, { [key]: 0 }, new Spot(place, key, patched(root.at(key), after as RawMap, place.at(key))));
    }
    const table = Object.fromEntries(SECTIONS.filter((section) => section in said).map((section) => [section, said[section]]));
    return { name, map: { ...map, ...head }, place: where, overlays: [{ map: table, place, isOwn: true }] };
  });
}

/** A place of which one key stands elsewhere. */
class Spot extends Place {
  readonly #key: string;
  readonly #home: Place;
  constructor(base: Place, key: string, home: Place) {
    super(base.source, base.path);
    this.#key = key;
    this.#home = home;
  }
  override at(...steps: (string | number)[]): Place {
    const [first, ...rest] = steps;
    return first === this.#key ? (rest.length === 0 ? this.#home : this.#home.at(...rest)) : super.at(...steps);
  }
}

/** Of mocks only what is said changes, down to single keys; lists are said whole. */
function deeper(before: RawMap, after: RawMap): RawMap {
  const merged: Record<string, unknown> = { ...before };
  for (const [key, value] of Object.entries(after))
    merged[key] = isPlainMap(merged[key]) && isPlainMap(value) ? deeper(merged[key] as RawMap, value as RawMap) : value;
  return merged;
}
