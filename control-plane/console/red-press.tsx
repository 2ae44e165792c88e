/** The second step of the red button: what it would do and hit, the press itself, and how far it is in force. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { ApiProblem } from './client.ts';
import { type Asked, useConsole, useNow } from './context.tsx';
import { count, listed, many } from './format.ts';
import { effectWords, isWide, type OverrideDraft, targetWords, typedWord } from './override-words.ts';
import { wordsOf } from './parts/overrides.tsx';
import { ProblemBox } from './parts/states.tsx';
import { Badge, Time } from './parts/words.tsx';
import { type Known, newestOf, type Order, watchForce } from './red-order.ts';
import type { OverrideOrdered, OverridesAnswer, OverrideTried } from './shapes.ts';

/** How old a count may be before that is said. */
const OLD_MS = 5_000;

export function Effects({ draft }: { readonly draft: OverrideDraft }) {
  return (
    <ul class="effects" data-test="red-words">
      {effectWords(draft).map((sentence) => (
        <li key={sentence}>{sentence}</li>
      ))}
    </ul>
  );
}

interface PressProps {
  readonly tried: OverrideTried;
  readonly order: Order;
  readonly isBusy: boolean;
  readonly problem: ApiProblem | null;
  readonly onBack: () => void;
  readonly onPress: (isMeant: boolean) => void;
}

export function Press({ tried, order, isBusy, problem, onBack, onPress }: PressProps) {
  const [typed, setTyped] = useState('');
  const form = useRef<HTMLFormElement>(null);
  // To what has to be typed, or to the way back: two quick Enter must not press the button.
  useLayoutEffect(() => form.current?.querySelector<HTMLElement>('input, button')?.focus(), []);
  const hit = tried.would_hit;
  // A name that nobody has is confirmed by typing it, like what covers many.
  const isUnknown = tried.problem !== null || tried.warnings.length > 0;
  const word = isWide(order.target) || isUnknown ? typedWord(order.target) : null;
  const isReady = !isBusy && (word === null || typed.trim() === word);
  return (
    <form
      ref={form}
      class="red-form"
      onSubmit={(event) => {
        event.preventDefault();
        if (isReady) onPress(isUnknown);
      }}
    >
      <p>
        <Badge tone="bad">{order.action}</Badge> <strong>{targetWords(order.target)}</strong>{' '}
        {order.lasting === 'forever' ? 'until it is lifted' : `for ${order.lasting}`}: “{order.reason}”
      </p>
      <Effects draft={order} />
      <p data-test="red-hits">
        It hits {many(hit.capabilities.length, 'capability', 'capabilities')} ({listed(hit.capabilities, 4)}),{' '}
        {many(hit.providers.length, 'provider')} ({listed(hit.providers, 4)}) and {many(hit.callers.length, 'caller')}, on{' '}
        {many(hit.sidecars, 'sidecar')}; {many(hit.in_flight, 'call is', 'calls are')} under way there now.
      </p>
      {[...tried.warnings, ...(tried.problem === null ? [] : [tried.problem])]
        .filter((each, i, all) => all.indexOf(each) === i)
        .map((each) => (
          <p key={each} class="box warn">
            {each}
          </p>
        ))}
      {word !== null && (
        <label>
          <span>
            Type <strong class="mono">{word}</strong> to confirm
          </span>
          <input
            data-test="red-typed"
            value={typed}
            autocomplete="off"
            spellcheck={false}
            onInput={(event) => setTyped(event.currentTarget.value)}
          />
        </label>
      )}
      {problem !== null && <ProblemBox problem={problem} />}
      <footer>
        <button type="button" data-test="cancel" onClick={onBack}>
          Back
        </button>
        <button type="submit" class="red" data-test="confirm" disabled={!isReady} aria-busy={isBusy}>
          {isBusy ? 'Pressing …' : `${order.action[0]?.toUpperCase()}${order.action.slice(1)} now`}
        </button>
      </footer>
    </form>
  );
}

/** How far it is in force: watched closely at first, then as the list below has it; with its age, when that is old. */
export function Progress({ ordered, list }: { readonly ordered: OverrideOrdered; readonly list: Asked<OverridesAnswer> }) {
  const { client, clock } = useConsole();
  const [watched, setWatched] = useState<{ readonly id: string; readonly known: Known } | null>(null);
  const orderedMs = useMemo(() => clock.wallMs(), [ordered, clock]);
  useEffect(() => {
    if (ordered.in_force >= ordered.of) return undefined;
    return watchForce({ client, clock }, ordered.id, (known) => setWatched({ id: ordered.id, known }));
  }, [ordered, client, clock]);
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => box.current?.focus(), [ordered]);
  const { force: now, atMs, isGone } = newestOf(ordered, orderedMs, watched?.id === ordered.id ? watched.known : null, list);
  const isAll = now.in_force >= now.of && !isGone;
  const isOld = useNow() - atMs > OLD_MS;
  return (
    <div
      class={`box ${isAll ? 'good' : 'warn'}`}
      ref={box}
      tabIndex={-1}
      data-test="red-progress"
      data-in-force={now.in_force}
      data-of={now.of}
    >
      <strong role="status">{isGone ? 'it is no longer in force: it was lifted or has run out' : wordsOf(now)}</strong>
      {isOld && (
        <span class="muted small" data-test="red-as-of">
          {' '}
          as of <Time ms={atMs} />
        </span>
      )}
      {!isGone && <progress max={now.of} value={now.in_force} aria-label={`In force on ${now.in_force} of ${count(now.of)}`} />}
      {!isAll && !isGone && (
        <ul class="plain small">
          {now.missing.slice(0, 5).map(({ sidecar, why }) => (
            <li key={sidecar}>
              {sidecar}: {why}
            </li>
          ))}
        </ul>
      )}
      {ordered.warnings.map((each) => (
        <p key={each}>{each}</p>
      ))}
    </div>
  );
}
