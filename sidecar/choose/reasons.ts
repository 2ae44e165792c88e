/** What `choose` can say. Words for where somebody was found are made at module load, one reason a place. */
import { Code } from '../../proto/wire/codes.ts';
import type { LoadMode } from '../../proto/language/types.ts';
import { passing, type Reason, refusing } from '../call/verdict.ts';

/** In the order of `placeOf`. */
export const PLACE_WORDS = [
  'in this zone',
  'in this zone (backup)',
  'in this region',
  'in this region (backup)',
  'outside this region',
  'outside this region (backup)',
  'anywhere',
  'anywhere (backup)',
] as const;

const MODE_WORDS: Readonly<Record<LoadMode, string>> = {
  least_request: '{a} by least_request with {c} in flight, of {b} usable',
  round_robin: '{a} by round_robin, of {b} usable',
  random: '{a} by random, of {b} usable',
  primary_backup: '{a} by primary_backup; {b} usable',
  // Without a key there is nothing to stick to.
  sticky: '{a} by least_request, since nothing says whom to stick to, with {c} in flight, of {b} usable',
};

type ByPlace = Readonly<Record<LoadMode, readonly Reason[]>>;

function byPlace(suffix: string): ByPlace {
  const of = (mode: LoadMode): readonly Reason[] =>
    PLACE_WORDS.map((place) => passing('choose', mode, `${MODE_WORDS[mode]} ${place}${suffix}`));
  return {
    least_request: of('least_request'),
    round_robin: of('round_robin'),
    random: of('random'),
    primary_backup: of('primary_backup'),
    sticky: of('sticky'),
  };
}

/** `[spilled ? 1 : 0][mode][place]`; a = agent, b = how many were usable there, c = calls in flight. */
export const BY_LOAD: readonly [ByPlace, ByPlace] = [byPlace(''), byPlace('; spilled over, for nobody nearer or before is free')];

export const Reasons = {
  pinned: passing('choose', 'pinned', '{a} as asked by name'),
  bound: passing('choose', 'affinity_bound', '{a} holds this conversation'),
  begun: passing('choose', 'affinity_new', '{a} by the hash of the conversation key, of {b} usable'),
  begunFirst: passing('choose', 'affinity_new', '{a} begins this conversation: first by primary_backup of {b} usable'),
  rebound: passing('choose', 'affinity_rebound', '{a} takes over the conversation: {b} is gone'),
  detour: passing('choose', 'affinity_detour', '{a} stands in for {b}, which holds the conversation but is {c}'),
  probe: passing('choose', 'probe', '{a} is half-open: this call finds out whether it has recovered; {b} others are usable'),
  lastProbe: passing('choose', 'probe', '{a} is half-open, and nobody else is usable'),
  panic: passing('choose', 'panic', '{a} in panic: none of {b} is healthy, and `panic: true` uses them all the same'),

  noneHealthy: refusing('choose', 'none_healthy', Code.none_healthy, 'nobody of {a} can be used: {b}'),
  allTried: refusing('choose', 'all_tried', Code.none_healthy, 'everybody of {a} who could serve was tried: {b}'),
  breakerOpen: refusing('choose', 'breaker_open', Code.breaker_open, 'every breaker of {a} is open: {b}'),
  busy: refusing('choose', 'provider_busy', Code.provider_busy, 'everybody of {a} is busy: {b}'),
  blocked: refusing('choose', 'blocked', Code.blocked_by_operator, 'everybody of {a} is held back by an operator: {b}'),
  held: refusing(
    'choose',
    'held_by_other_version',
    Code.none_healthy,
    '{a} holds this conversation and serves {b}, which is also allowed: the call stays with it',
  ),
  lost: refusing(
    'choose',
    'affinity_lost',
    Code.affinity_lost,
    '{a} held this conversation and {b}; the contract is strict, so nobody else may take it',
  ),
  heldBusy: refusing(
    'choose',
    'holder_busy',
    Code.provider_busy,
    '{a} holds this conversation and has {b} calls in flight, its limit; the contract is strict',
  ),
  heldBlocked: refusing(
    'choose',
    'holder_blocked',
    Code.blocked_by_operator,
    '{a} holds this conversation and is {b}; the contract is strict',
  ),
  pinUnknown: refusing('choose', 'pin_unknown', Code.no_provider, '{a} was asked for by name, but no such provider is registered'),
  pinElsewhere: refusing(
    'choose',
    'pin_elsewhere',
    Code.none_healthy,
    '{a} was asked for by name and does not serve {b}; it does serve {c}, which is tried next',
  ),
  pinUnfit: refusing(
    'choose',
    'pin_unfit',
    Code.no_provider,
    '{a} was asked for by name, but serves {b} in no version that this call may use ({c})',
  ),
  pinUnusable: refusing('choose', 'pin_unusable', Code.none_healthy, '{a} was asked for by name and cannot be used: {b}'),
  pinBreaker: refusing('choose', 'pin_breaker_open', Code.breaker_open, '{a} was asked for by name: {b}'),
  pinBusy: refusing('choose', 'pin_busy', Code.provider_busy, '{a} was asked for by name: {b}'),
  pinBlocked: refusing('choose', 'pin_blocked', Code.blocked_by_operator, '{a} was asked for by name: {b}'),
} as const;
