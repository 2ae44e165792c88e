/**
 * Refusals by policy at this sidecar, for the audit log: callers and peers that are not known, lists that do not name the
 * caller, overrides, quotas; and what a list in audit would have refused. Counted by caller, capability, code and rule: the
 * first at once, then sums, so that a flood of refused calls is a few entries. No payload and no credential passes through
 * here: names, codes, and the words of the rule.
 */
import type { Clock } from '../../base/clock.ts';
import { type Logger, printable } from '../../base/log.ts';
import { Summing } from '../../base/summing.ts';
import type { AuditSaid } from '../../proto/wire/audit.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { Call } from '../call/call.ts';
import { type Verdict, wordsOf } from '../call/verdict.ts';

const SUM_MS = 10_000;
/** Per sidecar: above it what is refused is summed up together. Two hundred sidecars that are all under attack write 1,300 entries a second. */
const MAX_KINDS = 64;

interface Refused {
  readonly actor: string;
  readonly action: string;
  readonly subject: string;
  readonly outcome: 'refused' | 'audited';
  readonly code: number;
  readonly verdict: Verdict | null;
  readonly words: string;
  readonly via: string;
}

export class Refusals {
  /** Where entries go beside the log; null = nowhere, there is no bus. */
  to: ((said: AuditSaid) => void) | null = null;
  readonly #log: Logger;
  readonly #sums: Summing<Refused>;
  #refused = 0;
  #audited = 0;

  constructor(clock: Clock, log: Logger) {
    this.#log = log;
    this.#sums = new Summing({
      clock,
      everyMs: SUM_MS,
      maxKinds: MAX_KINDS,
      others: (one) => ({ ...one, actor: '', subject: '', verdict: null, words: 'several callers, capabilities and rules', via: '' }),
      tell: (one, count, sinceMs) => this.#tell(one, count, sinceMs),
    });
  }

  /** Refused by policy, and what lists in audit have let in, since the start. */
  get counts(): { readonly refused: number; readonly audited: number } {
    return { refused: this.#refused, audited: this.#audited };
  }

  /** How a call ended, or what was decided of a message; most have nothing to be told, and cost two comparisons. */
  judged(call: Call): void {
    if (call.letIn !== null) {
      this.#audited++;
      this.#add(call, call.letIn, 'audited', Code.forbidden);
    }
    const { refusal } = call;
    if (refusal === null || call.code === 0 || !isPolicy(refusal)) return;
    this.#refused++;
    this.#add(call, refusal, 'refused', refusal.reason.code);
  }

  /** A peer that is not believed, and was let in all the same: identity is in audit. */
  doubted(agent: string, via: string, words: string): void {
    this.#audited++;
    const doubted = {
      actor: agent,
      action: 'mesh.audited',
      subject: '',
      outcome: 'audited',
      code: Code.unauthenticated,
      verdict: null,
      words,
      via,
    } as const;
    this.#sums.add(`doubted ${agent} ${via} ${words}`, doubted);
  }

  /** A message that was refused before it was looked at. */
  message(agent: string, capability: string, code: Code, words: string): void {
    this.#refused++;
    const refused = {
      actor: agent,
      action: 'message.refused',
      subject: capability,
      outcome: 'refused',
      code,
      verdict: null,
      words,
      via: '',
    } as const;
    this.#sums.add(`${code} ${agent} ${capability} message`, refused);
  }

  flush(): void {
    this.#sums.flush();
  }

  #add(call: Call, verdict: Verdict, outcome: 'refused' | 'audited', code: number): void {
    const { principal, capability, way } = call;
    const action = way === 'message' ? 'message' : way === 'mesh' ? 'mesh' : 'call';
    const actor = principal?.agent ?? '';
    // Before it has a name the caller's own words would stand here, any of them. What was let in may have gone on to another one.
    const subject = outcome === 'audited' && typeof verdict.b === 'string' ? verdict.b : (capability?.name ?? '');
    const { stage, name } = verdict.reason;
    const key = `${outcome} ${code} ${action} ${actor} ${subject} ${stage}.${name}`;
    this.#sums.add(key, {
      actor,
      action: `${action}.${outcome}`,
      subject,
      outcome,
      code,
      verdict,
      words: '',
      via: principal?.via ?? '',
    });
  }

  #tell({ actor, action, subject, outcome, code, verdict, words, via }: Refused, count: number, sinceMs: number): void {
    const reason = verdict === null ? words : wordsOf(verdict.reason, verdict.a, verdict.b, verdict.c);
    const rule = verdict === null ? '' : `${verdict.reason.stage}.${verdict.reason.name}`;
    const said: AuditSaid = { actor, role: 'agent', action, subject, reason, outcome, code, count, sinceMs, detail: { rule, via } };
    const line = { audit: { actor, action, subject, code, count, rule, via, reason: printable(reason, 500) } };
    if (outcome === 'audited') this.#log.warn(line, 'would be refused, and is let in: this is in audit');
    else this.#log.info(line, 'refused by policy');
    this.to?.(said);
  }
}

/** Who somebody is, what he may, what operators have forbidden or allotted; not what is merely wrong, late or broken. */
function isPolicy({ reason: { stage, code } }: Verdict): boolean {
  return stage === 'acl' || stage === 'identify' || stage === 'overrides' || stage === 'quotas' || code === Code.forbidden;
}
