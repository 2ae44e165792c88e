/** What stands in the bar and beside the pages: whether the page is true, the red button, how many alerts fire. */
import { useApi, useConsole } from './context.tsx';
import { count } from './format.ts';
import type { LiveState } from './live.ts';
import type { AlertsAnswer, OverridesAnswer } from './shapes.ts';
import { TOPICS } from './topics.ts';

const LIVE_WORDS: Readonly<Record<LiveState, readonly [string, string]>> = {
  connecting: ['connecting', 'The stream of changes is being opened.'],
  live: ['live', 'Changes are shown as they happen.'],
  polling: ['every 5 s', 'The stream of changes is cut: everything shown is asked for each 5 seconds.'],
  lost: ['connection lost', 'The control plane cannot be reached: what is shown is old. It is tried again and again.'],
};

export function LiveWord({ state, onAgain }: { readonly state: LiveState; readonly onAgain: () => void }) {
  const [word, title] = LIVE_WORDS[state];
  return (
    <button
      class={`live ${state}`}
      data-test="live-state"
      data-state={state}
      title={`${title} Click: ask again now.`}
      onClick={onAgain}
      aria-live="polite"
    >
      <span class="dot" aria-hidden="true" /> {word}
    </button>
  );
}

export function RedButton({ onOpen }: { readonly onOpen: () => void }) {
  const { data } = useApi<OverridesAnswer>('/v1/overrides', TOPICS.overrides, { gapMs: 500 });
  const inForce = data?.overrides.length ?? 0;
  return (
    <button
      class="red"
      data-test="red-button"
      title="The red button (b): block, drain, reroute, degrade; and what is in force"
      onClick={onOpen}
    >
      Red button
      {inForce > 0 && (
        <span class="badge on-red">
          {count(inForce)}
          <span class="in-force"> in force</span>
        </span>
      )}
    </button>
  );
}

export function Firing() {
  const { data } = useApi<AlertsAnswer>('/v1/alerts', TOPICS.alerts);
  const { address } = useConsole();
  const firing = data?.alerts.filter(({ state, silenced_until_ms: silenced }) => state === 'firing' && silenced === null).length ?? 0;
  if (firing === 0) return null;
  return (
    <span class={`badge ${address.page === 'alerts' ? 'plain' : 'bad'}`}>
      {count(firing)}
      <span class="sr"> firing</span>
    </span>
  );
}
