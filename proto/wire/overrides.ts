/**
 * The operators' emergency overrides as they travel: one message that holds the whole list (`ovr.state` of AR_OVR,
 * republished to `ovrpush.state`), a beacon of each control-plane replica each second (`ovrbeacon`), and each sidecar's word
 * on what is in force there (`inforce.<sidecar>`). Anybody who may write the stream writes the whole list, with the sequence
 * it was made from, so no leader is needed.
 *
 * The reader is strict: an entry that it cannot read, an action or selector that it does not know, or a newer wire version
 * spoils the whole message. Taking the readable half would lift a block that somebody has just made; a reader that cannot
 * follow keeps what it has and says so.
 */
import { parseAgentPattern } from '../language/acl.ts';
import { agentIdProblem, parseTarget } from '../language/names.ts';
import { capabilityPatternProblem } from '../language/policy.ts';
import { compileRange } from '../language/range.ts';
import type { Override } from '../language/types.ts';

export const OVERRIDES_WIRE = 1;

export const OVERRIDE_ACTIONS = ['block', 'drain', 'reroute', 'degrade'] as const;
export type OverrideAction = (typeof OVERRIDE_ACTIONS)[number];

/** All that are given must match. `agent` is either side: the one that serves or the one that calls. */
export interface OverrideTarget {
  /** A name, `crm.order.*`, `crm.*`. */
  readonly capability?: string;
  /** An agent id, or a pattern of agents. */
  readonly provider?: string;
  readonly agent?: string;
  readonly caller?: string;
  readonly all?: true;
}

export interface OverrideEntry {
  /** 1 to 63 of a-z, 0-9, _ . and -. */
  readonly id: string;
  readonly action: OverrideAction;
  readonly target: OverrideTarget;
  /** For reroute: `capability`, `capability@range`, `@range` (of the same one) or `provider:team.role.id`. */
  readonly to: string | null;
  /** For block: what is under way is cancelled at once instead of being let end. */
  readonly cut: boolean;
  readonly reason: string;
  readonly author: string;
  /** Wall clock of whoever made it, milliseconds. */
  readonly at: number;
  /** By the same clock; null = until it is lifted. */
  readonly expires_at: number | null;
}

export interface OverrideState {
  readonly wire: number;
  /** Minted with the first message of the stream: a stream that was made anew has another one. */
  readonly epoch: string;
  /** Counts the writes within an epoch. */
  readonly revision: number;
  readonly overrides: readonly OverrideEntry[];
}

/** Of a reader that finds nothing yet. */
export const NO_OVERRIDES: OverrideState = Object.freeze({ wire: OVERRIDES_WIRE, epoch: '', revision: 0, overrides: Object.freeze([]) });

/** `ovrbeacon`: of each replica each second; of `reachctl` once after a direct write. */
export interface OverrideBeacon {
  readonly wire: number;
  /** Who sends it. */
  readonly from: string;
  readonly epoch: string;
  /** Sequence of the newest state. */
  readonly seq: number;
  /** Wall clock of the sender, milliseconds: by it a sidecar finds out that its own clock is wrong. */
  readonly at: number;
  /** Everybody is to say what is in force, also who has nothing new. */
  readonly tell?: true;
}

/** `inforce.<sidecar>`, at once when a state is in force, and when a beacon asks; also part of every report. */
export interface InForce {
  readonly wire: number;
  readonly sidecar: string;
  readonly instance: string;
  readonly epoch: string;
  /** Sequence of the state that is in force; 0 = none was ever heard of. */
  readonly seq: number;
  /** A newer one that cannot be used; absent = there is none. */
  readonly refused?: RefusedList;
}

/** A list that a sidecar cannot use, and why. */
export interface RefusedList {
  readonly seq: number;
  readonly why: string;
}

/** Entries in one state, and its bytes. */
export const OVERRIDES_MAX = 256;
export const OVERRIDES_BYTES_MAX = 262_144;

const ID = /^[a-z0-9][a-z0-9_.-]{0,62}$/;
const MAX_TEXT = 500;
const SELECTORS = ['capability', 'provider', 'agent', 'caller', 'all'] as const;
/** What `to` begins with when it names a provider. */
export const TO_PROVIDER = 'provider:';

/** Null = it can be an id. */
export function overrideIdProblem(id: string): string | null {
  return ID.test(id)
    ? null
    : `${JSON.stringify(id.slice(0, 80))} is not an id: 1 to 63 of a-z, 0-9, _ . and -, beginning with a letter or digit`;
}

