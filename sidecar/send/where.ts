/**
 * Where a message goes: the stages of a call up to the version, by the same code, so that a message finds what a call would
 * find (alias, range, canary, ACL, no silent downgrade), and then the rules. Different from a call in one thing: when there
 * is nobody now, a message can wait, as long as it is certain what it waits for.
 */
import type { Clock } from '../../base/clock.ts';
import type { Random } from '../../base/random.ts';
import type { Rule, RuleSet, RuleSubject } from '../../proto/language/rule.ts';
import { Code } from '../../proto/wire/codes.ts';
import { MESSAGE_CAPABILITY } from '../../proto/wire/envelope.ts';
import { Header } from '../../proto/wire/headers.ts';
import { readTraceContext } from '../../proto/wire/trace-context.ts';
import { acl } from '../acl/acl.ts';
import { Call, record } from '../call/call.ts';
import { wordsOf } from '../call/verdict.ts';
import { affinityKeyOf } from '../contract/affinity-key.ts';
import { contract } from '../contract/contract.ts';
import { name } from '../name/name.ts';
import { TO_PROVIDER } from '../../proto/wire/overrides.ts';
import { overrides } from '../overrides/overrides.ts';
import { inboxOf } from '../table/inbox-of.ts';
import type { Capability, Snapshot, Version } from '../table/snapshot.ts';
import type { Submission } from './door.ts';
import { type Decided, TASK_REQUEST } from './envelope-of.ts';
import type { PoolAim, Pools } from './pools.ts';
import { versionFor } from './which-version.ts';

export interface Refused {
  readonly code: Code;
  readonly detail: string;
  /** A rule says so; absent = none has been asked. */
  readonly by?: { readonly subject: RuleSubject; readonly rule: string };
}

/** What a message is about: the call that it becomes, and whom it may wait for. */
export interface Meant {
  readonly call: Call;
  readonly aim: PoolAim;
}

export type Way = Decided &
  Meant & {
    readonly subject: RuleSubject;
    readonly hasSomebody: boolean;
    readonly forReview: boolean;
    /** The sidecar that keeps the inbox into which it goes; null = it is work for a pool. */
    readonly inboxAt: string | null;
  };

export interface WhereParts {
  readonly clock: Clock;
  readonly random: Random;
  readonly maxHops: number;
  readonly pools: Pools;
  readonly rules: () => RuleSet;
  /** Hears what policy said of each message; absent = nobody wants to know. */
  readonly judged?: (call: Call) => void;
}

const NO_TAGS: Readonly<Record<string, string>> = Object.freeze({});
/** Capabilities that rules may send one message on to, one after the other. */
const MAX_FALLBACKS = 4;

/** The decision, or why there is none. Pure but for the pools that it makes known. */
export function whereTo(parts: WhereParts, table: Snapshot, submission: Submission): Way | Refused {
  const inboxAt = inboxFor(table, submission);
  if (inboxAt !== null) return wayToInbox(parts, table, submission, inboxAt);
  const meant = meaningOf(parts, table, submission, submission.target.capability);
  if ('code' in meant) return meant;
  const subject = subjectOf(submission, meant);
  const matching = parts.rules().match(subject);
  for (const rule of matching) {
    const way = wayBy(parts, table, submission, meant, subject, rule);
    if (way.hasSomebody) return way;
    const { fallback } = rule;
    if (fallback === null) continue;
    switch (fallback.kind) {
      case 'queue_task':
        return way;
      case 'notify_admin':
        return { ...way, forReview: true };
      case 'fail':
        return {
          code: Code.none_healthy,
          detail: `nobody is there to work on it, and rule ${rule.name} says that it fails then`,
          by: { subject, rule: rule.name },
        };
      case 'capability': {
        const instead = insteadOf(parts, table, submission, subject, rule, fallback.target);
        if (instead !== null) return instead;
      }
    }
  }
  // It waits as the most specific one would have it: in its lane, and with those that it keeps together.
  return wayBy(parts, table, submission, meant, subject, matching[0] ?? null);
}

/** An agent is addressed by name that does not take messages as work, and this sender may write to it. */
function inboxFor(table: Snapshot, { target, principal }: Submission): string | null {
  const { capability, role, agent } = target;
  if (capability !== null || role !== null || agent === null) return null;
  if (table.capabilities.get(MESSAGE_CAPABILITY)?.members.has(agent) === true) return null;
  return inboxOf(table, principal, agent);
}

