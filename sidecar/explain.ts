/**
 * Who would serve a call, and why every other candidate was left out, without sending anything: the same stages as
 * `outbound` up to the choice, on a call that is never attempted. Nothing is consumed: no slot, no permit, no binding.
 */
import { acl, aclOf } from './acl/acl.ts';
import { type Call, note, record } from './call/call.ts';
import type { TraceLine } from '../proto/wire/trace-line.ts';
import { wordsOf } from './call/verdict.ts';
import { type CandidateView, explainChoice } from './choose/explain.ts';
import { affinityKeyOf } from './contract/affinity-key.ts';
import { contract } from './contract/contract.ts';
import { deadline } from './deadline/deadline.ts';
import type { Engine } from './engine.ts';
import { nearest } from '../base/suggest.ts';
import { Code, codeEntry } from '../proto/wire/codes.ts';
import { CALLER_HEADERS, Header, OWN_PREFIX } from '../proto/wire/headers.ts';
import { identify } from './identify/identify.ts';
import { name } from './name/name.ts';
import { overrides } from './overrides/overrides.ts';
import { resolve } from './resolve/resolve.ts';
import { reroute } from './settle.ts';
import type { Version } from './table/snapshot.ts';

export interface Explanation {
  readonly asked: string;
  readonly caller: string | null;
  readonly capability: string | null;
  readonly range: string | null;
  readonly affinity_key: string | null;
  readonly table_version: number;
  /** Who would get the call now; null when it would be refused. */
  readonly would_serve: { readonly provider: string; readonly version: string } | null;
  /** Why not, when it would be refused. */
  readonly refusal: { readonly code: number; readonly name: string; readonly detail: string } | null;
  /** What each stage said, in order. */
  readonly decision: readonly TraceLine[];
  readonly candidates: readonly CandidateView[];
  /** What the caller said and nobody reads: a header of ours that is misspelt does not become a default in silence. */
  readonly hints: readonly string[];
}

/** `withPayload`: the request carries a payload that shall be held against the contract too. */
export function explain(engine: Engine, call: Call, withPayload: boolean): Explanation {
  call.table = engine.table.current();
  const candidates = mayAsk(engine, call) ? weigh(engine, call, withPayload) : [];
  const chosen = call.refusal === null ? call.chosen : null;
  return {
    asked: call.asked,
    caller: call.principal?.agent ?? null,
    capability: call.capability?.name ?? null,
    range: call.range,
    affinity_key: call.affinityKey,
    table_version: call.table.version,
    would_serve: chosen === null ? null : { provider: chosen.provider.agentId, version: chosen.version.text },
    refusal: refusalOf(call),
    decision: call.trace.lines(),
    candidates,
    hints: hintsOf(call),
  };
}

function mayAsk(engine: Engine, call: Call): boolean {
  const named =
    record(call, identify(engine.identities, call)) && record(call, name(call)) && record(call, acl(call)) && record(call, overrides(call));
  return named && (call.reroutedBy === null || (reroute(call) && record(call, acl(call)) && record(call, overrides(call))));
}

function weigh(engine: Engine, call: Call, withPayload: boolean): readonly CandidateView[] {
  for (const quota of engine.quotas.explain(call)) note(call, quota);
  call.affinityKey = affinityKeyOf(call);
  // Who exists and does not match is the very answer to "why not"; a caller whom no ACL admits learns nothing of them.
  if (!record(call, resolve(call, engine.random)))
    return call.refusal?.reason.code === Code.forbidden ? [] : explainChoice(engine.chooser, call, engine.clock.now());
  const line = call.lines[0] as Version;
  const own = aclOf(call, line);
  if (own !== null) record(call, own);
  if (withPayload && !(record(call, contract(call, line)) && record(call, deadline(call, line, engine.config.maxDeadlineMs)))) return [];
  return explainChoice(engine.chooser, call, engine.clock.now());
}

function refusalOf(call: Call): Explanation['refusal'] {
  if (call.refusal === null) return null;
  const { reason, a, b, c } = call.refusal;
  return { code: reason.code, name: codeEntry(reason.code).name, detail: wordsOf(reason, a, b, c) };
}

const MAX_HINTS = 10;
const KNOWN: ReadonlySet<string> = new Set(Object.values(Header));

function hintsOf(call: Call): string[] {
  const hints: string[] = [];
  const wish = call.headers[Header.retry];
  if (wish !== undefined && wish !== 'none') hints.push(`${Header.retry} is passed over: it is none, or not given`);
  for (const said in call.headers) {
    if (!said.startsWith(OWN_PREFIX) || CALLER_HEADERS.has(said) || isConversationKey(call, said)) continue;
    if (hints.length === MAX_HINTS) break;
    const shown = JSON.stringify(said.slice(0, 64));
    // Such as the one that names the version of an answer: right in its place, which is not a call.
    const near = KNOWN.has(said) ? null : nearest(said, CALLER_HEADERS);
    hints.push(`the header ${shown} is passed over: nothing reads it of a call${near === null ? '' : ` (did you mean ${near}?)`}`);
  }
  return hints;
}

/** A contract may name any header for it. */
function isConversationKey({ capability }: Call, header: string): boolean {
  if (capability === null) return false;
  return capability.versions.some(
    ({ contract: { affinity } }) => affinity !== null && 'header' in affinity.from && affinity.from.header === header,
  );
}
