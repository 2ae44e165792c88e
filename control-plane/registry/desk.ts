/**
 * Where operators' orders are taken: their document (applied, staged, promoted, stopped), one provider's drain and weight,
 * a capability's canary shift. Every order is judged whole before anything changes, and says what it would touch.
 */
import { nearest } from '../../base/suggest.ts';
import { shareOf } from '../../proto/language/share.ts';
import { MAX_WEIGHT } from '../../proto/language/provider.ts';
import type { Contract, Problem } from '../../proto/language/types.ts';
import type { Report } from '../../proto/wire/registry.ts';
import { type DocumentDiff, diffDocuments, NO_DIFF } from '../rules/diff.ts';
import { type DocumentReading, EMPTY_DOCUMENT, type OperatorsDocument, readOperatorsDocument, type World } from '../rules/document.ts';
import { aborted, applied, keysFor, keysOf, RolloutWatch, staged, withRollout } from '../rules/rollout.ts';
import { labelOf } from './contracts.ts';
import { differingInterface, versionProblems } from './guard.ts';
import { Touch } from './marks.ts';
import { type AppliedDocument, noOperators, type OperatorsState, type ProviderSetting, type Rollout } from './operators.ts';
import type { RegistryState } from './state.ts';
import type { RolloutView } from './views.ts';

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
  #operators: OperatorsState = noOperators('');
  #watch: RolloutWatch | null = null;
  /** What the roll-out that runs changes. */
  #stagedKeys = new Set<string>();

  constructor(state: RegistryState) {
    this.#state = state;
  }

  get operators(): OperatorsState {
    return this.#operators;
  }

  /** @returns what keeps it from being used. */
  load(operators: OperatorsState): string[] {
    this.#operators = operators;
    const { active, staged: rollout } = operators.policies;
    const troubles: string[] = [];
    this.#state.active = this.#reread(active, troubles);
    this.#state.settings = operators.providers.providers;
    this.#state.canary = operators.canary.canary;
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
      troubles.push(`version ${entry.version} of the operators' document, which is in force, cannot be read: ${reading.problems[0]?.message ?? ''}`);
    return reading.document ?? EMPTY_DOCUMENT;
  }

  preview(text: string, file = DEFAULT_FILE): DeskOutcome {
    const reading = this.#read(text, file);
    const diff = reading.document === null ? NO_DIFF : diffDocuments(this.#state.active, reading.document);
    return { ok: reading.document !== null, problems: reading.problems, warnings: reading.warnings, diff, entry: null };
  }

  apply(text: string, options: ApplyOptions): DeskOutcome {
    const file = options.file ?? DEFAULT_FILE;
    const reading = this.#read(text, file);
    const { document, problems } = reading;
    const refuse = (message: string, diff = NO_DIFF): DeskOutcome => ({ ok: false, problems: [...problems, wholeFile(file, message)], warnings: reading.warnings, diff, entry: null });
    if (document === null) return { ok: false, problems, warnings: reading.warnings, diff: NO_DIFF, entry: null };
    const { policies } = this.#operators;
    const share = options.share ?? 1;
    if (!(share > 0 && share <= 1)) return refuse(`the share ${share} is not above 0 and up to 1`);
    if (policies.staged !== null && policies.staged.halted === '')
      return refuse(`version ${policies.staged.version} is being rolled out by ${policies.staged.author}: promote or abort it first`);
    const diff = diffDocuments(this.#state.active, document);
    if (policies.active?.text === text && policies.staged === null) return { ok: true, problems, warnings: reading.warnings, diff, entry: null };
    const entry: AppliedDocument = {
      version: policies.last + 1,
      author: options.author,
      atMs: this.#state.clock.wallMs(),
      text,
      note: options.note ?? '',
    };
    if (share === 1) this.#activate(entry, document, diff);
    else this.#stage({ ...entry, share, fromSeq: options.lastSeq ?? 0, halted: '' }, document, diff);
    const warnings = [...reading.warnings, ...this.#lostContracts(document, file)];
    if (share < 1 && this.#expected().length === 0)
      warnings.push(wholeFile(file, `no sidecar that is up and that this concerns is in the share of ${share}: nobody tries it until it is widened`));
    return { ok: true, problems: [], warnings, diff, entry };
  }

  #activate(entry: AppliedDocument, document: OperatorsDocument, diff: DocumentDiff): void {
    const before = this.#state.active;
    const keys = keysOf(diff);
    this.#operators = { ...this.#operators, policies: applied(this.#operators.policies, entry, keys) };
    this.#state.active = document;
    this.#state.staged = null;
    this.#watch = null;
    this.#state.marks.operators('policies');
    this.#dropShifts(before, document);
    this.#touch(keys, diff);
  }

  #stage(rollout: Rollout, document: OperatorsDocument, diff: DocumentDiff): void {
    this.#operators = { ...this.#operators, policies: staged(this.#operators.policies, rollout) };
    this.#state.staged = document;
    this.#begin(rollout);
    this.#state.marks.operators('policies');
    this.#touch(this.#stagedKeys, diff);
  }

  #begin(rollout: Rollout): void {
    this.#watch = new RolloutWatch(rollout, this.#state.clock.now());
    this.#stagedKeys = keysOf(diffDocuments(this.#state.active, this.#state.staged ?? EMPTY_DOCUMENT));
  }

  /** The file speaks anew about a canary: the shift that was made by hand has had its time. */
  #dropShifts(before: OperatorsDocument, after: OperatorsDocument): void {
    const canaryOf = (document: OperatorsDocument, name: string): string =>
      JSON.stringify(document.policies.find((policy) => policy.capability === name)?.canary ?? null);
    const kept = Object.entries(this.#state.canary).filter(([name]) => canaryOf(before, name) === canaryOf(after, name));
    if (kept.length === Object.keys(this.#state.canary).length) return;
    this.#setCanary(Object.fromEntries(kept));
  }

  #setCanary(canary: OperatorsState['canary']['canary']): void {
    this.#state.canary = canary;
    this.#operators = { ...this.#operators, canary: { ...this.#operators.canary, canary } };
    this.#state.marks.operators('canary');
  }

  /** Everything that a document's change reaches. */
  #touch(keys: ReadonlySet<string>, diff: DocumentDiff): void {
    const isScoping = ({ what, fields }: DocumentDiff['entries'][number]): boolean =>
      what.startsWith('contract ') || fields.some(({ field }) => field === 'fallback');
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
    const { policies } = this.#operators;
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
    const rollout = this.#operators.policies.staged;
    if (rollout === null) return 'no roll-out runs';
    this.#unstage();
    this.#operators = { ...this.#operators, policies: aborted(this.#operators.policies) };
    this.#state.marks.operators('policies');
    return null;
  }

  widen(share: number): string | null {
    const rollout = this.#operators.policies.staged;
    if (rollout === null || this.#watch === null) return rollout === null ? 'no roll-out runs' : `the roll-out was halted: ${rollout.halted}`;
    if (!(share > rollout.share && share < 1)) return `the share is ${rollout.share}: a wider one is above that and below 1 (promote ends the roll-out)`;
    this.#operators = { ...this.#operators, policies: withRollout(this.#operators.policies, { share }) };
    this.#watch = this.#watch.widened(this.#operators.policies.staged as Rollout, this.#state.clock.now());
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
    this.#operators = { ...this.#operators, policies: withRollout(this.#operators.policies, { halted: trouble }) };
    this.#state.marks.operators('policies');
    const words = `the roll-out of version ${rollout.version} was halted: ${trouble}`;
    this.#state.marks.event({ kind: 'rollout-halted', agent: '', sidecar: '', why: '', words });
  }

  /** Sidecars that are up, in the share, and have to do with what the roll-out changes. */
  #expected(): string[] {
    const rollout = this.#operators.policies.staged;
    if (rollout === null) return [];
    const affected = new Set([...this.#state.names()].filter((name) => keysFor(name).some((key) => this.#stagedKeys.has(key))));
    const expected: string[] = [];
    for (const sidecar of this.#state.sidecars.values()) {
      const isUp = sidecar.leftAt === null && this.#state.clock.now() - sidecar.lastSignAt() < this.#state.times.offlineMs;
      if (isUp && shareOf(sidecar.name) < rollout.share && this.#state.scopes.of(sidecar.name).some((name) => affected.has(name))) expected.push(sidecar.name);
    }
    return expected.sort();
  }

  view(): RolloutView | null {
    const rollout = this.#operators.policies.staged;
    if (rollout === null) return null;
    const { version, share, author, atMs, note, halted } = rollout;
    const watch = this.#watch;
    const expected = watch === null ? [] : this.#expected();
    const inForce = expected.filter((sidecar) => watch?.isInForce(sidecar) === true);
    const missing = expected.filter((sidecar) => watch?.isInForce(sidecar) !== true);
    return { version, share, author, atMs, note, halted, expected, inForce, missing, refusals: watch?.refusals ?? [] };
  }

  setProvider(agentId: string, setting: { readonly drain?: boolean | null; readonly weight?: number | null }): string | null {
    const before = Object.hasOwn(this.#state.settings, agentId) ? this.#state.settings[agentId] : undefined;
    const entry = this.#state.entryOf(agentId);
    if (entry === undefined && before === undefined) {
      const near = nearest(agentId, this.#state.byAgent.keys());
      return `no provider is called ${agentId}${near === null ? '' : `; did you mean ${near}?`}`;
    }
    const { weight } = setting;
    if (weight !== undefined && weight !== null && !(weight >= 0 && weight <= MAX_WEIGHT)) return `a weight is a number from 0 to ${MAX_WEIGHT}, not ${weight}`;
    const after: ProviderSetting = {
      drain: setting.drain === undefined ? (before?.drain ?? null) : setting.drain,
      weight: weight === undefined ? (before?.weight ?? null) : weight,
    };
    if (after.drain === (before?.drain ?? null) && after.weight === (before?.weight ?? null)) return null;
    const providers: Record<string, ProviderSetting> = { ...this.#state.settings };
    if (after.drain === null && after.weight === null) delete providers[agentId];
    else providers[agentId] = after;
    this.#state.settings = providers;
    this.#operators = { ...this.#operators, providers: { ...this.#operators.providers, providers } };
    this.#state.marks.operators('providers');
    const touch = new Touch();
    for (const { name } of entry?.record.offers ?? []) touch.capabilities.add(name);
    this.#state.marks.atOnce(touch);
    return null;
  }

  shiftCanary(capability: string, shares: Readonly<Record<string, number>> | null): string | null {
    const { canary } = this.#state;
    const had = Object.hasOwn(canary, capability);
    if (shares === null) {
      if (!had) return null;
      this.#setCanary(Object.fromEntries(Object.entries(canary).filter(([name]) => name !== capability)));
    } else {
      const problem = this.#canaryProblem(capability, shares);
      if (problem !== null) return problem;
      if (had && JSON.stringify(canary[capability]) === JSON.stringify(shares)) return null;
      this.#setCanary({ ...canary, [capability]: { ...shares } });
    }
    const touch = new Touch();
    touch.capabilities.add(capability);
    this.#state.marks.atOnce(touch);
    return null;
  }

  #canaryProblem(capability: string, shares: Readonly<Record<string, number>>): string | null {
    if (!this.#state.knows(capability)) {
      const meant = this.#state.canonical(capability);
      if (meant !== capability) return `${capability} is an alias: write ${meant}`;
      const near = nearest(capability, this.#state.names());
      return `no capability is called ${capability}${near === null ? '' : `; did you mean ${near}?`}`;
    }
    const versions = new Set(this.#contractsOf(capability).map((contract) => contract.version));
    let total = 0;
    for (const [version, share] of Object.entries(shares)) {
      if (!versions.has(version)) return `${capability} has no version ${version}; it has ${[...versions].join(', ')}`;
      if (!(share >= 0 && share <= 1)) return `the share of ${version} is ${share}: write 0 to 1, or a percentage`;
      total += share;
    }
    if (Object.keys(shares).length === 0) return 'name at least one version with its share';
    return total > 1 + 1e-9 ? `the shares add up to ${Number((total * 100).toPrecision(6))}%, which is more than 100%` : null;
  }

  #contractsOf(name: string): Contract[] {
    const own = this.#state.active.contracts.filter((contract) => contract.name === name);
    return [...[...this.#state.book.versions(name).values()].map((known) => known.contract), ...own];
  }

  #read(text: string, file: string): DocumentReading {
    return readOperatorsDocument(text, file, this.#world());
  }

  #world(): World {
    const { book, byAgent } = this.#state;
    return {
      *contracts() {
        for (const name of book.names()) for (const known of book.versions(name).values()) yield known.contract;
      },
      *providers() {
        for (const entries of byAgent.values()) if (entries[0] !== undefined) yield entries[0].record;
      },
      contractProblems: (contract) => this.#problemsOf(contract),
    };
  }

  /** What stands against a contract that an operator lays down beside those that agents have registered. */
  #problemsOf(contract: Contract): string[] {
    const { book } = this.#state;
    const problems: string[] = [];
    const registered = book.get(contract.name, contract.version);
    if (registered !== undefined) {
      const parts = differingInterface(registered.contract, contract);
      if (parts.length > 0)
        problems.push(
          `agents have registered ${labelOf(contract)} with other content (${parts.join(', ')}), and it is what they do: write these parts as they are, or give it a new version`,
        );
    }
    problems.push(...versionProblems(contract, [...book.versions(contract.name).values()].map((known) => known.contract)));
    for (const alias of contract.aliases) {
      const owner = book.ownerOf(alias);
      if (book.hasName(alias)) problems.push(`the alias ${alias} is the name of another capability`);
      else if (owner !== undefined && owner !== contract.name) problems.push(`the alias ${alias} belongs to ${owner} already`);
    }
    const owner = book.hasName(contract.name) ? undefined : book.ownerOf(contract.name);
    if (owner !== undefined) problems.push(`the name ${contract.name} is an alias of ${owner}`);
    return problems;
  }

  /** Contracts that providers rely on and that the new document no longer lays down. */
  #lostContracts(document: OperatorsDocument, file: string): Problem[] {
    const lost: Problem[] = [];
    const kept = new Set(document.contracts.map(labelOf));
    for (const [name, entries] of this.#state.byCapability) {
      const versions = new Set([...entries].flatMap((entry) => entry.record.offers.filter((offer) => offer.name === name).map((offer) => offer.version)));
      for (const version of versions)
        if (!kept.has(`${name}@${version}`) && this.#state.book.get(name, version) === undefined)
          lost.push(wholeFile(file, `${name}@${version} is offered by agents that did not register its contract, and it is no longer laid down here: they get no calls`));
    }
    return lost;
  }
}

function wholeFile(file: string, message: string): Problem {
  return { file, line: 0, column: 0, path: '', message };
}
