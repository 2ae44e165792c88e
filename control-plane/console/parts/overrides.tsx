/** Overrides in force: what, whom, why, how long still, where; and lifting them. */
import { useConsole, useNow } from '../context.tsx';
import { span } from '../format.ts';
import { forceWords, targetWords } from '../override-words.ts';
import { PRESS_MS } from '../red-order.ts';
import { ActButton } from './dialog.tsx';
import { Actions } from './states.tsx';
import { Badge, Time } from './words.tsx';
import type { InForce, OverrideShown } from '../shapes.ts';

export function OverrideList({
  overrides,
  again,
  empty,
}: {
  readonly overrides: readonly OverrideShown[];
  readonly again: () => void;
  readonly empty: string;
}) {
  if (overrides.length === 0) return <p class="muted">{empty}</p>;
  return (
    <ul class="overrides">
      {overrides.map((each) => (
        <Override key={each.id} override={each} again={again} />
      ))}
    </ul>
  );
}

function Override({ override, again }: { readonly override: OverrideShown; readonly again: () => void }) {
  const { client } = useConsole();
  const now = useNow();
  const { id, action, target, to, cut, reason, author, at, expires_at: end } = override;
  const left = end === null ? null : Date.parse(end) - now;
  return (
    <li data-test="override-row" data-id={id}>
      <div>
        <Badge tone="bad">{action}</Badge> <strong>{targetWords(target)}</strong>
        {to !== null && ` to ${to}`}
        {cut && ' (cuts what is under way)'}
        <div class="small">
          “{reason}” {author}, <Time ms={Date.parse(at)} /> ·{' '}
          {left === null ? 'until it is lifted' : left > 0 ? `${span(left)} left` : 'runs out now'} ·{' '}
          <span class={override.in_force < override.of ? 'warn-text' : ''}>
            {forceWords(
              override.in_force,
              override.of,
              override.missing.map(({ sidecar }) => sidecar),
            )}
          </span>
        </div>
      </div>
      <Actions>
        <ActButton
          test="lift"
          act={{
            label: 'Lift',
            words: `The ${action} of ${targetWords(target)} ends everywhere: what waits because of it goes on.`,
            hasReason: true,
            run: ({ reason: why }) =>
              client.order(
                'DELETE',
                `/v1/overrides/${encodeURIComponent(id)}${why === '' ? '' : `?reason=${encodeURIComponent(why)}`}`,
                undefined,
                PRESS_MS,
              ),
            done: (answer) => `Lifted, ${wordsOf(answer as InForce)}.`,
            after: again,
          }}
        />
      </Actions>
    </li>
  );
}

export function wordsOf({ in_force: inForce, of, missing }: InForce): string {
  return forceWords(
    inForce,
    of,
    missing.map(({ sidecar }) => sidecar),
  );
}
