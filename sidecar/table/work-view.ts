/**
 * What is pushed for messages: the pools on which this sidecar's agents work (`work.<self>`), and the rules in force
 * (`rules`). Read here with the same distrust as the table; what to do with it is decided by delivery and by sending.
 */
import { isAgentId, isCapabilityName } from '../../proto/language/names.ts';
import type { Rule } from '../../proto/language/rule.ts';
import { shareOf } from '../../proto/language/share.ts';
import type { RulesState, WorkPool, WorkState } from '../../proto/wire/messages.ts';
import { PARTITIONS, POOL_SECRET } from '../../proto/wire/messages.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import { Tail } from '../../proto/wire/subjects.ts';
import type { Opened, Unreadable } from './readable.ts';
import { type StateView, TailState } from './tail-state.ts';

/** The pools on which agents of this sidecar work, with these agents and the partitions they own. */
export type WorkView = StateView<WorkState>;

/** The rules that count here. */
export interface RulesHere {
  /** Version of the operators' document; 0 = none. */
  readonly version: number;
  /** As part of a staged roll-out. */
  readonly staged: boolean;
  readonly rules: readonly Rule[];
}

export interface RulesView extends StateView<RulesState> {
  /** Those in force here: the staged ones where this sidecar is in their share. */
  inForce(): RulesHere;
  /** Why a state cannot be used; it is refused then, visibly, and what was in force stays. To be set before the start. */
  tryOut: (state: RulesState) => string | null;
}

const NO_WORK: WorkState = Object.freeze({ wire: REGISTRY_WIRE, epoch: '', pools: Object.freeze([]) });
const NO_RULES: RulesState = Object.freeze({ wire: REGISTRY_WIRE, epoch: '', version: 0, rules: Object.freeze([]), staged: null });
const POOL_ID = /^p[a-z2-7]{20}$/;

export function workState(sidecar: string): TailState<WorkState> {
  return new TailState(Tail.work(sidecar), NO_WORK, readWork);
}

export class RulesTail extends TailState<RulesState> implements RulesView {
  readonly #share: number;

  constructor(sidecar: string) {
    super(Tail.rules, NO_RULES, readRules);
    this.#share = shareOf(sidecar);
  }

  inForce(): RulesHere {
    const { version, rules, staged } = this.current();
    if (staged === null || this.#share >= staged.share) return { version, staged: false, rules };
    return { version: staged.version, staged: true, rules: staged.rules };
  }
}

function readWork({ value }: Opened): WorkState | Unreadable {
  const pools = value['pools'];
  if (!Array.isArray(pools)) return { problem: 'pools must be a list' };
  for (const each of pools as readonly unknown[]) {
    const problem = workPoolProblem(each);
    if (problem !== null) return { problem };
  }
  return value as unknown as WorkState;
}

function workPoolProblem(each: unknown): string | null {
  if (!isMap(each) || !isMap(each['pool'])) return 'an entry has no pool';
  const { pool, agents, partitions, secret } = each as unknown as WorkPool;
  if (typeof pool.id !== 'string' || !POOL_ID.test(pool.id)) return 'a pool has no id';
  if (!isCapabilityName(pool.capability)) return `pool ${pool.id} names no capability`;
  if (!isTextOrNull(pool.version) || !isTextOrNull(pool.role) || !isTextOrNull(pool.agent) || !isMap(pool.tags))
    return `pool ${pool.id}: version, role, agent or tags cannot be read`;
  if (!Array.isArray(agents) || !agents.every((agent) => typeof agent === 'string' && isAgentId(agent)))
    return `pool ${pool.id}: agents must be a list of agent ids`;
  if (!Array.isArray(partitions) || !partitions.every(isPartition)) return `pool ${pool.id}: its partitions cannot be read`;
  if (secret !== undefined && !(typeof secret === 'string' && POOL_SECRET.test(secret)))
    return `pool ${pool.id}: its secret cannot be read`;
  return null;
}

function isPartition(one: unknown): boolean {
  if (!isMap(one)) return false;
  const { index, owner, term, host } = one;
  return (
    typeof index === 'number' &&
    Number.isInteger(index) &&
    index >= 0 &&
    index < PARTITIONS &&
    typeof owner === 'string' &&
    Number.isSafeInteger(term) &&
    (host === undefined || typeof host === 'string')
  );
}

function readRules({ value }: Opened): RulesState | Unreadable {
  const { version, rules, staged } = value;
  if (!isVersion(version)) return { problem: 'it names no version' };
  const problem = rulesProblem(rules);
  if (problem !== null) return { problem };
  if (staged !== null) {
    if (!isMap(staged) || typeof staged['share'] !== 'number' || !isVersion(staged['version']))
      return { problem: 'staged must have version and share' };
    const stagedProblem = rulesProblem(staged['rules']);
    if (stagedProblem !== null) return { problem: `staged: ${stagedProblem}` };
  }
  return value as unknown as RulesState;
}

function rulesProblem(rules: unknown): string | null {
  if (!Array.isArray(rules)) return 'rules must be a list';
  const isEach = rules.every(
    (rule) => isMap(rule) && typeof rule['name'] === 'string' && isMap(rule['when']) && typeof rule['dispatch'] === 'string',
  );
  return isEach ? null : 'a rule has no name, condition or dispatch';
}

function isVersion(value: unknown): boolean {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}

function isTextOrNull(value: unknown): boolean {
  return value === null || typeof value === 'string';
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
