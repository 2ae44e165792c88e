/**
 * The files that the team runs from. Standalone: one table for all and the settings of each sidecar. Registered: each
 * sidecar's file says also what its own agent offers, the operators' policies stand in a file of theirs, and the control
 * plane has its settings. Written whole, then put in place.
 */
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parse, stringify } from 'yaml';
import type { Member } from './roster.ts';

/** Where one member can be reached. */
export interface Place {
  readonly member: Member;
  /** Base URL of the agent; '' for one that only calls. */
  readonly agent: string;
  /** `host:port` of its sidecar, for the agent. */
  readonly listen: string;
  /** `host:port` of its sidecar, for the other sidecars. */
  readonly mesh: string;
  /** `host:port` of its sidecar, for an agent that speaks gRPC; '' = none. */
  readonly grpc: string;
  /** What the agent shows to its sidecar. */
  readonly token: string;
}

/** A policy as people write it. */
export interface PolicyText {
  readonly capability: string;
  readonly [key: string]: unknown;
}

/** What people write down about a team: what its capabilities promise, and how calls of them are handled. */
export interface TeamText {
  readonly contracts: readonly { readonly name: string; readonly version: string; readonly [key: string]: unknown }[];
  readonly policies: readonly PolicyText[];
}

export const TABLE_FILE = 'team.yaml';
const REGION = 'local';
/** They hold tokens. */
const OWNER_ONLY = 0o600;

const WRITTEN_BY_PEOPLE = writtenHere(TABLE_FILE);

/** Contracts and policies as they stand in `team.yaml`, then who serves them and where. `policies` are added to the list there. */
export function tableText(places: readonly Place[], policies: readonly PolicyText[]): string {
  const providers = places.filter((place) => place.agent !== '').map(providerOf);
  const sidecars = places.map((place) => ({ name: place.member.sidecar, mesh: `http://${place.mesh}` }));
  // `policies` is the last key of the file: more entries may simply follow.
  const more = policies.length === 0 ? '' : `\n${indented(stringify(policies))}`;
  return `${WRITTEN_BY_PEOPLE.trimEnd()}${more}\n\n${stringify({ providers })}\n${stringify({ sidecars })}`;
}

function indented(text: string): string {
  return text.replace(/^(?=.)/gm, '  ').trimEnd();
}

function providerOf(place: Place): Record<string, unknown> {
  const { member, agent } = place;
  return {
    agent_id: member.agentId,
    offers: [...member.offers],
    endpoint: { type: 'http', address: agent },
    locality: { region: REGION, zone: member.zone },
    via: member.sidecar,
  };
}

/** A sidecar's own settings; `source` says where its table comes from. */
export function settingsText(place: Place, meshToken: string, source: Readonly<Record<string, unknown>>): string {
  return stringify({ sidecar: sidecarSection(place, meshToken, source) });
}

function sidecarSection(place: Place, meshToken: string, source: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const { member } = place;
  return {
    name: member.sidecar,
    listen: place.listen,
    mesh: { listen: place.mesh, token: meshToken },
    ...(place.grpc === '' ? {} : { grpc: { listen: place.grpc } }),
    locality: { region: REGION, zone: member.zone },
    callers: [{ agent: member.agentId, token: place.token }],
    ...source,
  };
}

/** The same with a registry, which `from` names: what its agent offers stands in its own file, and nothing of anybody else. */
export function registeringText(place: Place, meshToken: string, from: Readonly<Record<string, unknown>>, team: TeamText): string {
  const { member } = place;
  const own = team.contracts.filter(({ name, version }) => member.offers.includes(`${name}@${version}`));
  const agents = place.agent === '' ? {} : { contracts: own, providers: [providerOf(place)] };
  return stringify({ sidecar: sidecarSection(place, meshToken, from), ...agents });
}

/** Beside a registry, with agents as people have written them down: `$WORDS` in their text are filled. */
export function besideText(
  place: Place,
  meshToken: string,
  registry: Readonly<Record<string, unknown>>,
  written: string,
  words: Readonly<Record<string, string>>,
): string {
  return `${stringify({ sidecar: sidecarSection(place, meshToken, { registry }) })}\n${filled(written, words)}`;
}

/** The settings of an engine inside an agent's own program, which says the rest itself: no port for agents, and nothing is kept. */
export function insideText(sidecar: string, meshToken: string, registry: Readonly<Record<string, unknown>>): string {
  const mesh = { listen: '127.0.0.1:0', token: meshToken };
  return stringify({ sidecar: { name: sidecar, mesh, locality: { region: REGION, zone: 'b' }, state_dir: 'none', registry } });
}

function filled(text: string, words: Readonly<Record<string, string>>): string {
  return text.replace(/\$([A-Z_]+)/g, (whole, word: string) => words[word] ?? whole);
}

/** A text that stands in this folder. */
export function writtenHere(file: string): string {
  return readFileSync(join(dirname(fileURLToPath(import.meta.url)), file), 'utf8');
}

/** The operators' document. */
export function policiesText(policies: readonly PolicyText[]): string {
  return stringify({ policies });
}

/** What stands in `team.yaml`. */
export function teamText(): TeamText {
  return parse(WRITTEN_BY_PEOPLE) as TeamText;
}

/** A reader sees the old text or the new one, never half of it. */
export function put(file: string, text: string): void {
  const draft = `${file}.new`;
  writeFileSync(draft, text, { mode: OWNER_ONLY });
  renameSync(draft, file);
}
