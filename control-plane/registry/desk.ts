/**
 * Where operators' documents are taken: applied, staged, widened, promoted, stopped. Each is judged whole before anything
 * changes, and says what differs from the one in force.
 */
import { shareOf } from '../../proto/language/share.ts';
import type { Problem } from '../../proto/language/types.ts';
import type { Report } from '../../proto/wire/registry.ts';
import { type DocumentDiff, diffDocuments, NO_DIFF } from '../rules/diff.ts';
import { type DocumentReading, EMPTY_DOCUMENT, type OperatorsDocument, readOperatorsDocument } from '../rules/document.ts';
import { aborted, applied, type Concerned, keysFor, keysOf, RolloutWatch, RULES_KEY, staged, withRollout } from '../rules/rollout.ts';
import { Touch } from './marks.ts';
import { type AppliedDocument, noPolicies, type OperatorsState, type PoliciesState, type Rollout } from './operators.ts';
import { QuotaDesk } from '../quotas/desk.ts';
import { ShiftDesk } from '../shifts/desk.ts';
import { SettingsDesk } from './settings-desk.ts';
import type { RegistryState } from './state.ts';
import type { RolloutView } from './views.ts';
import { lostContracts, worldOf } from './world.ts';

export interface ApplyOptions {
  readonly author: string;
  readonly note?: string;
  /** Null or 1 = everybody at once. */
  readonly share?: number | null;
  /** Last sequence of AR_CFG at this moment: refusals of later messages count against a roll-out. */
  readonly lastSeq?: number;
  /** Name of the file, for the problems. */
  readonly file?: string;
}

/** What came of an operators' document, but for the change. */
export interface DeskOutcome {
  readonly ok: boolean;
  /** Why nothing was applied, each with its line and column. */
  readonly problems: readonly Problem[];
  /** What looks like a slip but may come true later (a name that nobody has registered yet). */
  readonly warnings: readonly Problem[];
  readonly diff: DocumentDiff;
  /** The entry for the history (`ops.policies`); null when nothing was applied. */
  readonly entry: AppliedDocument | null;
}

const DEFAULT_FILE = 'policies.yaml';

export class Desk {
  readonly #state: RegistryState;
  readonly settings: SettingsDesk;
  readonly quotas: QuotaDesk;
  readonly shifts: ShiftDesk;
  #policies: PoliciesState = noPolicies('');
  #watch: RolloutWatch | null = null;
  /** What the roll-out that runs changes. */
  #stagedKeys = new Set<string>();

  constructor(state: RegistryState) {
    this.#state = state;
    this.settings = new SettingsDesk(state);
    this.quotas = new QuotaDesk(state);
    this.shifts = new ShiftDesk(state, this.settings);
  }

  get operators(): OperatorsState {
    return {
      policies: this.#policies,
      providers: this.settings.providers,
      canary: this.settings.canary,
      quotas: this.quotas.stored,
      shifts: this.shifts.stored,
    };
  }

  /** @returns what keeps it from being used. */
  load(operators: OperatorsState): string[] {
    this.#policies = operators.policies;
    this.settings.load(operators);
    this.quotas.load(operators.quotas);
    this.shifts.load(operators.shifts);
    const { active, staged: rollout } = operators.policies;
    const troubles: string[] = [];
    this.#state.active = this.#reread(active, troubles);
    this.#state.staged = null;
    this.#watch = null;
    if (rollout !== null && rollout.halted === '') {
      this.#state.staged = this.#reread(rollout, troubles);
      this.#begin(rollout);
    }
    return troubles;
  }

