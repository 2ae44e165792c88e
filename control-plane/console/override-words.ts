/** What an override does, in words, before it is made: the same as docs/operating.md says, for the case at hand. */
import type { OverrideAction, OverrideTarget } from './shapes.ts';

export interface OverrideDraft {
  readonly action: OverrideAction;
  readonly target: OverrideTarget;
  readonly to: string;
  readonly cut: boolean;
}

/** `capability crm.order.query`, `everything`. */
export function targetWords(target: OverrideTarget): string {
  if (target.all === true) return 'everything';
  const parts: string[] = [];
  if (target.capability !== undefined) parts.push(`capability ${target.capability}`);
  if (target.provider !== undefined) parts.push(`provider ${target.provider}`);
  if (target.agent !== undefined) parts.push(`agent ${target.agent}`);
  if (target.caller !== undefined) parts.push(`caller ${target.caller}`);
  return parts.join(', ');
}

/** Covers more than one name: then it has to be typed once more. */
export function isWide(target: OverrideTarget): boolean {
  if (target.all === true) return true;
  return Object.values(target).some((name) => typeof name === 'string' && (name.includes('*') || name.includes(':')));
}

/** What has to be typed to confirm a wide one. */
export function typedWord(target: OverrideTarget): string {
  if (target.all === true) return 'everything';
  return target.capability ?? target.provider ?? target.agent ?? target.caller ?? '';
}

/** Sentences: new calls, what is under way, messages. */
export function effectWords({ action, target, to, cut }: OverrideDraft): readonly string[] {
  const isProvider = target.provider !== undefined && target.capability === undefined;
  const what = targetWords(target);
  const whose = callsWords(target);
  switch (action) {
    case 'block':
      return [
        `${whose} are refused at once with 2006, and callers read your reason and name.`,
        cut
          ? 'Calls under way are cancelled at once (2006); streams end with an error. A task that may run only once and was broken off is in doubt afterwards.'
          : 'Calls under way end in peace.',
        isProvider
          ? 'Messages for its capabilities are accepted and wait, unless another provider takes them.'
          : 'New messages are refused (2006); what is queued waits until the block is lifted.',
      ];
    case 'drain':
      return isProvider || target.agent !== undefined
        ? [
            `${what} gets no new calls: they go to others. Conversations that it holds go on.`,
            'Calls under way end in peace.',
            'Messages are taken by others.',
          ]
        : [
            `${whose} are refused with 2006.`,
            'Calls under way end in peace.',
            'New messages are refused (2006); what is queued waits until it is lifted.',
          ];
    case 'degrade':
      return [
        isProvider
          ? `The other providers serve in its place; where none is left, the declared fallback answers.`
          : `${whose} are answered with the declared fallback and marked degraded; without a fallback they are refused (2006).`,
        'Calls under way end in peace.',
        'New messages are refused (2006); what is queued waits until it is lifted.',
      ];
    case 'reroute':
      return [
        `${whose} are served by ${to === '' ? '(say where to)' : to}, whose own list of callers is asked.`,
        'Calls under way end in peace.',
        'New messages go there too; what was accepted before stays where it is.',
      ];
  }
}

function callsWords(target: OverrideTarget): string {
  if (target.all === true) return 'All new calls, of everybody to everything,';
  const to: string[] = [];
  if (target.capability !== undefined) to.push(`of ${target.capability}`);
  if (target.provider !== undefined) to.push(`to ${target.provider}`);
  if (target.caller !== undefined) to.push(`from ${target.caller}`);
  if (target.agent !== undefined) to.push(`to and from ${target.agent}`);
  return `New calls ${to.join(', ')}`;
}

/** `in force on 198 of 200, missing: …` */
export function forceWords(inForce: number, of: number, missing: readonly string[], max = 5): string {
  if (inForce >= of) return `in force on all ${of} sidecars`;
  const named = missing.slice(0, max).join(', ');
  const more = of - inForce - Math.min(max, missing.length);
  return `in force on ${inForce} of ${of}${named === '' ? '' : `, missing: ${named}${more > 0 ? ` and ${more} more` : ''}`}`;
}