/** What is wrong with an entry, whoever wrote it; null = nothing. The one check of writers and readers. */
export function overrideProblem(entry: OverrideEntry): string | null {
  return (
    overrideIdProblem(entry.id) ??
    (OVERRIDE_ACTIONS.includes(entry.action)
      ? null
      : `there is no action ${JSON.stringify(entry.action)}: ${OVERRIDE_ACTIONS.join(', ')}`) ??
    targetProblem(entry.target) ??
    toProblem(entry) ??
    (entry.cut && entry.action !== 'block' ? `cut goes with block; a ${entry.action} lets what is under way end` : null) ??
    (entry.reason.trim() === '' ? 'a reason is needed: callers and colleagues will read it' : null) ??
    (entry.reason.length > MAX_TEXT || entry.author.length > MAX_TEXT ? `reason and author have at most ${MAX_TEXT} characters` : null) ??
    (entry.expires_at !== null && entry.expires_at <= entry.at ? 'it would end before it begins' : null)
  );
}

function targetProblem(target: OverrideTarget): string | null {
  const given = SELECTORS.filter((name) => target[name] !== undefined);
  const stray = Object.keys(target).find((name) => !(SELECTORS as readonly string[]).includes(name));
  if (stray !== undefined) return `a target has no ${JSON.stringify(stray.slice(0, 80))}: ${SELECTORS.join(', ')}`;
  if (given.length === 0) return 'say what it is for: capability, provider, agent, caller, or all';
  if (target.all !== undefined && given.length > 1) return 'all stands alone: with another selector it would not be all';
  if (target.agent !== undefined && (target.provider !== undefined || target.caller !== undefined))
    return 'agent means either side, as provider and as caller: name provider or caller instead, not both';
  if (target.capability !== undefined) {
    const problem = capabilityPatternProblem(target.capability);
    if (problem !== null) return problem;
  }
  for (const name of ['provider', 'agent', 'caller'] as const) {
    const pattern = target[name];
    if (pattern === undefined) continue;
    const read = parseAgentPattern(pattern);
    if ('problem' in read) return `${name}: ${read.problem}`;
  }
  return null;
}

function toProblem({ action, to, target }: OverrideEntry): string | null {
  if (action !== 'reroute') return to === null ? null : `to belongs to reroute, and this is a ${action}`;
  if (to === null) return 'a reroute needs to: capability, capability@range, @range or provider:team.role.id';
  if (to.startsWith(TO_PROVIDER)) {
    const agent = to.slice(TO_PROVIDER.length);
    const problem = agentIdProblem(agent);
    if (problem !== null) return problem;
    return target.provider === agent || target.agent === agent ? `${agent} would be sent to itself` : null;
  }
  if (to.startsWith('@')) {
    const range = compileRange(to.slice(1));
    return 'problem' in range ? range.problem : null;
  }
  const parsed = parseTarget(to);
  if ('problem' in parsed) return parsed.problem;
  if (parsed.range === null && parsed.name === target.capability)
    return `${parsed.name} would be sent to itself: name another capability, or a range of its versions`;
  return null;
}

/** The whole state, or why it cannot be used. Nothing is left out: half a list would lift what somebody has just blocked. */
export function readOverrideState(data: Uint8Array): OverrideState | { readonly problem: string } {
  let json: unknown;
  try {
    json = JSON.parse(Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('utf8')) as unknown;
  } catch {
    return { problem: 'it is not JSON' };
  }
  if (!isMap(json)) return { problem: 'it is not a map' };
  const { wire, epoch, revision, overrides } = json;
  if (wire !== OVERRIDES_WIRE)
    return { problem: `it speaks version ${String(wire).slice(0, 20)} of overrides, this program ${OVERRIDES_WIRE}: update this program` };
  if (typeof epoch !== 'string' || epoch === '' || !isWhole(revision)) return { problem: 'it has no epoch and revision' };
  if (!Array.isArray(overrides)) return { problem: 'it has no list of overrides' };
  if (overrides.length > OVERRIDES_MAX) return { problem: `it has ${overrides.length} overrides, more than ${OVERRIDES_MAX}` };
  const read: OverrideEntry[] = [];
  const ids = new Set<string>();
  for (const [i, each] of overrides.entries()) {
    const entry = readEntry(each);
    if (typeof entry === 'string') return { problem: `its override ${i + 1} cannot be read: ${entry}` };
    const problem = overrideProblem(entry);
    if (problem !== null) return { problem: `its override ${entry.id.slice(0, 63)} cannot be used: ${problem}` };
    if (ids.has(entry.id)) return { problem: `it has two overrides ${entry.id}` };
    ids.add(entry.id);
    read.push(entry);
  }
  return { wire, epoch, revision, overrides: read };
}

