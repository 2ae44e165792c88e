/** The files that the team runs from: one table for all, one configuration for each sidecar. Written whole, then put in place. */
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { stringify } from 'yaml';
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
  /** What the agent shows to its sidecar. */
  readonly token: string;
}

/** A policy as people write it. */
export interface PolicyText {
  readonly capability: string;
  readonly [key: string]: unknown;
}

export const TABLE_FILE = 'team.yaml';
const REGION = 'local';
/** They hold tokens. */
const OWNER_ONLY = 0o600;

const WRITTEN_BY_PEOPLE = readFileSync(join(dirname(fileURLToPath(import.meta.url)), TABLE_FILE), 'utf8');

/** Contracts and policies as they stand in `team.yaml`, then who serves them and where. `policies` are added to the list there. */
export function tableText(places: readonly Place[], policies: readonly PolicyText[]): string {
  const providers = places
    .filter((place) => place.agent !== '')
    .map((place) => ({
      agent_id: place.member.agentId,
      offers: [...place.member.offers],
      endpoint: { type: 'http', address: place.agent },
      locality: { region: REGION, zone: place.member.zone },
      via: place.member.sidecar,
    }));
  const sidecars = places.map((place) => ({ name: place.member.sidecar, mesh: `http://${place.mesh}` }));
  // `policies` is the last key of the file: more entries may simply follow.
  const more = policies.length === 0 ? '' : `\n${indented(stringify(policies))}`;
  return `${WRITTEN_BY_PEOPLE.trimEnd()}${more}\n\n${stringify({ providers })}\n${stringify({ sidecars })}`;
}

function indented(text: string): string {
  return text.replace(/^(?=.)/gm, '  ').trimEnd();
}

export function sidecarText(place: Place, meshToken: string): string {
  return stringify({
    sidecar: {
      name: place.member.sidecar,
      listen: place.listen,
      mesh: { listen: place.mesh, token: meshToken },
      locality: { region: REGION, zone: place.member.zone },
      callers: [{ agent: place.member.agentId, token: place.token }],
      table: `./${TABLE_FILE}`,
    },
  });
}

/** A reader sees the old text or the new one, never half of it. */
export function put(file: string, text: string): void {
  const draft = `${file}.new`;
  writeFileSync(draft, text, { mode: OWNER_ONLY });
  renameSync(draft, file);
}
