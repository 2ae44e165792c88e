/** How the expectations of a send step are written: what each message comes to, and the step as a whole. */
import { exactVersionProblem } from '../../proto/language/range.ts';
import { mapped, object, optional, type Shape } from '../../proto/language/reader.ts';
import { flag, list, oneOf, text } from '../../proto/language/shapes.ts';
import {
  any,
  code,
  counted,
  counts,
  FATES,
  fates,
  lasting,
  phrases,
  provider,
  quantileFields,
  quantilesOf,
  shared,
} from './expect-shapes.ts';
import type { Fate, SendExpectation } from './scenario.ts';

const NONE: readonly string[] = Object.freeze([]);

const fields = {
  state: optional(oneOf(FATES), 'What becomes of every message: done, dead_lettered, in_doubt, parked, expired, refused, review, …', null),
  code: optional(code, 'Code or name of the refusal, or of the end.', null),
  provider: optional(provider, 'Who had it last; none = nobody.', undefined),
  provider_in: optional(list(provider, 1_000, 1), 'Everybody who may have had it.', null),
  version: optional(
    text('a version', (value) => exactVersionProblem(value)),
    'The version that served.',
    null,
  ),
  rule: optional(text('the name of a rule'), 'The rule that decided; none = none did.', null),
  lane: optional(oneOf(['high', 'normal', 'low']), 'The lane in which it waited.', null),
  replay: optional(flag, 'true: the result had been made before, under the same key.', null),
  attempts: optional(counted, 'Hand-overs of each.', null),
  elapsed: optional(lasting, 'From being accepted to its end, of each.', null),
  detail: optional(phrases, 'Words that the explanation of its end must contain.', NONE),
  states: optional(fates<Fate>(FATES), 'How many came to what; what is not named must not occur.', null),
  providers: optional(counts('agent id or none', any, shared), 'How many each agent had last; one that is not named must not occur.', null),
  broken_sessions: optional(shared, 'Sessions that did not meet one and the same agent throughout.', null),
  ...quantileFields,
};

export const sendExpectation: Shape<SendExpectation> = mapped(object('expect', fields), (read, place) => {
  if (read.provider !== undefined && read.provider_in !== null)
    return place.at('provider_in').badKey('write either provider or provider_in');
  return {
    state: read.state,
    code: read.code,
    providers: read.provider !== undefined ? [read.provider] : read.provider_in,
    version: read.version,
    rule: read.rule,
    lane: read.lane,
    replay: read.replay,
    attempts: read.attempts,
    elapsed: read.elapsed,
    detail: read.detail,
    states: read.states,
    byProvider: read.providers,
    brokenSessions: read.broken_sessions,
    latency: quantilesOf(read),
  };
});
