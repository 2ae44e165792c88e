/**
 * The red button: what is in force, with the time it has left and the way to lift it; and a new order in two steps: what, whom, why
 * and for how long; then what that would do and hit (asked of the control plane without writing anything), and only then the press.
 * What covers more than one name has to be typed once more.
 */
import { useEffect, useState } from 'preact/hooks';
import { type ApiProblem, type Client } from './client.ts';
import { type RedPreset, useApi, useConsole, useNow } from './context.tsx';
import { count, listed, many, span } from './format.ts';
import { effectWords, forceWords, isWide, type OverrideDraft, targetWords, typedWord } from './override-words.ts';
import { ActButton, Dialog } from './parts/dialog.tsx';
import { Actions, ProblemBox, Shown, ViewerNote } from './parts/states.tsx';
import { Badge, Time } from './parts/words.tsx';
import type { InForce, OverrideAction, OverrideOrdered, OverridesAnswer, OverrideShown, OverrideTarget, OverrideTried } from './shapes.ts';
import { TOPICS } from './topics.ts';

const ACTIONS: readonly OverrideAction[] = ['block', 'drain', 'reroute', 'degrade'];
const KINDS = ['capability', 'provider', 'agent', 'caller', 'all'] as const;
type Kind = (typeof KINDS)[number];
const KIND_WORDS: Readonly<Record<Kind, string>> = {
  capability: 'a capability',
  provider: 'a provider (as one that serves)',
  agent: 'an agent (either side)',
  caller: 'a caller',
  all: 'everything',
};
const LASTING = ['15m', '30m', '1h', '4h', '24h', 'forever'];
const WATCH_MS = 500;
const WATCHED_FOR_MS = 15_000;

export function RedPanel({ preset, onClose }: { readonly preset: RedPreset; readonly onClose: () => void }) {
  const { mayAct } = useConsole();
  const asked = useApi<OverridesAnswer>('/v1/overrides', TOPICS.overrides, { gapMs: 500 });
  return (
    <Dialog title="Red button" onClose={onClose} test="red-panel" tone="red">
      <ViewerNote />
      {mayAct && <NewOrder preset={preset} after={asked.again} />}
      <h3>In force now</h3>
      <Shown asked={asked} what="overrides">
        {(answer) => (
          <OverrideList
            overrides={answer.overrides}
            again={asked.again}
            empty="Nothing is blocked, drained, rerouted or degraded by an operator."
          />
        )}
      </Shown>
    </Dialog>
  );
}

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
              client.order('DELETE', `/v1/overrides/${encodeURIComponent(id)}${why === '' ? '' : `?reason=${encodeURIComponent(why)}`}`),
            done: (answer) => `Lifted, ${wordsOf(answer as InForce)}.`,
            after: again,
          }}
        />
      </Actions>
    </li>
  );
}

function wordsOf({ in_force: inForce, of, missing }: InForce): string {
  return forceWords(
    inForce,
    of,
    missing.map(({ sidecar }) => sidecar),
  );
}

function kindOf(target: OverrideTarget | undefined): Kind {
  return KINDS.find((kind) => target?.[kind] !== undefined) ?? 'capability';
}

interface Order extends OverrideDraft {
  readonly reason: string;
  readonly lasting: string;
}

function bodyOf({ action, target, to, cut, reason, lasting }: Order): Record<string, unknown> {
  return {
    action,
    target,
    reason,
    for: lasting,
    ...(action === 'reroute' ? { to } : {}),
    ...(action === 'block' && cut ? { cut } : {}),
    ...(target.all === true ? { confirm: true } : {}),
  };
}