/** Rules are asked for their count; where it goes is certain. */
function wayToInbox(parts: WhereParts, table: Snapshot, submission: Submission, inboxAt: string): Way | Refused {
  const call = callOf(parts, table, submission, MESSAGE_CAPABILITY);
  const long = readPath(call, parts.maxHops);
  if (long !== null) return long;
  const aim: PoolAim = {
    capability: null,
    name: MESSAGE_CAPABILITY,
    version: null,
    role: null,
    agent: submission.target.agent,
    tags: NO_TAGS,
  };
  const meant = { call, aim };
  const subject = subjectOf(submission, meant);
  const [rule = null] = parts.rules().match(subject);
  return { ...wayBy(parts, table, submission, meant, subject, rule), stickyKey: null, hasSomebody: true, inboxAt };
}

function callOf(parts: WhereParts, table: Snapshot, submission: Submission, asked: string): Call {
  const call = new Call('message', asked, submission.headers, submission.payload, submission.contentType, false, parts.clock);
  readTraceContext(call, submission.headers[Header.traceparent], submission.headers[Header.tracestate], parts.random);
  call.table = table;
  call.principal = submission.principal;
  return call;
}

function subjectOf({ messageType, principal, target, tags }: Submission, { call }: Meant): RuleSubject {
  return {
    messageType: messageType ?? TASK_REQUEST,
    sourceRole: principal.role,
    targetRole: target.role ?? (target.agent === null ? null : (target.agent.split('.')[1] as string)),
    capability: target.capability === null ? null : (call.capability?.name ?? null),
    tags,
  };
}

/** @param rule null = none matched. */
function wayBy(parts: WhereParts, table: Snapshot, submission: Submission, meant: Meant, subject: RuleSubject, rule: Rule | null): Way {
  const stickyKey = rule === null || rule.dispatch !== 'sticky' ? null : stickyKeyOf(submission, rule.stickyBy);
  const { call, aim } = stickyKey === null ? meant : keptTogether(parts, table, submission, meant, stickyKey);
  const pool = parts.pools.of(aim, stickyKey !== null);
  return {
    call,
    aim,
    subject,
    pool,
    lane: rule?.priority ?? submission.priority ?? 'normal',
    rule: rule?.name ?? null,
    stickyKey,
    hasSomebody: pool.hasSomebody(table),
    forReview: false,
    inboxAt: null,
  };
}

/** Each version has a pool of its own: what belongs together gets its version by what keeps it together, and by nothing else. */
function keptTogether(parts: WhereParts, table: Snapshot, submission: Submission, meant: Meant, key: string): Meant {
  const { aim, call } = meant;
  if (aim.version === null || aim.capability === null || aim.capability.canary === null || call.affinityKey === key) return meant;
  const again = meaningOf(parts, table, submission, call.range === null ? aim.name : `${aim.name}@${call.range}`, false, key);
  return 'code' in again ? meant : again;
}

/** A message without it belongs to no conversation, and goes to whoever is free. */
function stickyKeyOf({ sequenceId, principal, tags }: Submission, by: string | null): string | null {
  if (by === null || by === 'sequence_id') return sequenceId;
  if (by === 'source') return principal.agent;
  const tag = by.startsWith('tags.') ? by.slice(5) : by;
  return Object.hasOwn(tags, tag) ? (tags[tag] as string) : null;
}

/** The capability that a rule sends it on to; null = there is nobody either, or this sender may not have it. */
function insteadOf(
  parts: WhereParts,
  table: Snapshot,
  submission: Submission,
  subject: RuleSubject,
  rule: Rule,
  target: string,
): Way | null {
  let asked: string | null = target;
  for (let i = 0; asked !== null && i < MAX_FALLBACKS; i++) {
    const onward: Submission = { ...submission, target: { capability: asked, role: null, agent: null } };
    const meant = meaningOf(parts, table, onward, asked);
    if ('code' in meant) return null;
    // By the rule that sent it on, and for what the sender meant.
    const way = wayBy(parts, table, onward, meant, subject, rule);
    if (way.hasSomebody) return way;
    asked = null;
    for (const next of parts.rules().match(subjectOf(onward, meant)))
      if (next.fallback?.kind === 'capability') {
        asked = next.fallback.target;
        break;
      }
  }
  return null;
}

