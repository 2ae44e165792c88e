/**
 * Whether anybody but those who were tried may serve a call now: asked after a failure, before anything is waited for, taken
 * from a budget, or left to another provider. `choose` has the last word; this only knows what cannot be. A pin and a `strict`
 * conversation let nobody else in, an operator's rule, a drain, a weight of 0 or the health view not this one or that one.
 */
import { coversAgent, coversName } from '../../proto/language/covers.ts';
import { isInForce } from '../../proto/language/override-words.ts';
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import type { Candidate, Snapshot, Version } from '../table/snapshot.ts';
import { type Call, headerOf } from './call.ts';

/** `busy`: those who could are at their limits; a moment later one may not be. */
export type Elsewhere = 'free' | 'busy' | 'nobody';

export function elsewhere(call: Call, now: number): Elsewhere {
  if (call.pin !== null || isPinned(call) || isHeldStrictly(call)) return 'nobody';
  let found: Elsewhere = 'nobody';
  for (let i = call.lineIndex; i < call.lines.length; i++) {
    const version = call.lines[i] as Version;
    for (const candidate of version.candidates) {
      if (wasTried(call, candidate) || !isFit(candidate, version.settings.panic, now) || isRuledOut(call, candidate)) continue;
      const { inFlight, limit } = candidate.provider.health;
      if (inFlight < limit) return 'free';
      found = 'busy';
    }
  }
  return found;
}

/**
 * Whether the conversation that this call began may stay where it began. At a half-open provider only if that one
 * answered; elsewhere unless nobody could answer there: bound to a dead agent it would be served by stand-ins, and torn
 * away from them when the next agent joins.
 */
export function hasBegun(call: Call): boolean {
  const { attempts, begunAt } = call;
  if (call.begunAsProbe) {
    const last = attempts[attempts.length - 1];
    return last !== undefined && last.candidate === begunAt && (last.code === Code.ok || (last.started === 'done' && last.status < 500));
  }
  for (const { candidate, code, started } of attempts)
    if (candidate === begunAt) return started !== 'not_started' || (code !== Code.connect_timeout && code !== Code.breaker_open);
  return true;
}

/** By its caller; the wish is for the capability that was asked for, not for what stands in for it. */
function isPinned(call: Call): boolean {
  return call.fallbackFrom === null && call.reroutedBy === null && (headerOf(call, Header.pin) ?? '') !== '';
}

/** Whoever has a `strict` conversation is the only one who may go on with it. In panic none is begun. */
function isHeldStrictly(call: Call): boolean {
  if (call.affinityKey === null || call.affinityKey === '' || call.chosen === null || call.panicked) return false;
  if (call.chosen.version.contract.affinity?.mode !== 'strict') return false;
  return call.begunAt === null || hasBegun(call);
}

function isFit(candidate: Candidate, panic: boolean, now: number): boolean {
  if (candidate.weight <= 0 || candidate.drain) return false;
  const usable = candidate.health.usable(now);
  return usable === 'yes' || usable === 'probe' || (panic && usable !== 'offline');
}

/** By an operator; whatever the rule is, nothing new begins there. */
function isRuledOut(call: Call, { provider, version }: Candidate): boolean {
  const { overrides } = call.table as Snapshot;
  if (overrides.length === 0) return false;
  const now = call.clock.wallMs();
  return overrides.some(
    (rule) =>
      rule.provider !== null &&
      isInForce(rule, now) &&
      coversAgent(rule.provider, provider.agentId) &&
      coversName(rule.capability, version.capability.name) &&
      (rule.caller === null || (call.principal !== null && coversAgent(rule.caller, call.principal.agent))),
  );
}

function wasTried(call: Call, candidate: Candidate): boolean {
  for (let i = call.attemptsFrom; i < call.attempts.length; i++)
    if ((call.attempts[i] as (typeof call.attempts)[number]).candidate.provider === candidate.provider) return true;
  return false;
}
