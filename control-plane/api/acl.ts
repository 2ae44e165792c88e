/**
 * May this agent call that, and why: judged from what is pushed, and asked of the live sidecars at both ends, so that the answer
 * is what would happen and not what should. Nothing is sent to a provider and nothing changes.
 */
import { nearest } from '../../base/suggest.ts';
import { coversAgent, coversName } from '../../proto/language/covers.ts';
import { agentIdProblem, parseTarget } from '../../proto/language/names.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import type { OverrideEntry } from '../../proto/wire/overrides.ts';
import { Tail } from '../../proto/wire/subjects.ts';
import { type IdentityState, liveOf } from '../identity/book.ts';
import { judgeAcl } from '../registry/acl-judge.ts';
import type { AclEnd, AclTestAnswer, AclWhoAnswer } from './acl-shapes.ts';
import type { Plane } from './plane.ts';
import { absent, invalid, Refused } from './problem.ts';
import { type Asked, json, type Reply, type Route } from './route.ts';

/** Sidecars of one end that are asked. */
const MAX_ASKED = 3;
const MAX_AGENTS = 10_000;

export function aclRoutes(plane: Plane): readonly Route[] {
  const read = { method: 'GET', role: 'viewer', onLeader: false } as const;
  return [
    {
      ...read,
      path: '/v1/acl/test',
      summary: 'Whether an agent may call a capability, at both ends, and by which entry of which list.',
      query: [
        { name: 'caller', doc: 'Agent id.', example: 'crm.bot.a1' },
        { name: 'target', doc: 'Capability or alias, with a range if you like.', example: 'crm.order.query@^2' },
        { name: 'via', doc: 'The sidecar through which it calls; absent: those where it is at home.' },
      ],
      answer: { status: 200, doc: '`allowed`, what stands against it, and every list that was looked at.' },
      handle: (asked) => test(plane, asked),
    },
    {
      ...read,
      path: '/v1/acl/who',
      summary: 'Who may call a capability: the lists, and the agents that are known at present and that they name.',
      query: [{ name: 'target', doc: 'Capability or alias.', example: 'crm.order.query' }],
      answer: { status: 200, doc: 'Lists and agents.' },
      handle: (asked) => who(plane, asked),
    },
  ];
}

interface Found {
  readonly name: string;
  readonly range: string | null;
}

function found(plane: Plane, target: string | undefined): Found | Refused {
  if (target === undefined) return invalid('say which capability (&target=)');
  const parsed = parseTarget(target);
  if ('problem' in parsed) return invalid(parsed.problem);
  const registry = plane.registry();
  const names = registry.capabilityNames();
  const name = names.includes(parsed.name)
    ? parsed.name
    : (registry.capabilities().find(({ aliases }) => aliases.includes(parsed.name))?.capability ?? null);
  if (name === null) {
    const near = nearest(parsed.name, names);
    return absent(`no capability is called ${JSON.stringify(parsed.name.slice(0, 200))}${near === null ? '' : `; did you mean ${near}?`}`);
  }
  return { name, range: parsed.range };
}

async function test(plane: Plane, { query }: Asked): Promise<Reply> {
  const { caller, target, via } = query;
  if (caller === undefined) return invalid('say who calls (?caller=)');
  const problem = agentIdProblem(caller);
  if (problem !== null) return invalid(problem);
  const at = found(plane, target);
  if (at instanceof Refused) return at;
  if (via !== undefined && !plane.registry().sidecarNames().includes(via))
    return absent(`no sidecar is called ${JSON.stringify(via.slice(0, 80))}`);
  const registry = plane.registry();
  const states = registry.capabilityStates(at.name);
  const head = states.find(({ shard }) => shard === 0);
  const versions = head === undefined ? [] : judgeAcl(head, caller, at.range);
  const admitted = versions.filter(({ is_in_range: isIn, admits }) => isIn && admits);
  const homes = via === undefined ? registry.homesOf(caller) : [via];
  const hosts = [...new Set(states.flatMap(({ providers }) => providers.flatMap(({ record }) => record.via ?? [])))];
  const [callersEnd, providersEnd] = await Promise.all([
    Promise.all(homes.slice(0, MAX_ASKED).map((sidecar) => askCaller(plane, sidecar, target as string, caller))),
    Promise.all(
      hosts
        .slice(0, MAX_ASKED)
        .map((sidecar) => askHost(plane, sidecar, at.name, caller, admitted[0]?.version ?? versions[0]?.version ?? '')),
    ),
  ]);
  const identity = identityOf(plane, caller);
  const overrides = plane.overrides.overrides.filter((rule) => hits(rule, caller, at.name));
  const against = [
    ...(identity === 'revoked' ? [`what was issued to ${caller} has been taken back: it is nobody (4001)`] : []),
    ...(identity === 'expired' ? [`the tokens of ${caller} have ended (4001)`] : []),
    ...listAgainst(at, caller, versions),
    ...overrides.filter(({ action }) => action === 'block').map(({ id, reason }) => `override ${id} blocks it (2006): ${reason}`),
    ...[...callersEnd, ...providersEnd]
      .filter(({ allowed }) => allowed === false)
      .map(({ sidecar, words }) => `${sidecar} says: ${words.at(-1) ?? ''}`),
  ];
  const audits = admitted.filter(({ by }) => by === null);
  const quotas = registry
    .quotas()
    .quotas.filter((quota) =>
      quota.kind === 'agent' ? coversAgent(quota.target, caller) : quota.kind === 'capability' && coversName(quota.target, at.name),
    );
  const notes = [
    ...audits.map(
      ({ version, mode_by: by }) =>
        `${at.name}@${version} would refuse it; ${by} has its list in audit, so it is let in, logged and counted`,
    ),
    ...overrides
      .filter(({ action }) => action !== 'block')
      .map(({ id, action, reason }) => `override ${id} (${action}) changes what it gets: ${reason}`),
    ...quotas.map(({ kind, target: of }) => `the quota of ${kind} ${of} limits it`),
    ...(homes.length === 0 ? [`no sidecar says at present that ${caller} calls through it: only the lists were looked at`] : []),
    ...(head?.staged == null
      ? []
      : [
          `a staged roll-out changes what ${Math.round(head.staged.share * 100)} % of the sidecars hold to (version ${head.staged.version})`,
        ]),
  ];
  const answer: AclTestAnswer = {
    caller,
    asked: target as string,
    capability: at.name,
    range: at.range,
    allowed: against.length === 0,
    against,
    notes,
    versions,
    policies_version: head?.policiesVersion ?? 0,
    identity,
    callers_end: callersEnd,
    providers_end: providersEnd,
    overrides: overrides.map(({ id, action, reason, author }) => ({ id, action, reason, author })),
    quotas: quotas.map(({ kind, target: of }) => ({ kind, target: of })),
  };
  return json(answer);
}

