/**
 * The table of a scenario while it is read: entries as they were written, each with its place, so that steps can replace,
 * add and remove some and every state can be checked as a whole, with problems that point to where the text stands.
 * Providers become mocks here: the lab opens no socket, whatever an endpoint says. The lab has one sidecar, which stands
 * for all of them, so `via` does not count either, and breakers and limits are those of the hosting side.
 */
import { readFileSync } from 'node:fs';
import { resolve as resolvePath } from 'node:path';
import { describe } from '../../base/duration.ts';
import { nearest } from '../../base/suggest.ts';
import { readSections, tableFields } from '../../proto/language/document.ts';
import { openSource, Place, refuseUnknown, type Source } from '../../proto/language/reader.ts';
import { isPlainMap } from '../../proto/language/shapes.ts';
import type { TableDocument } from '../../proto/language/types.ts';
import type { Overlay } from './overlay.ts';
import { overlaid } from './overlay.ts';
import { Patchwork } from './patchwork.ts';
import { readScript } from '../transports/mock-reading.ts';

type RawMap = Readonly<Record<string, unknown>>;

export interface Entry {
  readonly raw: unknown;
  readonly place: Place;
}

export type SectionName = 'contracts' | 'providers' | 'policies' | 'overrides' | 'rules';
export const SECTIONS: readonly SectionName[] = ['contracts', 'providers', 'policies', 'overrides', 'rules'];

