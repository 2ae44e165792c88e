/** The keys of a scenario beside the sections of a table. */
import { describe } from '../../base/duration.ts';
import { type Field, optional, required, type Shape } from '../../proto/language/reader.ts';
import { agentId } from '../../proto/language/settings-fields.ts';
import { anyJson, count, dictionary, isPlainMap, text } from '../../proto/language/shapes.ts';
import { stateExpectation } from './expect-shapes.ts';
import { taskShape } from './step-shapes.ts';

export type RawMap = Readonly<Record<string, unknown>>;

const anyMap: Shape<RawMap> = {
  kind: 'a map',
  read: (value, place) => (isPlainMap(value) ? (value as RawMap) : place.bad(`${place.name} must be a map, not ${describe(value)}`)),
  schema: () => ({ type: 'object' }),
};

export const headFields = {
  scenario: required(text('text'), 'its name: what it shows'),
  description: optional(text('text'), 'What happens in it, and why that is right.', ''),
  seed: optional(count(0, 4_294_967_295), 'Where chance begins; the same seed gives the same run.', 1, '1'),
  sidecar: optional<RawMap, null>(anyMap, "The sidecar's own settings, as in its configuration.", null),
  as: optional(agentId, 'Who calls, where a step does not say.', null),
  table: optional<unknown, null>(
    anyJson,
    'A table file that the scenario starts from; sections written here take the place of its own.',
    null,
  ),
  mocks: optional<RawMap, RawMap>(anyMap, 'By agent id: how it behaves. It is a mock then, whatever its endpoint says.', Object.freeze({})),
  tasks: optional(
    dictionary('task', () => null, taskShape, 1_000),
    'Pieces of work in several calls that share one time.',
    Object.freeze({}),
  ),
  steps: required<unknown>(anyJson, 'what happens, in order'),
  expect: optional(stateExpectation, 'What must be true of the whole run at its end.', null),
  figures: optional(
    dictionary('a figure', () => null, text('a figure such as "p95 of chain"'), 100),
    'Numbers of the run that are told by a name: `<p50|p90|p95|p99|mean|most> of <label or capability>`.',
    Object.freeze({}),
  ),
  variants: optional<RawMap | null, null>(
    anyMap,
    'Runs of the same scenario, by name: what is written under one (note, seed, sidecar, mocks, tasks, expect, steps, and entries of the table) is laid over the rest.',
    null,
  ),
} satisfies Record<string, Field<unknown>>;
