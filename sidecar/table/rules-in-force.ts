/**
 * The rules that count at this sidecar: compiled when they are pushed, counted when they decide, and the last messages as
 * rules saw them, for a dry run of other rules. A pushed set that the language would not have made is refused as a whole,
 * visibly, and the one before it stays. Counts begin anew with every other set of rules, so that they always speak of the
 * rules that are in force; a roll-out that ends in the same rules for everybody does not begin anew.
 */
import type { Clock } from '../../base/clock.ts';
import { BAD, openSource, Place } from '../../proto/language/reader.ts';
import { NO_RULES, type Rule, type RuleSet, type RuleSubject } from '../../proto/language/rule.ts';
import { rereadRules } from '../../proto/language/rule-reading.ts';
import { compileRules } from '../../proto/language/rule-tree.ts';
import type { RecordedMessage, RulesState } from '../../proto/wire/messages.ts';
import type { RulesReport } from '../../proto/wire/registry.ts';
import type { RulesTail } from './work-view.ts';

/** Messages that are remembered, as rules saw them. */
const REMEMBERED = 1_000;
/** Of an answer that tells them: far below what a server takes. */
const MAX_ANSWER_BYTES = 393_216;

export class RulesInForce {
  readonly #tail: RulesTail;
  readonly #clock: Clock;
  #set: RuleSet = NO_RULES;
  #text = '[]';
  #sinceMs: number;
  #messages = 0;
  readonly #hits = new Map<string, number>();
  /** A ring; what is not written yet is absent. */
  readonly #subjects: RuleSubject[] = [];
  readonly #rules: (string | null)[] = [];
  #next = 0;

  constructor(tail: RulesTail, clock: Clock) {
    this.#tail = tail;
    this.#clock = clock;
    this.#sinceMs = clock.now();
    tail.tryOut = problemOf;
    tail.onChange(() => this.#changed());
  }

  current(): RuleSet {
    return this.#set;
  }

  /** A message was accepted, or refused by a rule. @param rule the one that decided; null = none. */
  decided(subject: RuleSubject, rule: string | null): void {
    this.#messages++;
    if (rule !== null) this.#hits.set(rule, (this.#hits.get(rule) ?? 0) + 1);
    this.#subjects[this.#next] = subject;
    this.#rules[this.#next] = rule;
    this.#next = (this.#next + 1) % REMEMBERED;
  }

  /** Messages since these rules came into force, and how many of them each rule decided. */
  get messages(): number {
    return this.#messages;
  }

  get hits(): ReadonlyMap<string, number> {
    return this.#hits;
  }

  /** Which ones count here. */
  get standing(): Pick<RulesReport, 'version' | 'staged'> {
    return this.#tail.inForce();
  }

  report(): RulesReport {
    const { version, staged } = this.standing;
    return {
      version,
      staged,
      seq: Math.max(0, this.#tail.seq),
      forMs: Math.round(this.#clock.now() - this.#sinceMs),
      messages: this.#messages,
      hits: Object.fromEntries(this.#hits),
    };
  }

  /** The last ones, newest first. */
  recorded(limit: number): readonly RecordedMessage[] {
    const recorded: RecordedMessage[] = [];
    const count = Math.min(limit, this.#subjects.length);
    let bytes = 0;
    for (let i = 1; i <= count; i++) {
      const at = (this.#next - i + REMEMBERED) % REMEMBERED;
      const subject = this.#subjects[at];
      if (subject === undefined) break;
      const one = recordedOf(subject, this.#rules[at] ?? null);
      bytes += JSON.stringify(one).length + 1;
      if (bytes > MAX_ANSWER_BYTES) break;
      recorded.push(one);
    }
    return recorded;
  }

  #changed(): void {
    const { version, rules } = this.#tail.inForce();
    this.#set = compileRules(rules, version);
    const text = JSON.stringify(rules);
    if (text === this.#text) return;
    this.#text = text;
    this.#sinceMs = this.#clock.now();
    this.#messages = 0;
    this.#hits.clear();
  }
}

/** What comes over the wire is read again, and what is wrong is named as if it stood in a file. */
function problemOf({ rules, staged }: RulesState): string | null {
  return problemIn(rules) ?? (staged === null ? null : problemIn(staged.rules));
}

function problemIn(rules: readonly Rule[]): string | null {
  const { source } = openSource('[]', 'rules');
  if (rereadRules(rules, new Place(source)) !== BAD) return null;
  const { path, message } = source.problems[0] ?? { path: '', message: 'it cannot be read' };
  return `${path === '' ? 'rules' : `rule ${path.split('/')[1] ?? ''}`}: ${message}`;
}

function recordedOf({ messageType, sourceRole, targetRole, capability, tags }: RuleSubject, rule: string | null): RecordedMessage {
  return { message_type: messageType, source_role: sourceRole, target_role: targetRole, capability, tags, rule };
}
