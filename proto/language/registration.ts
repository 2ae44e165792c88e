/**
 * What a sidecar registers, as people write it: the same contracts and providers as in a table, either one agent (the body
 * of a registration) or all that stand in a file beside the settings. What the operators decide (policies, overrides,
 * where the sidecars are) has no place there: a registry has it from them.
 */
import { describe } from '../../base/duration.ts';
import { contract } from './contract.ts';
import { checkContracts } from './cross-check.ts';
import { deepFreeze, explainStrays } from './document.ts';
import { Known } from './known.ts';
import { provider } from './provider.ts';
import { BAD, openSource, optional, Place, readPresent, refuseUnknown, required } from './reader.ts';
import type { Sections } from './sections.ts';
import { list, listEach } from './shapes.ts';
import type { Contract, Problem, ProviderRecord, TableDocument } from './types.ts';

/** One agent: what it promises, and how it is reached. */
export interface Registration {
  readonly contracts: readonly Contract[];
  readonly record: ProviderRecord;
}

const MAX_CONTRACTS = 1_000;
const none: readonly never[] = Object.freeze([]);

const fields = {
  contracts: optional(list(contract, MAX_CONTRACTS), 'Contracts of what it offers, as far as the registry does not know them yet.', none),
  provider: required(provider, 'the agent: {agent_id, offers, endpoint}'),
};

/**
 * Reads the registration of one agent, YAML or JSON. `via` is the sidecar that it registers at, said or not.
 * @param sidecar the one that it registers at.
 */
export function readRegistration(
  text: string,
  file: string,
  sidecar: string,
): { readonly registration: Registration } | { readonly problems: readonly Problem[] } {
  const { source, value } = openSource(text, file);
  if (value === undefined) return { problems: source.problems };
  const place = new Place(source);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    place.bad(`a registration is a map with contracts and provider, not ${value === null ? 'empty' : describe(value)}`);
    return { problems: source.problems };
  }
  const map = value as Readonly<Record<string, unknown>>;
  explainStrays(source);
  refuseUnknown(map, fields, place);
  const contracts = contractsIn(map, place);
  const record =
    'provider' in map
      ? readPresent(provider, map['provider'], place.at('provider'))
      : place.bad(`provider is missing: ${fields.provider.doc}`);
  if (record !== BAD) checkRecord(record, place.at('provider'), sidecar);
  if (source.problems.length > 0 || record === BAD) return { problems: source.problems };
  return { registration: deepFreeze({ contracts, record: { ...record, via: sidecar } }) };
}

function contractsIn(map: Readonly<Record<string, unknown>>, place: Place): readonly Contract[] {
  if (!('contracts' in map)) return [];
  const raw = map['contracts'];
  const entries = readPresent(
    { ...fields.contracts.shape, read: (each, at) => listEach(contract, each, at, MAX_CONTRACTS) as readonly Contract[] },
    raw,
    place.at('contracts'),
  );
  if (entries === BAD) return [];
  const nothing = { entries: [], raw: [] };
  const sections: Sections = {
    contracts: { entries, raw: raw as readonly unknown[] },
    providers: nothing,
    policies: nothing,
    overrides: nothing,
    sidecars: nothing,
  };
  checkContracts(sections, place, new Known(sections));
  return entries;
}

function checkRecord(record: ProviderRecord, place: Place, sidecar: string): void {
  if (record.via !== null && record.via !== sidecar)
    place.at('via').bad(`an agent registers at the sidecar that hosts it, and this one is ${sidecar}, not ${record.via}: leave via out`);
  for (const name of Object.keys(record.endpoint.mapping)) {
    if (name !== '*' && !record.offers.some((offer) => offer.name === name))
      place.at('endpoint', 'mapping', name).badKey(`a mapping for ${name}, which this provider does not offer`);
  }
}

/** Notes what may not stand in the file of a sidecar whose table comes from a registry. */
export function agentsOnly(document: TableDocument, place: Place, sidecar: string): void {
  for (const section of ['policies', 'overrides', 'sidecars', 'rules'] as const) {
    if ((document[section]?.length ?? 0) > 0)
      place
        .at(section)
        .badKey(
          section === 'sidecars'
            ? 'with a registry the addresses of sidecars come from it: leave this section out'
            : `with a registry ${section} are the operators' affair: apply them with reachctl, and leave this section out`,
        );
  }
  for (const [i, record] of document.providers.entries()) {
    if (record.via !== null && record.via !== sidecar)
      place.at('providers', i, 'via').bad(`${record.agentId} is hosted by ${record.via}, which registers it itself: leave it out here`);
  }
  const offered = new Set(document.providers.flatMap((record) => record.offers.map(({ name }) => name)));
  for (const [i, each] of document.contracts.entries()) {
    if (!offered.has(each.name))
      place
        .at('contracts', i, 'name')
        .bad(`no provider here offers ${each.name}: a contract without an agent belongs into the operators' file (reachctl apply)`);
  }
}

/** Problems of a table file that stands beside the settings of a sidecar with a registry. */
export function agentsOnlyProblems(document: TableDocument, text: string, file: string, sidecar: string): readonly Problem[] {
  const { source } = openSource(text, file);
  agentsOnly(document, new Place(source), sidecar);
  return source.problems;
}
