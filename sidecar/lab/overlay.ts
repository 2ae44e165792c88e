/**
 * What is laid over the table of a scenario: by one of its variants, or by a file that is given beside it (`--with`). An entry changes the
 * one of the same name, key by key, and is new where there is none; what a file says of capabilities and agents that a scenario does not
 * have is about other scenarios, and passes it by. What is about none of those that are run is a slip, and refused.
 */
import { quote } from '../../base/duration.ts';
import { nearest } from '../../base/suggest.ts';
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
  /** Of a file that is given beside several scenarios; absent = it is one scenario's, and all of it counts. */
  readonly met?: Met;
}

const SECTION_NAMES: readonly SectionName[] = ['contracts', 'providers', 'policies', 'overrides', 'rules'];

const KEYS: Readonly<Record<SectionName, readonly string[]>> = Object.freeze({
  contracts: ['name', 'version'],
  providers: ['agent_id'],
  policies: ['capability'],
  overrides: ['name'],
  rules: ['name'],
});

/** What a scenario is about. */
export interface About {
  readonly contracts: readonly Entry[];
  readonly agents: ReadonlySet<string>;
}

export function overlaid(name: SectionName, entries: readonly Entry[], overlay: Overlay, about: About): readonly Entry[] {
  const list = overlay.map[name];
  if (!Array.isArray(list)) {
    if (list !== undefined) overlay.place.at(name).bad(`${name} must be a list (lines that begin with "- ")`);
    return entries;
  }
  overlay.met?.saw(name, entries, about);
  const after = [...entries];
  for (const [i, raw] of (list as unknown[]).entries()) {
    const place = overlay.place.at(name, i);
    const at = isPlainMap(raw) ? after.findIndex((entry) => isSame(name, entry.raw, raw as RawMap)) : -1;
    const old = after[at];
    if (old !== undefined)
      after[at] = { raw: { ...(old.raw as RawMap), ...(raw as RawMap) }, place: patched(old.place, raw as RawMap, place) };
    else if (overlay.isOwn || isAbout(name, raw, about)) after.push({ raw, place });
    else continue;
    overlay.met?.applied.add(raw);
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
function isAbout(name: SectionName, raw: unknown, { contracts, agents }: About): boolean {
  if (name === 'contracts' || name === 'providers') return false;
  if (!isPlainMap(raw)) return true;
  const said = (name === 'rules' ? (raw as RawMap)['when'] : raw) as RawMap | undefined;
  if (!isPlainMap(said)) return true;
  const pattern = (said as RawMap)['capability'];
  if (typeof pattern === 'string' && pattern !== '*') {
    const stem = pattern.endsWith('.*') ? pattern.slice(0, -1) : null;
    const isKnown = contracts.some(({ raw: contract }) => {
      const known = textIn(contract, 'name');
      return stem === null ? known === pattern : known.startsWith(stem);
    });
    if (!isKnown) return false;
  }
  const agent = name === 'overrides' ? (said as RawMap)['provider'] : undefined;
  return typeof agent !== 'string' || /[*:]/.test(agent) || agents.has(agent);
}

function textIn(raw: unknown, key: string): string {
  const value = isPlainMap(raw) ? (raw as RawMap)[key] : undefined;
  return typeof value === 'string' ? value : '';
}

/** Which entries of a file have been laid over any scenario, and what they could have been meant for. */
export class Met {
  /** As they were written. */
  readonly applied = new Set<unknown>();
  readonly #names: Record<SectionName, Set<string>> = {
    contracts: new Set(),
    providers: new Set(),
    policies: new Set(),
    overrides: new Set(),
    rules: new Set(),
  };
  readonly #agents = new Set<string>();

  saw(name: SectionName, entries: readonly Entry[], { contracts, agents }: About): void {
    for (const { raw } of entries) this.#names[name].add(wordsOf(name, raw));
    if (name !== 'contracts' && name !== 'providers') for (const { raw } of contracts) this.#names[name].add(textIn(raw, 'name'));
    for (const agent of agents) this.#agents.add(agent);
  }

  /** Refuses what has touched nothing: a slip of the pen would be a trial that passes. */
  refuseStrays({ map, place }: Overlay): void {
    let isEmpty = map['sidecar'] === undefined;
    for (const name of SECTION_NAMES) {
      const list = map[name];
      if (!Array.isArray(list)) continue;
      for (const [i, raw] of (list as unknown[]).entries()) {
        isEmpty = false;
        if (!this.applied.has(raw)) this.#refuse(name, raw, place.at(name, i));
      }
    }
    if (isEmpty) place.bad('there is nothing to lay over the scenarios: name policies, overrides, rules, contracts, providers or sidecar');
  }

  #refuse(name: SectionName, raw: unknown, place: Place): void {
    const known = [...this.#names[name]];
    const agent = name === 'overrides' ? textIn(raw, 'provider') : '';
    const when = name === 'rules' && isPlainMap(raw) ? (raw as RawMap)['when'] : raw;
    const capability = name === 'contracts' || name === 'providers' ? '' : textIn(when, 'capability');
    const isAgent = agent !== '' && (capability === '' || known.includes(capability));
    const meant = isAgent ? agent : capability === '' ? wordsOf(name, raw) : capability;
    const near = nearest(meant, isAgent ? this.#agents : known);
    place.bad(
      `it applies to none of the scenarios that were asked for: none has ${quote(meant)}${near === null ? '' : `; did you mean ${near}?`}`,
    );
  }
}

/** What it is known by. */
function wordsOf(name: SectionName, raw: unknown): string {
  return KEYS[name]
    .map((key) => textIn(raw, key))
    .filter((word) => word !== '')
    .join('@');
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
  return { overlay: { map, place, isOwn: false, met: new Met() }, source };
}