function readEntry(json: unknown): OverrideEntry | string {
  if (!isMap(json)) return 'it is not a map';
  const { id, action, target, to, cut, reason, author, at, expires_at: expiresAt } = json;
  if (typeof id !== 'string' || typeof action !== 'string') return 'id and action must be texts';
  if (!isMap(target)) return 'it has no target';
  for (const name in target)
    if (name === 'all' ? target[name] !== true : typeof target[name] !== 'string') return `its ${name.slice(0, 80)} is none`;
  if (to !== null && typeof to !== 'string') return 'to must be a text or null';
  if (typeof cut !== 'boolean') return 'cut must be true or false';
  if (typeof reason !== 'string' || typeof author !== 'string') return 'reason and author must be texts';
  if (!isWhole(at) || !(expiresAt === null || isWhole(expiresAt))) return 'at and expires_at must be milliseconds';
  return { id, action: action as OverrideAction, target, to, cut, reason, author, at, expires_at: expiresAt };
}

/** Null when it is none that can be used. */
export function readOverrideBeacon(data: Uint8Array): OverrideBeacon | null {
  const json = parsedMap(data);
  if (json === null || json['wire'] !== OVERRIDES_WIRE) return null;
  const { from, epoch, seq, at, tell } = json;
  if (typeof from !== 'string' || typeof epoch !== 'string' || !isWhole(seq) || !isWhole(at)) return null;
  return { wire: OVERRIDES_WIRE, from: from.slice(0, 64), epoch, seq, at, ...(tell === true ? { tell } : null) };
}

/** Also of a newer version: what is counted is the sequence. */
export function readInForce(data: Uint8Array): InForce | null {
  const json = parsedMap(data);
  if (json === null) return null;
  const { wire, sidecar, instance, epoch, seq, refused } = json;
  if (!isWhole(wire) || typeof sidecar !== 'string' || typeof instance !== 'string' || typeof epoch !== 'string' || !isWhole(seq))
    return null;
  return { wire, sidecar, instance, epoch, seq, ...refusedIn(refused) };
}

/** The part of a report or of `inforce` that says what could not be used. */
export function refusedIn(json: unknown): Pick<InForce, 'refused'> {
  if (!isMap(json)) return {};
  const { seq, why } = json;
  if (!isWhole(seq)) return {};
  return { refused: { seq, why: typeof why === 'string' ? why.slice(0, MAX_TEXT) : '' } };
}

/** As the engine reads them, strongest first, so that a block holds whatever else is said of the same call. @param aheadMs of the operators' clock before this one */
export function rulesOf(entries: readonly OverrideEntry[], aheadMs: number): readonly Override[] {
  const rules: Override[] = [];
  for (const action of STRENGTH) for (const entry of entries) if (entry.action === action) rules.push(...rulesFor(entry, aheadMs));
  return rules;
}

const STRENGTH: readonly OverrideAction[] = ['block', 'drain', 'degrade', 'reroute'];

/** An agent stands on either side, so it makes two rules. */
function rulesFor(entry: OverrideEntry, aheadMs: number): Override[] {
  const { target } = entry;
  const rule: Override = {
    name: entry.id,
    action: entry.action,
    capability: target.all === true ? '*' : (target.capability ?? null),
    provider: target.provider ?? null,
    caller: target.caller ?? null,
    to: entry.to,
    data: null,
    cut: entry.cut,
    reason: entry.reason,
    author: entry.author,
    expiresAtMs: entry.expires_at === null ? null : entry.expires_at - aheadMs,
  };
  return target.agent === undefined
    ? [rule]
    : [
        { ...rule, caller: target.agent },
        { ...rule, provider: target.agent },
      ];
}

function parsedMap(data: Uint8Array): Readonly<Record<string, unknown>> | null {
  try {
    const json = JSON.parse(Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('utf8')) as unknown;
    return isMap(json) ? json : null;
  } catch {
    return null;
  }
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isWhole(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}
