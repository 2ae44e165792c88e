/**
 * The life of a call. `outbound` is the caller's end and has every stage; `inbound` is the provider's end and has only
 * what belongs there. Retry, fallback and the claim exist once, at the caller's end, so that two sidecars never multiply
 * them. Stages answer with a verdict; `record` writes it down and says whether the call may go on.
 */
import { acl, aclOf } from './acl/acl.ts';
import { attempt } from './attempt/attempt.ts';
import { type Call, note, record } from './call/call.ts';
import { comeBackMs } from './choose/refusal.ts';
import { affinityKeyOf } from './contract/affinity-key.ts';
import { contract } from './contract/contract.ts';
import { deadline } from './deadline/deadline.ts';
import type { Decider } from './engine.ts';
import { fallback } from './fallback/fallback.ts';
import { identify, identifyPeer } from './identify/identify.ts';
import { loops, pathWith } from './loops/loops.ts';
import { name, targetOf } from './name/name.ts';
import { atHost, leftWithout, overrides } from './overrides/overrides.ts';
import { arrived, begin, bug, pause, reroute, settle } from './settle.ts';
import { host } from './resolve/host.ts';
import { resolve } from './resolve/resolve.ts';
import { retry } from './retry/retry.ts';
import { slots } from './slots/slots.ts';
import type { Version } from './table/snapshot.ts';
import type { Verdict } from './call/verdict.ts';

/** The caller's end. Never rejects; afterwards `call.code`, `call.reply` and the rest say how it ended. */
export async function outbound(engine: Decider, call: Call): Promise<void> {
  begin(engine, call);
  try {
    const isKnown = record(call, identify(engine.identities, call));
    if (isKnown && engine.identities.arriving !== null) await arrived(engine, call);
    if (isKnown && record(call, name(call))) {
      engine.underway.join(call);
      // Over its own quota a caller gets nothing, not even what stands in for an answer.
      if (!engine.quotas.isOn || within(call, engine.quotas.agent(call)))
        do await serve(engine, call);
        while (call.code !== 0 && record(call, fallback(call, targetOf)));
    }
    if (call.onWhole !== null && call.code === 0 && !call.bodyOpen) call.onWhole();
  } catch (error) {
    bug(engine, call, error);
  }
  if (call.claim === 'held') await engine.ledger.record(call);
  settle(engine, call);
}

/** One capability of the fallback chain: may this caller have it now, in which version, and from whom. */
async function serve(engine: Decider, call: Call): Promise<void> {
  call.code = 0;
  const reroutedBefore = call.reroutedBy;
  if (!record(call, acl(call)) || !record(call, overrides(call, engine.table.current().overrides))) return;
  if (call.reroutedBy !== reroutedBefore && !(reroute(call) && record(call, acl(call)) && record(call, overrides(call)))) return;
  await decide(engine, call);
  const verdict = call.attempts.length > call.attemptsFrom ? null : leftWithout(call);
  if (verdict === null || !record(call, verdict)) return;
  call.code = 0;
  if (reroute(call) && record(call, acl(call)) && record(call, overrides(call))) await decide(engine, call);
}

/** In which version, and from whom. */
async function decide(engine: Decider, call: Call): Promise<void> {
  if (!record(call, engine.limits.check(call))) return;
  if (engine.quotas.isOn && !within(call, engine.quotas.capability(call))) return;
  call.affinityKey = affinityKeyOf(call);
  if (!record(call, resolve(call, engine.random))) return;
  for (call.lineIndex = 0; call.lineIndex < call.lines.length; call.lineIndex++) {
    const version = call.lines[call.lineIndex] as Version;
    if (!listed(call, version)) return;
    if (!record(call, contract(call, version)) || !record(call, deadline(call, version, engine.config.maxDeadlineMs))) return;
    while (choose(engine, call)) {
      if (!record(call, loops(call, engine.config.maxHops))) return;
      if (call.powerId !== null && !record(call, await engine.ledger.claim(call))) return;
      if (!mayBegin(engine, call)) return;
      if (record(call, await attempt(engine, call, pathWith(call)))) return;
      if (!record(call, retry(call, engine.retryBudget, engine.random)) || !(await pause(engine, call))) return;
    }
  }
}

/**
 * The call keeps its table, but what was blocked while it waited for its key, or between two attempts, does not begin. Of one provider
 * that is asked in `attempt`. Where a call goes is not changed any more.
 */
function mayBegin(engine: Decider, call: Call): boolean {
  const newest = engine.table.current().overrides;
  if (newest.length === 0 || newest === call.table?.overrides) return true;
  const verdict = overrides(
    call,
    newest.filter(({ action }) => action !== 'reroute'),
  );
  return verdict.reason.passes || record(call, verdict);
}

/** The list of the version itself, where each has its own: a peer names the version, and could name one that it may not have. */
function listed(call: Call, version: Version): boolean {
  const verdict = aclOf(call, version);
  return verdict === null || record(call, verdict);
}

/** @param verdict null = there is no such quota, and nothing to write down */
function within(call: Call, verdict: Verdict | null): boolean {
  return verdict === null || record(call, verdict);
}

/** Who serves it. When attempts were made and nobody is left, the failure of the last attempt stands. */
function choose(engine: Decider, call: Call): boolean {
  call.panicked = false;
  const verdict = engine.chooser.choose(call, engine.clock.now());
  if (verdict.reason.passes) return record(call, verdict);
  if (call.attempts.length > call.attemptsFrom) note(call, verdict);
  else {
    call.retryAfterMs = comeBackMs(call, engine.clock.now());
    record(call, verdict);
  }
  return false;
}

/** The provider's end: the sidecar that hosts `agentId`. One attempt, no second opinion. Never rejects. */
export async function inbound(engine: Decider, call: Call, agentId: string, version: string): Promise<void> {
  call.isInbound = true;
  begin(engine, call);
  try {
    const mayEnter =
      record(call, identifyPeer(engine.identities, call)) &&
      record(call, name(call)) &&
      record(call, acl(call)) &&
      record(call, overrides(call));
    if (mayEnter && record(call, host(call, agentId, version))) {
      const line = call.lines[0] as Version;
      call.affinityKey = affinityKeyOf(call);
      const mayStart =
        listed(call, line) &&
        record(call, atHost(call, agentId)) &&
        record(call, contract(call, line)) &&
        record(call, slots(call)) &&
        record(call, deadline(call, line, engine.config.maxDeadlineMs)) &&
        record(call, loops(call, engine.config.maxHops));
      if (mayStart) record(call, await attempt(engine, call, pathWith(call)));
    }
  } catch (error) {
    bug(engine, call, error);
  }
  settle(engine, call);
}
