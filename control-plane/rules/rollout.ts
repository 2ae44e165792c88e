/**
 * The steps of the operators' document through its versions: applied at once, staged for a share of the sidecars, widened,
 * promoted, stopped. Pure steps from one stored state to the next; what a version says is read elsewhere.
 */
import { formatDuration } from '../../base/duration.ts';
import type { Report } from '../../proto/wire/registry.ts';
import type { AppliedDocument, PoliciesState, Rollout } from '../registry/operators.ts';
import type { DocumentDiff } from './diff.ts';

/** Of all rules together: they are pushed together. */
export const RULES_KEY = 'rules';

/** `policy:<pattern>`, `contract:<name>` and `rules` of everything that a diff names. */
export function keysOf(diff: DocumentDiff): Set<string> {
  const keys = new Set<string>();
  for (const { what } of diff.entries) {
    const [kind = '', key = ''] = what.split(' ');
    if (kind === 'rule' || kind === 'rules') keys.add(RULES_KEY);
    else keys.add(`${kind}:${kind === 'contract' ? key.slice(0, key.indexOf('@')) : key}`);
  }
  return keys;
}

/** The keys under which something said about a capability may stand. */
export function keysFor(name: string): string[] {
  const [domain, object] = name.split('.') as [string, string, string];
  return [`contract:${name}`, `policy:${name}`, `policy:${domain}.${object}.*`, `policy:${domain}.*`, 'policy:*'];
}

/** @param keys what the document changes. */
export function applied(state: PoliciesState, entry: AppliedDocument, keys: Iterable<string>): PoliciesState {
  const stamps: Record<string, number> = { ...state.stamps };
  for (const key of keys) stamps[key] = entry.version;
  const { version, author, atMs, text, note } = entry;
  return { ...state, last: Math.max(state.last, version), active: { version, author, atMs, text, note }, staged: null, stamps };
}

export function staged(state: PoliciesState, rollout: Rollout): PoliciesState {
  return { ...state, last: Math.max(state.last, rollout.version), staged: rollout };
}

export function withRollout(state: PoliciesState, change: Partial<Pick<Rollout, 'share' | 'halted'>>): PoliciesState {
  return state.staged === null ? state : { ...state, staged: { ...state.staged, ...change } };
}

export function aborted(state: PoliciesState): PoliciesState {
  return { ...state, staged: null };
}

/** The sidecars of a share have so long to say that they use it. They report every 5 s and on each change. */
export const REPORT_WAIT_MS = 30_000;
/** Of those that are to say so; one that restarts just now does not stop a roll-out. */
const MIN_REPORTED = 0.8;

export interface RolloutRefusal {
  readonly sidecar: string;
  readonly tail: string;
  readonly seq: number;
  readonly why: string;
}

/** A sidecar in the share, and what of the roll-out it is to use. */
export interface Concerned {
  readonly sidecar: string;
  readonly policies: boolean;
  readonly rules: boolean;
}

/** What sidecars report while a roll-out runs. */
export class RolloutWatch {
  readonly rollout: Rollout;
  readonly refusals: RolloutRefusal[] = [];
  readonly #startedAt: number;
  readonly #inForce = new Set<string>();
  readonly #rulesInForce = new Set<string>();
  readonly #seen = new Set<string>();

  constructor(rollout: Rollout, now: number) {
    this.rollout = rollout;
    this.#startedAt = now;
  }

  /** The same roll-out, wider: everybody is asked anew. */
  widened(rollout: Rollout, now: number): RolloutWatch {
    const watch = new RolloutWatch(rollout, now);
    for (const sidecar of this.#inForce) watch.#inForce.add(sidecar);
    for (const sidecar of this.#rulesInForce) watch.#rulesInForce.add(sidecar);
    return watch;
  }

  note(report: Report): void {
    const { version, staged: isStaged } = report.policies;
    if (isStaged && version === this.rollout.version) this.#inForce.add(report.sidecar);
    else this.#inForce.delete(report.sidecar);
    const { rules } = report;
    if (rules?.staged === true && rules.version === this.rollout.version) this.#rulesInForce.add(report.sidecar);
    else this.#rulesInForce.delete(report.sidecar);
    for (const { tail, seq, why } of report.refused) {
      const key = `${report.sidecar} ${tail} ${seq}`;
      if (seq <= this.rollout.fromSeq || this.#seen.has(key)) continue;
      this.#seen.add(key);
      this.refusals.push({ sidecar: report.sidecar, tail, seq, why });
    }
  }

  /** All that it is to use of it. */
  isInForce({ sidecar, policies, rules }: Concerned): boolean {
    return (!policies || this.#inForce.has(sidecar)) && (!rules || this.#rulesInForce.has(sidecar));
  }

  /** Why it must stop; null = it may go on. */
  trouble(expected: readonly Concerned[], now: number): string | null {
    const first = this.refusals[0];
    if (first !== undefined) return `the sidecar ${first.sidecar} refused ${first.tail}: ${first.why}`;
    if (now - this.#startedAt < REPORT_WAIT_MS) return null;
    const missing = expected.filter((each) => !this.isInForce(each)).map(({ sidecar }) => sidecar);
    if (expected.length - missing.length >= expected.length * MIN_REPORTED) return null;
    return `after ${formatDuration(REPORT_WAIT_MS)} it is in force on ${expected.length - missing.length} of ${expected.length} sidecars of its share; missing: ${missing.slice(0, 10).join(', ')}`;
  }
}
