/**
 * Reads a scenario file: every problem with its place, and every state of the table that the steps lead to checked before
 * anything runs. What comes out holds nothing that could still turn out to be wrong.
 */
import { dirname } from 'node:path';
import { describe, quote } from '../../base/duration.ts';
import { nearest } from '../../base/suggest.ts';
import { explainStrays, tableFields } from '../../proto/language/document.ts';
import { BAD, type Bad, openSource, Place, readPresent, refuseUnknown, type ReadFields, type Shape } from '../../proto/language/reader.ts';
import { isPlainMap } from '../../proto/language/shapes.ts';
import type { Problem } from '../../proto/language/types.ts';
import { Draft } from './draft.ts';
import { type Quantile, QUANTILES } from './durations.ts';
import { refuseUnknownAgents } from './expect-shapes.ts';
import { headFields, type RawMap } from './head.ts';
import type { Overlay } from './overlay.ts';
import { patched } from './patchwork.ts';
import { readSidecarSection } from './sidecar-section.ts';
import type { CallStep, Figure, Scenario, ScenarioReading, ScenariosReading, SendStep, Step, TaskSetting } from './scenario.ts';
import { StepReader } from './read-steps.ts';
import { runsOf } from './variants.ts';

type Head = ReadFields<typeof headFields>;

/** Of a scenario that has variants the first one. See `readScenarios`. */
export function readScenario(content: string, file: string): ScenarioReading {
  const reading = readScenarios(content, file);
  return 'problems' in reading ? reading : { scenario: reading.scenarios[0] as Scenario };
}

/**
 * @param file as it shall be named in problems; files that it names are looked for beside it.
 * @param given laid over every scenario: `--with`
 * @param seed in place of its own; null = its own
 */
export function readScenarios(content: string, file: string, given: Overlay | null = null, seed: number | null = null): ScenariosReading {
  const { source, value } = openSource(content, file);
  if (source.problems.length > 0) return { problems: source.problems };
  const root = new Place(source);
  if (!isPlainMap(value)) {
    root.bad(
      value === null
        ? 'the file is empty: a scenario names scenario, contracts, providers, steps'
        : `a scenario is a map with scenario, contracts, providers, steps, not ${describe(value)}`,
    );
    return { problems: source.problems };
  }
  const map = value as RawMap;
  explainStrays(source);
  refuseUnknown(map, { ...headFields, ...tableFields }, root);
  if ('sidecars' in map) root.at('sidecars').badKey('the lab has one sidecar, which stands for all of them: leave sidecars out');
  const scenarios: Scenario[] = [];
  const problems = new Set<Problem>();
  for (const run of runsOf(map, root)) {
    const overlays = given === null ? run.overlays : [...run.overlays, given];
    const draft = new Draft(run.place, overlays);
    const scenario = whole(run.map, readHead(run.map, run.place), run.place, draft, file, run.name, given);
    for (const problem of [...source.problems, ...draft.sources.flatMap((each) => each.problems), ...(given?.place.source.problems ?? [])])
      problems.add(problem);
    if (scenario !== BAD) scenarios.push(seed === null ? scenario : { ...scenario, seed });
  }
  if (problems.size > 0) return { problems: [...problems].sort((a, b) => (a.file === b.file ? a.line - b.line : 0)) };
  return { scenarios };
}

/** Field by field: one that is bad counts as absent, so that the rest is looked at all the same. */
function readHead(map: RawMap, root: Place): Head {
  const parts: Record<string, unknown> = {};
  for (const [key, field] of Object.entries(headFields)) {
    if (!(key in map) && field.required) root.bad(`${key} is missing: ${field.doc}`);
    const part = key in map ? readPresent(field.shape as Shape<unknown>, map[key], root.at(key)) : BAD;
    // A caller who is written but bad is not also missing, step by step.
    parts[key] = part !== BAD ? part : key === 'as' && key in map ? 'in.doubt.0' : field.absent;
  }
  return parts as Head;
}

function whole(
  map: RawMap,
  read: Head,
  root: Place,
  draft: Draft,
  file: string,
  variant: string | null,
  given: Overlay | null,
): Scenario | Bad {
  if (typeof read.table === 'string') draft.takeFile(read.table, dirname(file), root.at('table'));
  else if (isPlainMap(read.table)) draft.take(read.table as RawMap, root.at('table'));
  else if (read.table !== null) root.at('table').bad(`table must be a file name or a map of sections, not ${describe(read.table)}`);
  draft.take(map, root);
  for (const [agent, options] of Object.entries(read.mocks)) {
    const place = root.at('mocks', agent);
    if (isPlainMap(options)) draft.mock(agent, options as RawMap, place, false);
    else place.bad(`${agent} must be a map such as {latency: 20ms}, not ${describe(options)}`);
  }
  const settings = given?.map['sidecar'];
  const config = isPlainMap(settings)
    ? readSidecarSection(
        { ...read.sidecar, ...(settings as RawMap) },
        patched(root.at('sidecar'), settings as RawMap, (given as Overlay).place.at('sidecar')),
      )
    : readSidecarSection(read.sidecar, root.at('sidecar'));
  if (config !== BAD && sends(read.steps)) draft.host = config.name;
  const document = draft.document();
  const tasks = new Map<string, TaskSetting>(
    Object.entries(read.tasks).map(([name, task]) => [name, { deadlineMs: task.deadline, budget: budgetText(task.budget) }]),
  );
  const steps = stepsOf(read, root, draft, tasks);
  draft.refuseStrangers(Object.keys(read.mocks).map((agent) => [agent, root.at('mocks', agent)] as const));
  if (steps === BAD || document === null || config === BAD) return BAD;
  checkReferences(steps, root, draft);
  if (read.expect !== null) refuseUnknownAgents(read.expect, root.at('expect'), draft.agents);
  for (const task of read.expect?.tasks?.keys() ?? []) taskKnown(task, tasks, root.at('expect', 'tasks', task));
  checkLatency(read.expect?.latency?.keys() ?? [], steps, draft, root.at('expect', 'latency'));
  const figures = figuresOf(read.figures, steps, draft, root.at('figures'));
  return {
    file,
    name: read.scenario,
    variant,
    description: read.description,
    seed: read.seed,
    config,
    document,
    tasks,
    steps,
    expect: read.expect,
    figures,
    agents: [...draft.agents],
  };
}

