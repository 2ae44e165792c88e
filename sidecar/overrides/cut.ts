/**
 * Ends at once what is under way when a block that says `cut` comes into force: calls and streams, at the caller's end and
 * where the provider is hosted, each as blocked (2006) with the rule in words. A stream ends with its error event. It looks
 * once for each rule, when the table that holds it is installed: nothing that the rule covers begins after that.
 */
import { coversAgent, coversName } from '../../proto/language/covers.ts';
import { isInForce, signatureOf } from '../../proto/language/override-words.ts';
import type { Override } from '../../proto/language/types.ts';
import type { Clock } from '../../base/clock.ts';
import type { Underway, Work } from '../call/underway.ts';
import type { Table } from '../table/snapshot.ts';

export class Cutter {
  readonly #table: Table;
  readonly #underway: Underway;
  readonly #clock: Clock;
  /** Those that have cut already. */
  #done: ReadonlySet<string> = new Set();
  /** Calls and streams that were cut since start. */
  cut = 0;

  constructor(table: Table, underway: Underway, clock: Clock) {
    this.#table = table;
    this.#underway = underway;
    this.#clock = clock;
  }

  /** A table has been installed. */
  look(): void {
    const { overrides } = this.#table.current();
    if (overrides.length === 0 && this.#done.size === 0) return;
    const now = this.#clock.wallMs();
    const cutting = overrides.filter((rule) => rule.cut && rule.action === 'block' && isInForce(rule, now));
    const fresh = cutting.filter((rule) => !this.#done.has(keyOf(rule)));
    this.#done = new Set(cutting.map(keyOf));
    if (fresh.length === 0) return;
    for (const work of this.#underway.all()) {
      const rule = fresh.find((one) => covers(one, work));
      if (rule === undefined || work.call.cancelled || work.call.settled) continue;
      this.cut++;
      work.call.cut(`override ${rule.name} cuts it: ${rule.reason} (by ${signatureOf(rule)})`);
    }
  }
}

/** One that was lifted and made again cuts again. */
function keyOf({ name, capability, provider, caller, expiresAtMs }: Override): string {
  return JSON.stringify([name, capability, provider, caller, expiresAtMs === null]);
}

function covers(rule: Override, { call, agentId }: Work): boolean {
  return (
    coversName(rule.capability, call.capability?.name ?? '') &&
    (rule.caller === null || (call.principal !== null && coversAgent(rule.caller, call.principal.agent))) &&
    coversAgent(rule.provider, agentId)
  );
}
