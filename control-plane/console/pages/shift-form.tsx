/** Begins a shift of traffic: to which version or provider, in which steps, and what must hold on the way. */
import { useState } from 'preact/hooks';
import type { ApiProblem } from '../client.ts';
import { useConsole } from '../context.tsx';
import { Dialog } from '../parts/dialog.tsx';
import { ProblemBox } from '../parts/states.tsx';

interface ShiftFormProps {
  readonly onClose: () => void;
  readonly after: () => void;
}

const FIELDS = [
  ['capability', 'Capability', 'crm.order.query'],
  ['name', 'To which version, or agent', '2.1.0 or crm.order.b'],
  ['steps', 'Shares, one after the other', '5%, 20%, 100%'],
  ['every', 'Each step lasts', '5m'],
  ['errors', 'Taken back above this share of errors', '5%'],
  ['reason', 'Why (stands in the audit log)', ''],
] as const;
type Field = (typeof FIELDS)[number][0];

export function ShiftForm({ onClose, after }: ShiftFormProps) {
  const { client, say } = useConsole();
  const [given, setGiven] = useState<Readonly<Record<Field, string>>>({
    capability: '',
    name: '',
    steps: '5%, 20%, 100%',
    every: '5m',
    errors: '5%',
    reason: '',
  });
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const isReady = given.capability.trim() !== '' && given.name.trim() !== '' && given.steps.trim() !== '';
  const start = async (): Promise<void> => {
    const answer = await client.order<{ readonly id: string }>('POST', '/v1/shifts', bodyOf(given));
    if ('problem' in answer) {
      setProblem(answer.problem);
      return;
    }
    say(`The shift ${answer.ok.id} has begun.`);
    onClose();
    after();
  };
  return (
    <Dialog title="Shift traffic" onClose={onClose} test="shift-form">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (isReady) void start();
        }}
      >
        <p>Traffic goes over step by step. When more attempts fail there than may, what was before is put back by itself.</p>
        <div class="two">
          {FIELDS.map(([name, label, hint]) => (
            <label key={name}>
              {label}
              <input
                value={given[name]}
                placeholder={hint}
                data-test={`shift-${name}`}
                onInput={(event) => setGiven({ ...given, [name]: event.currentTarget.value })}
              />
            </label>
          ))}
        </div>
        {problem !== null && <ProblemBox problem={problem} />}
        <footer>
          <button type="button" data-test="cancel" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="main" data-test="confirm" disabled={!isReady}>
            Begin
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

function bodyOf({ capability, name, steps, every, errors, reason }: Readonly<Record<Field, string>>): Record<string, unknown> {
  const target = name.trim();
  const shares = steps.split(/[\s,]+/).filter((share) => share !== '');
  return {
    capability: capability.trim(),
    // An agent's id begins with a letter, a version with a digit.
    ...(/^\d/.test(target) ? { version: target } : { provider: target }),
    ...(shares.length === 1 ? { share: shares[0] } : { steps: shares }),
    ...(shares.length === 1 || every.trim() === '' ? {} : { every: every.trim() }),
    ...(errors.trim() === '' ? {} : { guard: { errors: errors.trim() } }),
    ...(reason.trim() === '' ? {} : { reason: reason.trim() }),
  };
}