/**
 * The stages.
 * @param asked null = a role or an agent is addressed, whatever it offers
 * @param key what picks the version; null = as of a call
 */
function meaningOf(
  parts: WhereParts,
  table: Snapshot,
  submission: Submission,
  asked: string | null,
  mayReroute = true,
  key: string | null = null,
): Meant | Refused {
  const { role, agent } = submission.target;
  const call = callOf(parts, table, submission, asked ?? MESSAGE_CAPABILITY);
  const long = readPath(call, parts.maxHops);
  if (long !== null) return long;
  if (asked === null) {
    const capability = table.capabilities.get(MESSAGE_CAPABILITY) ?? null;
    const aim: PoolAim = { capability, name: MESSAGE_CAPABILITY, version: null, role, agent, tags: submission.tags };
    const isOffered = capability !== null && capability.versions.length > 0 && (agent === null || capability.members.has(agent));
    if (!isOffered) {
      // Nobody of them has been here yet; whether this sender may is asked where it is handed over.
      return contractOfNone(call) ?? { call, aim };
    }
    call.capability = capability;
    if (!record(call, acl(call)) || !record(call, overrides(call)) || !record(call, contract(call, capability.versions[0] as Version)))
      return refusalOf(parts, call);
    if (call.letIn !== null) parts.judged?.(call);
    return { call, aim };
  }
  if (!record(call, name(call)) || !record(call, acl(call)) || !record(call, overrides(call))) return refusalOf(parts, call);
  // One step: an override that leads to another one is a mistake, of calls as of messages.
  if (call.reroutedBy !== null && mayReroute) {
    const to = call.reroutedBy.to ?? '';
    const { name: from } = call.capability as Capability;
    const isTo = to.startsWith(TO_PROVIDER);
    const next = isTo ? from : to.startsWith('@') ? `${from}${to}` : to;
    const target = { capability: next, role, agent: isTo ? to.slice(TO_PROVIDER.length) : agent };
    return meaningOf(parts, table, { ...submission, target }, next, false, key);
  }
  // The tags are the message's, and no selector of providers.
  call.tags = '';
  const capability = call.capability as Capability;
  if (!hasHost(capability))
    return {
      code: Code.no_provider,
      detail: `${capability.name} is offered by third parties only: no sidecar stands beside them that could hand them a message; call it instead`,
    };
  call.affinityKey = key ?? affinityKeyOf(call);
  const version = versionFor(parts.random, call, capability, role, agent);
  if (version === null) return refusalOf(parts, call);
  if (!record(call, contract(call, version))) return refusalOf(parts, call);
  if (call.letIn !== null) parts.judged?.(call);
  return { call, aim: { capability, name: capability.name, version, role, agent, tags: submission.tags } };
}

/** Somebody who offers it, or offered it, has a sidecar; or nobody offers it yet. */
function hasHost(capability: Capability): boolean {
  let isOffered = false;
  for (const { provider } of capability.members.values()) {
    if (provider.record.via !== null) return true;
    isOffered = true;
  }
  return !isOffered;
}

/** Who passes a message on says by whom it came. Whether it goes in a circle is asked where it is handed over. */
function readPath(call: Call, maxHops: number): Refused | null {
  const text = call.headers[Header.path];
  if (typeof text !== 'string' || text === '') return null;
  const path = text.split(',').map((part) => part.trim());
  if (path.length >= maxHops)
    return { code: Code.loop_detected, detail: `${path.length + 1} hops, ${maxHops} allowed: ${path.join(' → ').slice(0, 1_024)}` };
  call.path = path;
  return null;
}

/** Without a contract the caller's word counts: `Reach-Execution`, else `once`. */
function contractOfNone(call: Call): Refused | null {
  const said = call.headers[Header.execution];
  if (said === undefined) return null;
  if (said !== 'once' && said !== 'idempotent' && said !== 'keyed')
    return { code: Code.invalid_request, detail: `${Header.execution}: ${String(said).slice(0, 40)} is none of once, idempotent, keyed` };
  call.execution = said;
  return null;
}

function refusalOf({ judged }: WhereParts, call: Call): Refused {
  judged?.(call);
  const { refusal } = call;
  if (refusal === null) return { code: Code.internal, detail: 'it was refused without a reason' };
  return { code: refusal.reason.code, detail: wordsOf(refusal.reason, refusal.a, refusal.b, refusal.c) };
}
