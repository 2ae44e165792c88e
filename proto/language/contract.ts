/** A contract as people write it: what a capability takes and gives, who may call it, and how a call of it is handled. */
import { pointerProblem } from '../../base/json-pointer.ts';
import { compileSchema } from '../../base/json-schema.ts';
import { quote } from '../../base/duration.ts';
import { acl } from './acl.ts';
import { isHeaderName } from './http-text.ts';
import { aliasProblem, capabilityNameProblem, tagKeyProblem, tagValueProblem } from './names.ts';
import { exactVersionProblem } from './range.ts';
import { mapped, object, optional, required, type Shape } from './reader.ts';
import { clockFields, NO_CLOCKS, sharedFields, sharedSettings } from './settings-fields.ts';
import { anyJson, choice, count, dictionary, flag, isPlainMap, list, number, oneOf, text, versionText } from './shapes.ts';
import type { AffinityRule, AnswerCondition, Contract, JsonSchema, StreamRule, SuccessRule } from './types.ts';

export const capabilityName: Shape<string> = text(
  'a capability name',
  capabilityNameProblem,
  '^[a-z][a-z0-9_]{0,62}(\\.[a-z][a-z0-9_]{0,62}){2}$',
);
export const version: Shape<string> = versionText(exactVersionProblem);
export const tags: Shape<Readonly<Record<string, string>>> = dictionary('tag', tagKeyProblem, text("a tag's value", tagValueProblem), 64);

/** The longest text that a stream's end may be told by. */
export const MAX_MARKER_BYTES = 256;

const jsonSchema: Shape<JsonSchema> = mapped(
  choice<unknown>('a JSON Schema (a map, true or false)', [
    { accepts: (value) => typeof value === 'boolean', shape: anyJson },
    { accepts: isPlainMap, shape: anyJson },
  ]),
  (schema, place) => {
    const compiled = compileSchema(schema);
    return 'problem' in compiled ? place.bad(`${place.name} is not a usable JSON Schema: ${compiled.problem}`) : (schema as JsonSchema);
  },
);

const affinitySource: Shape<AffinityRule['from']> = mapped(text('header:<name> or a JSON pointer'), (source, place) => {
  if (source.startsWith('header:')) {
    const header = source.slice('header:'.length).trim().toLowerCase();
    return isHeaderName(header) ? { header } : place.bad(`${quote(header)} is not a header name`);
  }
  if (!source.startsWith('/')) return place.bad(`from must be header:<name> or a JSON pointer such as /session/id, not ${quote(source)}`);
  const problem = pointerProblem(source);
  return problem === null ? { pointer: source } : place.bad(problem);
});

const affinity: Shape<AffinityRule> = object('map', {
  required: optional(flag, '`true`: a call without the key is refused (4009).', false, 'false'),
  from: required(
    affinitySource,
    'where the key of the conversation is read: header:x-session, or a JSON pointer into the payload such as /session/id',
  ),
  mode: optional(
    oneOf(['soft', 'strict']),
    '`soft` moves on when the owner is gone, `strict` fails with affinity_lost (2004).',
    'soft' as const,
    'soft',
  ),
});

const pointer: Shape<string> = text('a JSON pointer', pointerProblem);

const condition: Shape<AnswerCondition> = mapped(
  object('condition', {
    status: optional(count(100, 599), "The answer's HTTP status.", null),
    pointer: optional(pointer, 'Which part of the answer `empty`, `equals`, `below` and `above` look at; absent: the whole.', null),
    empty: optional(flag, '`true`: null, "", [], {} or absent; false: none of these.', null),
    equals: optional(anyJson, 'Exactly this value.', undefined),
    below: optional(number(-Number.MAX_VALUE, Number.MAX_VALUE), 'A number below this one.', null),
    above: optional(number(-Number.MAX_VALUE, Number.MAX_VALUE), 'A number above this one.', null),
  }),
  (read, place) => {
    const looks = read.empty !== null || read.equals !== undefined || read.below !== null || read.above !== null;
    if (read.pointer !== null && !looks) return place.bad('a condition with a pointer needs one of empty, equals, below, above');
    if (!looks && read.status === null) return place.bad('a condition needs at least one of status, empty, equals, below, above');
    return read;
  },
);