function listAgainst({ name, range }: Found, caller: string, versions: AclTestAnswer['versions']): string[] {
  const inRange = versions.filter(({ is_in_range: isIn }) => isIn);
  if (versions.length === 0) return [`nobody has registered a contract of ${name}`];
  if (inRange.length === 0)
    return [`no version of ${name} is in the range ${range ?? ''}: there are ${versions.map(({ version }) => version).join(', ')}`];
  if (inRange.some(({ admits }) => admits)) return [];
  const lists = [...new Set(inRange.flatMap(({ acl }) => acl))];
  return [`${caller} may not call ${name} (4002): no entry of its ACL (${lists.join(', ')}) names it`];
}

function identityOf(plane: Plane, agent: string): AclTestAnswer['identity'] {
  const state = plane.mirror.state<IdentityState>(Tail.identity('agent', agent));
  if (state === null || (state.tokens.length === 0 && state.revokedBefore === 0)) return 'not issued';
  if (liveOf(state, plane.clock.wallMs() / 1_000).length > 0) return 'valid';
  return state.revokedBefore > 0 ? 'revoked' : 'expired';
}

/** Of an override that names a provider only the providers' end knows whether it is hit. */
function hits({ target }: OverrideEntry, caller: string, capability: string): boolean {
  if (target.all === true) return true;
  if (target.provider !== undefined) return false;
  if (target.capability !== undefined && !coversName(target.capability, capability)) return false;
  const agents = target.caller ?? target.agent;
  return agents === undefined || coversAgent(agents, caller);
}

interface Line {
  readonly stage?: unknown;
  readonly name?: unknown;
  readonly words?: unknown;
}

/** What stands for these stages in a decision. */
const ABOUT_ACL: ReadonlySet<unknown> = new Set(['identify', 'name', 'acl', 'overrides']);

async function askCaller(plane: Plane, sidecar: string, target: string, caller: string): Promise<AclEnd> {
  const asked = await plane.ask(sidecar, { wire: REGISTRY_WIRE, what: 'explain', target, as: caller, headers: {} });
  if (!('answer' in asked)) return { sidecar, allowed: null, words: [asked.why] };
  const { decision, refusal } = asked.answer as {
    readonly decision?: readonly Line[];
    readonly refusal?: { readonly code?: unknown; readonly detail?: unknown } | null;
  };
  const words = (decision ?? []).filter(({ stage }) => ABOUT_ACL.has(stage)).map((line) => `${String(line.stage)}: ${String(line.words)}`);
  const code = refusal?.code;
  // What is merely not there, or ill, is no question of who may.
  const isRefused =
    code === 4001 || code === 4002 || code === 2006 || code === 4006 || (code === 2001 && words.every((line) => !line.startsWith('acl')));
  if (isRefused && words.length === 0) words.push(String(refusal?.detail));
  return { sidecar, allowed: !isRefused, words };
}

async function askHost(plane: Plane, sidecar: string, capability: string, caller: string, version: string): Promise<AclEnd> {
  const asked = await plane.ask(sidecar, { wire: REGISTRY_WIRE, what: 'acl', capability, caller, version });
  if (!('answer' in asked)) return { sidecar, allowed: null, words: [asked.why] };
  const { allowed, words } = asked.answer as { readonly allowed?: unknown; readonly words?: unknown };
  return { sidecar, allowed: allowed === true, words: Array.isArray(words) ? words.map(String) : [] };
}

function who(plane: Plane, { query }: Asked): Reply {
  const at = found(plane, query['target']);
  if (at instanceof Refused) return at;
  const registry = plane.registry();
  const head = registry.capabilityStates(at.name).find(({ shard }) => shard === 0);
  const known = new Set<string>();
  for (const { callers } of registry.sidecars()) for (const agent of callers) known.add(agent);
  for (const { agent } of registry.providers()) known.add(agent);
  const agents: { agent: string; by: string[] }[] = [];
  for (const agent of [...known].sort().slice(0, MAX_AGENTS)) {
    const by = head === undefined ? [] : judgeAcl(head, agent, null).filter(({ admits }) => admits);
    if (by.length > 0) agents.push({ agent, by: [...new Set(by.map(({ by: entry }) => entry ?? 'audit'))] });
  }
  const answer: AclWhoAnswer = {
    capability: at.name,
    versions: head === undefined ? [] : judgeAcl(head, '', null).map(({ version, acl, mode }) => ({ version, acl, mode })),
    agents,
  };
  return json(answer);
}