  /** A document that was judged when it was applied: only its form is read again. */
  #reread(entry: AppliedDocument | null, troubles: string[]): OperatorsDocument {
    if (entry === null) return EMPTY_DOCUMENT;
    const reading = readOperatorsDocument(entry.text, `version ${entry.version}`, null);
    if (reading.document === null)
      troubles.push(
        `version ${entry.version} of the operators' document, which is in force, cannot be read: ${reading.problems[0]?.message ?? ''}`,
      );
    return reading.document ?? EMPTY_DOCUMENT;
  }

  preview(text: string, file = DEFAULT_FILE): DeskOutcome {
    const reading = this.read(text, file);
    const diff = reading.document === null ? NO_DIFF : diffDocuments(this.#state.active, reading.document);
    return { ok: reading.document !== null, problems: reading.problems, warnings: reading.warnings, diff, entry: null };
  }

  apply(text: string, options: ApplyOptions): DeskOutcome {
    const file = options.file ?? DEFAULT_FILE;
    const reading = this.read(text, file);
    const { document, problems } = reading;
    const refuse = (message: string, diff = NO_DIFF): DeskOutcome => ({
      ok: false,
      problems: [...problems, wholeFile(file, message)],
      warnings: reading.warnings,
      diff,
      entry: null,
    });
    if (document === null) return { ok: false, problems, warnings: reading.warnings, diff: NO_DIFF, entry: null };
    const policies = this.#policies;
    const share = options.share ?? 1;
    if (!(share > 0 && share <= 1)) return refuse(`the share ${share} is not above 0 and up to 1`);
    if (policies.staged !== null && policies.staged.halted === '')
      return refuse(`version ${policies.staged.version} is being rolled out by ${policies.staged.author}: promote or abort it first`);
    const diff = diffDocuments(this.#state.active, document);
    if (policies.active?.text === text && policies.staged === null)
      return { ok: true, problems, warnings: reading.warnings, diff, entry: null };
    const entry: AppliedDocument = {
      version: policies.last + 1,
      author: options.author,
      atMs: this.#state.clock.wallMs(),
      text,
      note: options.note ?? '',
    };
    if (share === 1) this.#activate(entry, document, diff);
    else this.#stage({ ...entry, share, fromSeq: options.lastSeq ?? 0, halted: '' }, document, diff);
    const warnings = [...reading.warnings, ...lostContracts(this.#state, document).map((message) => wholeFile(file, message))];
    if (share < 1 && this.#expected().length === 0)
      warnings.push(
        wholeFile(file, `no sidecar that is up and that this concerns is in the share of ${share}: nobody tries it until it is widened`),
      );
    return { ok: true, problems: [], warnings, diff, entry };
  }

  #activate(entry: AppliedDocument, document: OperatorsDocument, diff: DocumentDiff): void {
    const before = this.#state.active;
    const keys = keysOf(diff);
    this.#policies = applied(this.#policies, entry, keys);
    this.#state.active = document;
    this.#state.staged = null;
    this.#watch = null;
    this.#state.marks.operators('policies');
    this.settings.documentChanged(before, document);
    this.#touch(keys, diff);
  }

  #stage(rollout: Rollout, document: OperatorsDocument, diff: DocumentDiff): void {
    this.#policies = staged(this.#policies, rollout);
    this.#state.staged = document;
    this.#begin(rollout);
    this.#state.marks.operators('policies');
    this.#touch(this.#stagedKeys, diff);
  }

  #begin(rollout: Rollout): void {
    this.#watch = new RolloutWatch(rollout, this.#state.clock.now());
    this.#stagedKeys = keysOf(diffDocuments(this.#state.active, this.#state.staged ?? EMPTY_DOCUMENT));
  }

  /** Everything that a document's change reaches. */
  #touch(keys: ReadonlySet<string>, diff: DocumentDiff): void {
    const isScoping = ({ what, fields }: DocumentDiff['entries'][number]): boolean =>
      what.startsWith('contract ') || fields.some(({ field }) => field === 'fallback' || field === 'acl_mode');
    const scoping = keysOf({ entries: diff.entries.filter(isScoping), lines: [] });
    const touch = new Touch();
    const rescoped: string[] = [];
    const names = this.#state.names();
    for (const key of keys) if (key.startsWith('contract:')) names.add(key.slice('contract:'.length));
    for (const name of names) {
      const own = keysFor(name);
      if (own.some((key) => scoping.has(key))) rescoped.push(name);
      else if (own.some((key) => keys.has(key))) touch.capabilities.add(name);
    }
    this.#state.marks.atOnce(touch);
    this.#state.marks.atOnce(this.#state.saidChanged(rescoped));
  }

  promote(isForced: boolean): string | null {
    const policies = this.#policies;
    const rollout = policies.staged;
    const document = this.#state.staged;
    if (rollout === null) return 'no roll-out runs';
    if (rollout.halted !== '' || document === null) return `the roll-out of version ${rollout.version} was halted: ${rollout.halted}`;
    const missing = this.view()?.missing ?? [];
    if (!isForced && missing.length > 0)
      return `version ${rollout.version} is not in force yet on ${missing.length} of the sidecars in its share: ${missing.slice(0, 10).join(', ')}`;
    this.#activate(rollout, document, diffDocuments(this.#state.active, document));
    return null;
  }

  abort(): string | null {
    const rollout = this.#policies.staged;
    if (rollout === null) return 'no roll-out runs';
    this.#unstage();
    this.#policies = aborted(this.#policies);
    this.#state.marks.operators('policies');
    return null;
  }

  widen(share: number): string | null {
    const rollout = this.#policies.staged;
    if (rollout === null || this.#watch === null)
      return rollout === null ? 'no roll-out runs' : `the roll-out was halted: ${rollout.halted}`;
    if (!(share > rollout.share && share < 1))
      return `the share is ${rollout.share}: a wider one is above that and below 1 (promote ends the roll-out)`;
    this.#policies = withRollout(this.#policies, { share });
    this.#watch = this.#watch.widened(this.#policies.staged as Rollout, this.#state.clock.now());
    this.#state.marks.operators('policies');
    this.#touch(this.#stagedKeys, NO_DIFF);
    return null;
  }

  #unstage(): void {
    if (this.#state.staged === null) return;
    const diff = diffDocuments(this.#state.active, this.#state.staged);
    this.#state.staged = null;
    this.#watch = null;
    this.#touch(keysOf(diff), diff);
  }

  report(report: Report): void {
    this.#watch?.note(report);
    this.judge();
  }

  /** Stops a roll-out that goes wrong. */
  judge(): void {
    if (this.#watch === null) return;
    const { rollout } = this.#watch;
    const trouble = this.#watch.trouble(this.#expected(), this.#state.clock.now());
    if (trouble === null) return;
    this.#unstage();
    this.#policies = withRollout(this.#policies, { halted: trouble });
    this.#state.marks.operators('policies');
    const words = `the roll-out of version ${rollout.version} was halted: ${trouble}`;
    this.#state.marks.event({ kind: 'rollout-halted', agent: '', sidecar: '', why: '', words });
  }

  /** Sidecars that are up, in the share, and have to do with what the roll-out changes. */
  #expected(): Concerned[] {
    const rollout = this.#policies.staged;
    if (rollout === null) return [];
    const affected = new Set([...this.#state.names()].filter((name) => keysFor(name).some((key) => this.#stagedKeys.has(key))));
    const rules = this.#stagedKeys.has(RULES_KEY);
    const expected: Concerned[] = [];
    for (const sidecar of this.#state.sidecars.values()) {
      const isUp = sidecar.leftAt === null && this.#state.clock.now() - sidecar.lastSignAt() < this.#state.times.offlineMs;
      if (!isUp || shareOf(sidecar.name) >= rollout.share) continue;
      const policies = this.#state.scopes.of(sidecar.name).some((name) => affected.has(name));
      if (policies || rules) expected.push({ sidecar: sidecar.name, policies, rules });
    }
    return expected.sort((a, b) => (a.sidecar < b.sidecar ? -1 : 1));
  }

  view(): RolloutView | null {
    const rollout = this.#policies.staged;
    if (rollout === null) return null;
    const { version, share, author, atMs, note, halted } = rollout;
    const watch = this.#watch;
    const expected = watch === null ? [] : this.#expected();
    const using = expected.filter((each) => watch?.isInForce(each) === true);
    const inForce = using.map(({ sidecar }) => sidecar);
    const missing = expected.filter((each) => !using.includes(each)).map(({ sidecar }) => sidecar);
    return {
      version,
      share,
      author,
      atMs,
      note,
      halted,
      expected: expected.map(({ sidecar }) => sidecar),
      inForce,
      missing,
      refusals: watch?.refusals ?? [],
    };
  }

  /** Judged against everything that is registered; nothing is changed. */
  read(text: string, file: string): DocumentReading {
    return readOperatorsDocument(text, file, worldOf(this.#state));
  }
}

function wholeFile(file: string, message: string): Problem {
  return { file, line: 0, column: 0, path: '', message };
}