function NewOrder({ preset, after }: { readonly preset: RedPreset; readonly after: () => void }) {
  const { client } = useConsole();
  const [action, setAction] = useState<OverrideAction>(preset.action ?? 'block');
  const [kind, setKind] = useState<Kind>(kindOf(preset.target));
  const [name, setName] = useState(() => {
    const given = preset.target?.[kindOf(preset.target)];
    return typeof given === 'string' ? given : '';
  });
  const [to, setTo] = useState('');
  const [cut, setCut] = useState(false);
  const [reason, setReason] = useState('');
  const [lasting, setLasting] = useState('1h');
  const [tried, setTried] = useState<{ readonly order: Order; readonly answer: OverrideTried } | null>(null);
  const [ordered, setOrdered] = useState<OverrideOrdered | null>(null);
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const [isBusy, setBusy] = useState(false);
  const target: OverrideTarget = kind === 'all' ? { all: true } : { [kind]: name.trim() };
  const order: Order = { action, target, to: to.trim(), cut: cut && action === 'block', reason: reason.trim(), lasting };
  const isReady = (kind === 'all' || name.trim() !== '') && reason.trim() !== '' && (action !== 'reroute' || to.trim() !== '');
  const look = async (): Promise<void> => {
    setBusy(true);
    setProblem(null);
    const answer = await client.order<OverrideTried>('POST', '/v1/overrides', { ...bodyOf(order), dry_run: true });
    setBusy(false);
    if ('problem' in answer) setProblem(answer.problem);
    else setTried({ order, answer: answer.ok });
  };
  const press = async (isMeant: boolean): Promise<void> => {
    if (tried === null) return;
    setBusy(true);
    setProblem(null);
    const answer = await client.order<OverrideOrdered>('POST', '/v1/overrides', {
      ...bodyOf(tried.order),
      ...(isMeant ? { confirm: true } : {}),
    });
    setBusy(false);
    if ('problem' in answer) {
      setProblem(answer.problem);
      return;
    }
    setTried(null);
    setOrdered(answer.ok);
    setReason('');
    after();
  };
  if (tried !== null)
    return (
      <Press
        tried={tried.answer}
        order={tried.order}
        isBusy={isBusy}
        problem={problem}
        onBack={() => setTried(null)}
        onPress={(isMeant) => void press(isMeant)}
      />
    );
  return (
    <>
      {ordered !== null && <Progress client={client} ordered={ordered} />}
      <form
        class="red-form"
        onSubmit={(event) => {
          event.preventDefault();
          if (isReady && !isBusy) void look();
        }}
      >
        <div class="two">
          <label>
            What
            <select data-test="red-action" value={action} onChange={(event) => setAction(event.currentTarget.value as OverrideAction)}>
              {ACTIONS.map((each) => (
                <option key={each} value={each}>
                  {each}
                </option>
              ))}
            </select>
          </label>
          <label>
            Whom
            <select data-test="red-kind" value={kind} onChange={(event) => setKind(event.currentTarget.value as Kind)}>
              {KINDS.map((each) => (
                <option key={each} value={each}>
                  {KIND_WORDS[each]}
                </option>
              ))}
            </select>
          </label>
          {kind !== 'all' && (
            <label>
              Name, or a pattern
              <input
                data-test="red-name"
                class="mono"
                value={name}
                required
                autocomplete="off"
                spellcheck={false}
                placeholder={kind === 'capability' ? 'crm.order.query, crm.order.*' : 'crm.order.a, team:crm'}
                onInput={(event) => setName(event.currentTarget.value)}
              />
            </label>
          )}
          {action === 'reroute' && (
            <label>
              To
              <input
                data-test="red-to"
                class="mono"
                value={to}
                required
                placeholder="crm.order.legacy, @^1.0, provider:crm.order.b"
                onInput={(event) => setTo(event.currentTarget.value)}
              />
            </label>
          )}
          <label>
            For how long
            <select data-test="red-for" value={lasting} onChange={(event) => setLasting(event.currentTarget.value)}>
              {LASTING.map((each) => (
                <option key={each} value={each}>
                  {each === 'forever' ? 'until it is lifted' : each}
                </option>
              ))}
            </select>
          </label>
        </div>
        <label>
          Why (callers whose calls are refused read it)
          <input data-test="red-reason" value={reason} required maxLength={500} onInput={(event) => setReason(event.currentTarget.value)} />
        </label>
        {action === 'block' && (
          <label class="check">
            <input type="checkbox" data-test="red-cut" checked={cut} onChange={(event) => setCut(event.currentTarget.checked)} /> also
            cancel what is under way, at once
          </label>
        )}
        {(kind === 'all' || name.trim() !== '') && <Effects draft={order} />}
        {problem !== null && <ProblemBox problem={problem} />}
        <footer>
          <button type="submit" class="main" data-test="red-next" disabled={!isReady || isBusy}>
            {isBusy ? 'Looking …' : 'What would it hit?'}
          </button>
          {!isReady && <span class="muted small">Name whom, and why; nothing happens before you have seen what it hits.</span>}
        </footer>
      </form>
    </>
  );
}

function Effects({ draft }: { readonly draft: OverrideDraft }) {
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

function Press({ tried, order, isBusy, problem, onBack, onPress }: PressProps) {
  const [typed, setTyped] = useState('');
  const hit = tried.would_hit;
  // A name that nobody has is confirmed by typing it, like what covers many.
  const isUnknown = tried.problem !== null || tried.warnings.length > 0;
  const word = isWide(order.target) || isUnknown ? typedWord(order.target) : null;
  const isReady = !isBusy && (word === null || typed.trim() === word);
  return (
    <form
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

/** Until it is in force everywhere, or for a while: who lacks it is cut off, and takes it over when it is back. */
function Progress({ client, ordered }: { readonly client: Client; readonly ordered: OverrideOrdered }) {
  const { clock } = useConsole();
  const [now, setNow] = useState<InForce>(ordered);
  useEffect(() => {
    let isOver = false;
    const until = clock.now() + WATCHED_FOR_MS;
    setNow(ordered);
    const look = async (): Promise<void> => {
      const answer = await client.get<OverrideShown>(`/v1/overrides/${encodeURIComponent(ordered.id)}`);
      if (isOver || !('ok' in answer)) return;
      setNow(answer.ok);
      if (answer.ok.in_force < answer.ok.of && clock.now() < until) clock.after(WATCH_MS, () => void look());
    };
    if (ordered.in_force < ordered.of) void look();
    return () => {
      isOver = true;
    };
  }, [ordered, client, clock]);
  const isAll = now.in_force >= now.of;
  return (
    <div class={`box ${isAll ? 'good' : 'warn'}`} role="status" data-test="red-progress" data-in-force={now.in_force} data-of={now.of}>
      <strong>{wordsOf(now)}</strong>
      <progress max={now.of} value={now.in_force} aria-label={`In force on ${now.in_force} of ${count(now.of)}`} />
      {!isAll && (
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