const NO_CONDITIONS: readonly AnswerCondition[] = Object.freeze([]);

const success: Shape<SuccessRule> = mapped(
  object('map', {
    definitely: optional(
      list(condition, 16),
      'An answer that meets any of these is a definite success: never retried, never held against the provider.',
      NO_CONDITIONS,
    ),
    unless: optional(list(condition, 16), 'A 2xx answer that meets any of these is a failure (1004) all the same.', NO_CONDITIONS),
  }),
  (read) => read,
);

const PLAIN_STREAM: StreamRule = Object.freeze({ done: null, ...NO_CLOCKS });

const streamRule: Shape<StreamRule> = mapped(
  object('map', {
    done: optional(
      text('the name or the data of an event, such as [DONE]', doneProblem),
      'What the last event says: its name (`event:`), its whole data, or an NDJSON line (or the `type` or `event` of one). What ends without it was cut (a stream 1006, an answer asked for whole 1004), however cleanly its connection was closed.',
      null,
    ),
    ...clockFields,
  }),
  (read) => ({ done: read.done, firstChunkMs: read.first_chunk, idleMs: read.idle }),
);

function doneProblem(value: string): string | null {
  if (value !== value.trim() || /[\r\n]/.test(value)) return 'done is one line of text, without blanks around it';
  return Buffer.byteLength(value) <= MAX_MARKER_BYTES ? null : `done is longer than ${MAX_MARKER_BYTES} bytes`;
}

const streaming: Shape<StreamRule | null> = choice<StreamRule | null>(
  'true, false, or a map such as {done: "[DONE]", first_chunk: 5s, idle: 30s}',
  [
    { accepts: (value) => typeof value === 'boolean', shape: mapped(flag, (is) => (is ? PLAIN_STREAM : null)) },
    { accepts: isPlainMap, shape: streamRule },
  ],
);

export const contractFields = {
  name: required(capabilityName, 'its name, domain.object.action, such as crm.order.query'),
  version: required(version, 'the exact version, such as "2.0.0"'),
  description: optional(text('text'), 'What it does, for people and for models that choose among capabilities.', ''),
  examples: optional(list(anyJson, 50), 'Example payloads.', Object.freeze([]) as readonly unknown[]),
  aliases: optional(list(text('an alias', aliasProblem), 32), 'Other names that callers may use.', Object.freeze([]) as readonly string[]),
  tags: optional(tags, 'Words to select by (`Reach-Tags`).', Object.freeze({}) as Readonly<Record<string, string>>),
  input: optional(jsonSchema, 'JSON Schema (2020-12) of the payload; absent: anything.', null),
  output: optional(jsonSchema, 'JSON Schema (2020-12) of the answer; absent: anything.', null),
  execution: optional(
    oneOf(['once', 'idempotent', 'keyed']),
    '`once`: never started twice. `idempotent`: may start again. `keyed`: the agent commits our key together with its effect.',
    'once' as const,
    'once',
  ),
  affinity: optional(affinity, 'Keeps a conversation on one agent.', null),
  ...sharedFields,
  acl: required(acl, 'who may call: the word public, or a list such as ["role:planner", "crm.*.*"]'),
  streaming: optional(
    streaming,
    'Whether the answer comes in pieces, as callers are told (`/v1/capabilities`), and how its end is told. A promise, not a gate: any capability can be asked by `/v1/stream`.',
    null,
    'false',
  ),
  success: optional(success, 'Which answers count as success or failure, beside their status.', null),
};

export const contract: Shape<Contract> = mapped(object('contract', contractFields), (read, place) => {
  if (read.aliases.includes(read.name))
    return place.at('aliases', read.aliases.indexOf(read.name)).bad(`${read.name} is the contract's own name`);
  return {
    name: read.name,
    version: read.version,
    description: read.description,
    examples: read.examples,
    aliases: read.aliases,
    tags: read.tags,
    input: read.input,
    output: read.output,
    execution: read.execution,
    affinity: read.affinity,
    ...sharedSettings(read),
    acl: read.acl,
    streaming: read.streaming,
    success: read.success,
  };
});
