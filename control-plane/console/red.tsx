/**
 * The red button: what is in force, with the time it has left and the way to lift it; and a new order in two steps: what, whom, why
 * and for how long; then what that would do and hit (asked of the control plane without writing anything), and only then the press.
 * What covers more than one name has to be typed once more.
 */
import { useState } from 'preact/hooks';
import type { ApiProblem } from './client.ts';
import { type RedPreset, useApi, useConsole } from './context.tsx';
import { Dialog } from './parts/dialog.tsx';
import { OverrideList } from './parts/overrides.tsx';
import { ProblemBox, Shown, ViewerNote } from './parts/states.tsx';
import { Effects, type Order, Press, Progress } from './red-press.tsx';
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

function kindOf(target: OverrideTarget | undefined): Kind {
  return KINDS.find((kind) => target?.[kind] !== undefined) ?? 'capability';
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
