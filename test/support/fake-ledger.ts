/** The ledger in memory, on the test's clock: leases that lapse, fences, and a switch for every way in which it can fail. */
import type { Clock } from '../../base/clock.ts';
import type { Claim, ClaimAsk, Claimed, KeptResult, LostBy, TaskLedger } from '../../sidecar/ledger/ledger.ts';

interface Entry {
  state: 'executing' | 'done' | 'released' | 'unknown';
  ask: ClaimAsk;
  tries: number;
  revision: number;
  leaseEnds: number;
  result: KeptResult | null;
  claim: FakeClaim | null;
  ended: boolean;
}

export class FakeLedger implements TaskLedger {
  readonly clock: Clock;
  readonly entries = new Map<string, Entry>();
  readonly log: string[] = [];
  leaseMs = 15_000;
  /** Claims answer so. */
  broken: 'no' | 'full' | 'unreachable' = 'no';
  /** So many claims are answered when their lease is over: the process stood still meanwhile. */
  stale = 0;
  /** Called when a claim is asked for, before it is answered. */
  onClaim: (ask: ClaimAsk) => Promise<void> = () => Promise.resolve();

  constructor(clock: Clock) {
    this.clock = clock;
  }

  async claim(ask: ClaimAsk, tries = 0): Promise<Claimed> {
    await this.onClaim(ask);
    this.log.push(`claim ${ask.taskId}`);
    if (this.broken !== 'no') return { kind: this.broken, why: 'as the test says' };
    const known = this.entries.get(ask.id);
    if (known !== undefined && known.ask.payloadHash !== ask.payloadHash) return { kind: 'reused', why: 'another payload' };
    if (known?.state === 'done') return { kind: 'done', result: known.result as KeptResult, taskId: known.ask.taskId };
    if (known?.state === 'released' && known.ended && known.ask.taskId === ask.taskId) return { kind: 'ended' };
    if (known?.state === 'unknown') return this.#doubt(known, false);
    if (known?.state === 'executing') {
      const left = known.leaseEnds - this.clock.now();
      if (left > 0 && known.claim?.dead !== true)
        return { kind: 'executing', againInMs: Math.min(left, 1_000), taskId: known.ask.taskId, worker: known.ask.worker };
      if (left > 0) return { kind: 'executing', againInMs: left, taskId: known.ask.taskId, worker: known.ask.worker };
      if (ask.execution === 'once') {
        known.state = 'unknown';
        known.revision++;
        return this.#doubt(known, true);
      }
    }
    const revision = (known?.revision ?? 0) + 1;
    const entry: Entry = {
      state: 'executing',
      ask,
      tries: Math.max(known !== undefined && (known.state !== 'released' || known.ask.taskId === ask.taskId) ? known.tries : 0, tries) + 1,
      revision,
      leaseEnds: this.clock.now() + this.leaseMs,
      result: null,
      claim: null,
      ended: false,
    };
    known?.claim?.lose();
    entry.claim = new FakeClaim(this, entry, revision);
    if (this.stale > 0) {
      this.stale--;
      entry.claim.isStale = true;
    }
    this.entries.set(ask.id, entry);
    return { kind: 'claimed', claim: entry.claim };
  }

  look(): Promise<Claimed | null> {
    return Promise.resolve(null);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  /** What others have left under a key; a lease that it has is over after its time. */
  put(id: string, ask: Partial<ClaimAsk>, state: Entry['state'], tries: number): void {
    const whole: ClaimAsk = {
      id,
      caller: '',
      capability: '',
      version: '',
      payloadHash: '',
      execution: 'once',
      key: '',
      taskId: '',
      worker: '',
      ...ask,
    };
    const leaseEnds = this.clock.now() + this.leaseMs;
    this.entries.set(id, { state, ask: whole, tries, revision: 1, leaseEnds, result: null, claim: null, ended: false });
  }

  /** The worker of this key dies: nothing extends the claim any more. */
  kill(id: string): void {
    const entry = this.entries.get(id);
    if (entry?.claim != null) entry.claim.dead = true;
  }

  /** Claims whose holders still work on them. */
  get open(): number {
    let sum = 0;
    for (const { state } of this.entries.values()) if (state === 'executing') sum++;
    return sum;
  }

  #doubt(entry: Entry, moved: boolean): Claimed {
    return { kind: 'in_doubt', moved, taskId: entry.ask.taskId, tries: entry.tries, worker: entry.ask.worker };
  }
}

class FakeClaim implements Claim {
  readonly id: string;
  readonly tries: number;
  isHeld = true;
  dead = false;
  /** Its lease was over before whoever asked for it had the answer. */
  isStale = false;
  onLost: ((by: LostBy) => void) | null = null;
  readonly #ledger: FakeLedger;
  readonly #entry: Entry;
  readonly #revision: number;

  constructor(ledger: FakeLedger, entry: Entry, revision: number) {
    this.id = entry.ask.id;
    this.tries = entry.tries;
    this.#ledger = ledger;
    this.#entry = entry;
    this.#revision = revision;
    this.#extend();
  }

  #extend(): void {
    this.#ledger.clock.after(this.#ledger.leaseMs / 3, () => {
      if (!this.isHeld || this.dead || this.#entry.state !== 'executing') return;
      this.#entry.leaseEnds = this.#ledger.clock.now() + this.#ledger.leaseMs;
      this.#extend();
    });
  }

  lose(): void {
    if (!this.isHeld) return;
    this.isHeld = false;
    this.onLost?.('fenced');
  }

  abandon(): void {
    this.isHeld = false;
  }

  get held(): boolean {
    return this.isHeld && !this.isStale;
  }

  #isOurs(): boolean {
    return this.isHeld && this.#ledger.entries.get(this.id) === this.#entry && this.#entry.revision === this.#revision;
  }

  async done(result: KeptResult): Promise<'stored' | 'too_large' | 'fenced' | 'unreachable'> {
    await Promise.resolve();
    this.#ledger.log.push(`done ${this.#entry.ask.taskId}`);
    if (!this.#isOurs()) return 'fenced';
    this.#settle('done');
    this.#entry.result = { ...result, body: Buffer.from(result.body) };
    return 'stored';
  }

  async release(countsAsTry: boolean): Promise<boolean> {
    await Promise.resolve();
    this.#ledger.log.push(`release ${this.#entry.ask.taskId}${countsAsTry ? ' (a try)' : ''}`);
    if (!this.#isOurs()) return false;
    this.#settle('released');
    if (!countsAsTry) this.#entry.tries--;
    return true;
  }

  async ended(): Promise<boolean> {
    if (!(await this.release(true))) return false;
    this.#entry.ended = true;
    return true;
  }

  async unknown(): Promise<boolean> {
    await Promise.resolve();
    this.#ledger.log.push(`unknown ${this.#entry.ask.taskId}`);
    if (!this.#isOurs()) return false;
    this.#settle('unknown');
    return true;
  }

  #settle(state: 'done' | 'released' | 'unknown'): void {
    this.isHeld = false;
    this.#entry.state = state;
  }
}