function sends(steps: unknown): boolean {
  return (
    Array.isArray(steps) &&
    steps.some(
      (step: unknown) => isPlainMap(step) && ('send' in (step as RawMap) || 'role' in (step as RawMap) || 'agent' in (step as RawMap)),
    )
  );
}

/** Times are known by the label of a step and by capability. */
function checkLatency(names: Iterable<string>, steps: readonly Step[], draft: Draft, place: Place): void {
  const known = new Set<string>(draft.capabilities);
  for (const step of steps) if (step.label !== null && (step.kind === 'call' || step.kind === 'send')) known.add(step.label);
  for (const name of names) {
    if (known.has(name)) continue;
    const near = nearest(name, known);
    place
      .at(name)
      .badKey(`no step has the label ${quote(name)}, and there is no such capability${near === null ? '' : `; did you mean ${near}?`}`);
  }
}

const FIGURE = /^(\w+) of (\S+)$/;

function figuresOf(read: Readonly<Record<string, string>>, steps: readonly Step[], draft: Draft, place: Place): readonly Figure[] {
  const figures: Figure[] = [];
  for (const [name, words] of Object.entries(read)) {
    const match = FIGURE.exec(words);
    const quantile = match?.[1];
    if (match === null || !(QUANTILES as readonly string[]).includes(quantile as string)) {
      place.at(name).bad(`a figure is written as "p95 of <label or capability>", with one of ${QUANTILES.join(', ')}`);
      continue;
    }
    checkLatency([match[2] as string], steps, draft, place);
    figures.push({ name, quantile: quantile as Quantile, of: match[2] as string });
  }
  return figures;
}

function budgetText(budget: Readonly<Record<string, number>> | null): string {
  if (budget === null) return '';
  return Object.entries(budget)
    .map(([step, ms]) => `${step}=${ms}`)
    .join(', ');
}

function stepsOf(read: Head, root: Place, draft: Draft, tasks: ReadonlyMap<string, TaskSetting>): readonly Step[] | Bad {
  const place = root.at('steps');
  if (read.steps === undefined) return BAD;
  if (!Array.isArray(read.steps)) return place.bad(`steps must be a list (lines that begin with "- "), not ${describe(read.steps)}`);
  if (read.steps.length === 0) return place.bad('steps needs at least one entry');
  const reader = new StepReader(draft, tasks, read.as, dirname(root.source.file));
  const steps = read.steps.map((raw: unknown, i) => {
    const shape: Shape<Step> = { kind: 'a step', read: (value, at) => reader.step(value, at, i + 1), schema: () => ({}) };
    return readPresent(shape, raw, place.at(i));
  });
  return steps.includes(BAD) ? BAD : (steps as Step[]);
}

export function taskKnown(task: string, tasks: ReadonlyMap<string, TaskSetting>, place: Place): boolean {
  if (tasks.has(task)) return true;
  const near = nearest(task, tasks.keys());
  place.bad(`the scenario has no task ${quote(task)}${near === null ? '' : `; did you mean ${near}?`}`);
  return false;
}

/** Labels must exist once and mean a step with as many calls; agents must exist. */
function checkReferences(steps: readonly Step[], root: Place, draft: Draft): void {
  const labelled = new Map<string, Step>();
  for (const step of steps) {
    if (step.label === null) continue;
    if (labelled.has(step.label)) root.at('steps', step.number - 1, 'label').bad(`the label ${quote(step.label)} stands here twice`);
    labelled.set(step.label, step);
  }
  for (const step of steps) {
    const place = root.at('steps', step.number - 1, 'expect');
    if (step.kind === 'check') {
      refuseUnknownAgents(step.expect, place, draft.agents);
      checkLatency(step.expect.latency?.keys() ?? [], steps, draft, place.at('latency'));
    }
    if ((step.kind !== 'call' && step.kind !== 'send') || step.expect === null) continue;
    refuseUnknownAgents(step.expect, place, draft.agents);
    checkSessions(step, place);
    if (step.kind === 'send') continue;
    labelKnown(step, step.expect.sameProviderAs, labelled, place.at('same_provider_as'));
    labelKnown(step, step.expect.sameVersionAs, labelled, place.at('same_version_as'));
  }
}

function checkSessions(step: CallStep | SendStep, place: Place): void {
  if (step.expect?.brokenSessions != null && step.sessions === null)
    place.at('broken_sessions').badKey('the step has no sessions: write sessions: {count: 100}');
}

function labelKnown(step: CallStep, label: string | null, labelled: ReadonlyMap<string, Step>, place: Place): void {
  if (label === null) return;
  const other = labelled.get(label);
  if (other === undefined) {
    const near = nearest(label, labelled.keys());
    place.bad(`no step has the label ${quote(label)}${near === null ? '' : `; did you mean ${near}?`}`);
  } else if (other.kind !== 'call') place.bad(`the step labelled ${quote(label)} makes no calls`);
  else if (other === step) place.bad('a step cannot be held against itself: use same_provider');
  else if (other.times < step.times)
    place.bad(
      `the step labelled ${quote(label)} has ${other.times} calls, and this one ${step.times}: there is nothing to hold the last ones against`,
    );
}