export class Draft {
  readonly #root: Place;
  /** Files that sections came from; their problems count too. */
  readonly sources: Source[] = [];
  readonly #sections: Record<SectionName, readonly Entry[]> = {
    contracts: [],
    providers: [],
    policies: [],
    overrides: [],
    rules: [],
  };
  readonly #mocks = new Map<string, RawMap>();
  /** Every agent that any state of the table has had. */
  readonly agents = new Set<string>();

  readonly #overlays: readonly Overlay[];
  /** The sidecar that hosts the providers: messages go to those who have one. null = calls only, and `via` does not count. */
  host: string | null = null;

  /** @param overlays laid over every state of the table, the later ones over the earlier */
  constructor(root: Place, overlays: readonly Overlay[] = []) {
    this.#root = root;
    this.#overlays = overlays;
  }

  /** The table as it stands; null when anything read so far has a problem. */
  document(): TableDocument | null {
    const map: Record<string, unknown> = {};
    const homes = new Map<string, Place>();
    const about = { contracts: this.#sections.contracts, agents: this.agents };
    for (const name of SECTIONS) {
      let entries = this.#sections[name];
      for (const overlay of this.#overlays) entries = overlaid(name, entries, overlay, about);
      if (name === 'rules' && entries.length === 0) continue;
      map[name] = entries.map((entry) => (name === 'providers' ? this.#asMock(entry) : entry.raw));
      homes.set(name, new Patchwork(this.#root.at(name), new Map(entries.map((entry, i) => [i, entry.place]))));
    }
    const document = readSections(map, new Patchwork(this.#root, homes), this.host);
    return this.sources.some((source) => source.problems.length > 0) ? null : document;
  }

  /** Takes the sections that a map names, each in the place of what was there. */
  take(map: RawMap, place: Place): void {
    for (const name of SECTIONS) if (name in map) this.takeSection(name, map[name], place.at(name));
  }

  takeSection(name: SectionName, raw: unknown, place: Place): void {
    if (!Array.isArray(raw)) {
      place.bad(`${name} must be a list (lines that begin with "- "), not ${describe(raw)}`);
      return;
    }
    this.#sections[name] = raw.map((each: unknown, i) => ({ raw: each, place: place.at(i) }));
    if (name === 'providers') for (const each of raw) this.#note(each);
    if (name === 'contracts') for (const each of raw) if (isPlainMap(each)) this.capabilities.add(String((each as RawMap)['name']));
  }

  /** A table file, named relative to the scenario. It may be a whole sidecar file. */
  takeFile(name: string, folder: string, place: Place): void {
    let content: string;
    try {
      content = readFileSync(resolvePath(folder, name), 'utf8');
    } catch (error) {
      place.bad(`the table ${JSON.stringify(name)} cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})`);
      return;
    }
    const { source, value } = openSource(content, name);
    this.sources.push(source);
    if (source.problems.length > 0) return;
    const root = new Place(source);
    if (!isPlainMap(value)) {
      root.bad('a table is a map with contracts, providers, policies, overrides');
      return;
    }
    refuseUnknown(value as RawMap, { ...tableFields, sidecar: tableFields.sidecars }, root);
    this.take(value as RawMap, root);
  }

  /** One entry under its key: it takes the place of the one with the same key, or joins. */
  put(name: SectionName, key: string, raw: RawMap, place: Place): void {
    const entry = { raw, place };
    const at = this.#indexOf(name, key, raw[key]);
    const entries = [...this.#sections[name]];
    if (at >= 0) entries[at] = entry;
    else entries.push(entry);
    this.#sections[name] = entries;
    if (name === 'providers') this.#note(raw);
  }

  drop(name: SectionName, key: string, value: string, place: Place): void {
    const at = this.#indexOf(name, key, value);
    if (at < 0) {
      const near = nearest(value, this.#keys(name, key));
      place.bad(`the table has no ${value} at this point${near === null ? '' : `; did you mean ${near}?`}`);
      return;
    }
    this.#sections[name] = this.#sections[name].filter((_, i) => i !== at);
  }

  /** From now on the agent is a mock that behaves like this. `isChange`: only the keys given change. */
  mock(agent: string, options: RawMap, place: Place, isChange: boolean): void {
    const whole = isChange ? { ...this.#optionsOf(agent), ...options } : options;
    const script = readScript(whole);
    if (!('base' in script)) {
      for (const problem of script) {
        const end = problem.indexOf(': ');
        const path = problem.slice(0, end).split('/').slice(1);
        place
          .at(...path.map((step) => (/^\d+$/.test(step) ? Number(step) : step)))
          .bad(`${path.at(-1) ?? agent} ${problem.slice(end + 2)}`);
      }
      return;
    }
    this.#mocks.set(agent, whole);
  }

  /** Names of capabilities in any state of the table so far. */
  readonly capabilities = new Set<string>();

  /** A mock for somebody who is nowhere in the scenario is a slip of the pen. */
  refuseStrangers(agents: Iterable<readonly [agent: string, place: Place]>): void {
    for (const [agent, place] of agents) {
      if (this.agents.has(agent)) continue;
      const near = nearest(agent, this.agents);
      place.badKey(`no table of this scenario has a provider ${agent}${near === null ? '' : `; did you mean ${near}?`}`);
    }
  }

  #optionsOf(agent: string): RawMap {
    const set = this.#mocks.get(agent);
    if (set !== undefined) return set;
    const entry = this.#sections.providers[this.#indexOf('providers', 'agent_id', agent)];
    const endpoint = entry === undefined ? undefined : (entry.raw as RawMap)['endpoint'];
    if (!isPlainMap(endpoint) || (endpoint as RawMap)['type'] !== 'mock') return {};
    const { type: _, address: __, ...options } = endpoint as Record<string, unknown>;
    return options;
  }

  #asMock(entry: Entry): unknown {
    const { raw, place } = entry;
    if (!isPlainMap(raw)) return raw;
    const { via: _, ...bare } = raw as Record<string, unknown>;
    const record = this.host === null ? bare : { ...bare, via: this.host };
    const agent = record['agent_id'];
    const mock = typeof agent === 'string' ? this.#mocks.get(agent) : undefined;
    if (mock !== undefined) return { ...record, endpoint: { type: 'mock', ...mock } };
    const endpoint = record['endpoint'];
    if (endpoint === undefined) return { ...record, endpoint: { type: 'mock' } };
    if (!isPlainMap(endpoint) || !('type' in (endpoint as object))) return record;
    const type = (endpoint as RawMap)['type'];
    if (type !== 'mock') {
      place
        .at('endpoint')
        .bad(
          `the lab opens no socket, so an endpoint of type ${String(type)} cannot be used: give ${String(agent)} a mock (mocks: {${String(agent)}: {latency: 20ms}})`,
        );
      return { ...record, endpoint: { type: 'mock' } };
    }
    const script = readScript(this.#optionsOf(String(agent)));
    if (!('base' in script)) for (const problem of script) place.at('endpoint').bad(problem);
    return record;
  }

  #note(raw: unknown): void {
    if (isPlainMap(raw) && typeof (raw as RawMap)['agent_id'] === 'string') this.agents.add((raw as RawMap)['agent_id'] as string);
  }

  #indexOf(name: SectionName, key: string, value: unknown): number {
    return this.#sections[name].findIndex(({ raw }) => isPlainMap(raw) && (raw as RawMap)[key] === value);
  }

  #keys(name: SectionName, key: string): string[] {
    return this.#sections[name].flatMap(({ raw }) =>
      isPlainMap(raw) && typeof (raw as RawMap)[key] === 'string' ? [(raw as RawMap)[key] as string] : [],
    );
  }
}
