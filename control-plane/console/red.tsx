/**
 * The red button: what is in force, with the time it has left and the way to lift it; and a new order in two steps: what, whom, why
 * and for how long; then what that would do and hit (asked of the control plane without writing anything), and only then the press.
 * What covers more than one name has to be typed once more. What becomes of a press whose answer is lost: red-order.ts.
 */
import { useState } from 'preact/hooks';
import { systemRandom } from '../../base/random.ts';
import type { ApiProblem } from './client.ts';
import { type Asked, type RedPreset, useApi, useConsole } from './context.tsx';
import { Dialog } from './parts/dialog.tsx';
import { OverrideList } from './parts/overrides.tsx';
import { ProblemBox, Shown, ViewerNote } from './parts/states.tsx';
import { type NamedOrder, named, type Order, pressed, tryOut } from './red-order.ts';
import { Effects, Press, Progress } from './red-press.tsx';
import type { OverrideAction, OverrideOrdered, OverridesAnswer, OverrideTarget, OverrideTried } from './shapes.ts';
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

export function RedPanel({ preset, onClose }: { readonly preset: RedPreset; readonly onClose: () => void }) {
  const { mayAct } = useConsole();
  const asked = useApi<OverridesAnswer>('/v1/overrides', TOPICS.overrides, { gapMs: 500 });
  return (
    <Dialog title="Red button" onClose={onClose} test="red-panel" tone="red">
      <ViewerNote />
      {mayAct && <NewOrder preset={preset} list={asked} />}
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

function kindOf(target: OverrideTarget | undefined): Kind {
  return KINDS.find((kind) => target?.[kind] !== undefined) ?? 'capability';
}

function NewOrder({ preset, list }: { readonly preset: RedPreset; readonly list: Asked<OverridesAnswer> }) {
  const { client, unsure } = useConsole();
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
  const [tried, setTried] = useState<{ readonly order: NamedOrder; readonly answer: OverrideTried } | null>(null);
  const [ordered, setOrdered] = useState<OverrideOrdered | null>(null);
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const [isBusy, setBusy] = useState(false);
  const target: OverrideTarget = kind === 'all' ? { all: true } : { [kind]: name.trim() };
  const order: Order = { action, target, to: to.trim(), cut: cut && action === 'block', reason: reason.trim(), lasting };
  const isReady = (kind === 'all' || name.trim() !== '') && reason.trim() !== '' && (action !== 'reroute' || to.trim() !== '');
  const look = async (): Promise<void> => {
    setBusy(true);
    setProblem(null);
    const one = named(order, unsure.current, systemRandom);
    const answer = await tryOut(client, one);
    setBusy(false);
    if ('problem' in answer) setProblem(answer.problem);
    else setTried({ order: one, answer: answer.ok });
  };
  const press = async (isMeant: boolean): Promise<void> => {
    if (tried === null) return;
    setBusy(true);
    setProblem(null);
    const outcome = await pressed(client, tried.order, isMeant);
    setBusy(false);
    list.again();
    unsure.current = 'isUnsure' in outcome && outcome.isUnsure ? tried.order : null;
    if ('problem' in outcome) {
      setProblem(outcome.problem);
      return;
    }
    setTried(null);
    setOrdered(outcome.ordered);
    setReason('');
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
      {ordered !== null && <Progress ordered={ordered} list={list} />}
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
                data-first={preset.target === undefined}
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
          <input
            data-test="red-reason"
            data-first={preset.target !== undefined}
            value={reason}
            required
            maxLength={500}
            onInput={(event) => setReason(event.currentTarget.value)}
          />
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
