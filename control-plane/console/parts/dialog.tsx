/** Windows over the page: the browser's own dialog keeps the focus inside, closes on Escape and gives the focus back. */
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { Answer, ApiProblem } from '../client.ts';
import { useConsole } from '../context.tsx';
import { Said, useWindow } from './said.tsx';
import { ProblemBox } from './states.tsx';

interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
  readonly test?: string;
  readonly tone?: 'red';
}

let count = 0;

export function Dialog({ title, onClose, children, test, tone }: DialogProps) {
  const box = useRef<HTMLDialogElement>(null);
  const [id] = useState(() => `dialog-${++count}`);
  useWindow(id);
  useLayoutEffect(() => {
    const dialog = box.current;
    const before = document.activeElement;
    dialog?.showModal();
    // Not the cross in the corner: the first field, or the way back.
    const first =
      dialog?.querySelector<HTMLElement>('[data-first=true]') ?? dialog?.querySelector<HTMLElement>('form input, form select, form button');
    first?.focus();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={box}
      class={tone}
      aria-labelledby={id}
      data-test={test}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onMouseDown={(event) => {
        if (event.target === box.current) onClose();
      }}
    >
      <div class="dialog-inside">
        <header>
          <h2 id={id}>{title}</h2>
          <button class="quiet" onClick={onClose} aria-label="Close">
            ✕
          </button>
        </header>
        {children}
        <Said of={id} />
      </div>
    </dialog>
  );
}

export interface Act {
  /** On the button, and the title of the question. */
  readonly label: string;
  /** What will happen. */
  readonly words: ComponentChildren;
  /** What has to be typed; absent = a second click is enough. */
  readonly typed?: string;
  /** Whether a reason is asked for; it stands in the audit log. */
  readonly hasReason?: boolean;
  /** A further text that is needed, such as where to. */
  readonly field?: { readonly label: string; readonly hint: string; readonly value?: string };
  readonly isBad?: boolean;
  readonly run: (said: { readonly reason: string; readonly field: string }) => Promise<Answer<unknown>>;
  /** Said when it is done. */
  readonly done: string | ((answer: unknown) => string);
  readonly after?: () => void;
}

/** A button that asks once more before anything happens, and says what will. */
export function ActButton({ act, test, isDisabled }: { readonly act: Act; readonly test?: string; readonly isDisabled?: boolean }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <button class={act.isBad === true ? 'bad' : ''} data-test={test} disabled={isDisabled} onClick={() => setOpen(true)}>
        {act.label}
      </button>
      {isOpen && <Confirm act={act} onClose={() => setOpen(false)} />}
    </>
  );
}

function Confirm({ act, onClose }: { readonly act: Act; readonly onClose: () => void }) {
  const { say } = useConsole();
  const [reason, setReason] = useState('');
  const [typed, setTyped] = useState('');
  const [field, setField] = useState(act.field?.value ?? '');
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const isReady = !isBusy && (act.typed === undefined || typed.trim() === act.typed) && (act.field === undefined || field.trim() !== '');
  const run = async (): Promise<void> => {
    setBusy(true);
    setProblem(null);
    const answer = await act.run({ reason: reason.trim(), field: field.trim() }).finally(() => setBusy(false));
    if ('problem' in answer) {
      setProblem(answer.problem);
      return;
    }
    say(
      `${typeof act.done === 'string' ? act.done : act.done(answer.ok)}${answer.pending === null ? '' : ` It is not in the audit log yet: ${answer.pending}`}`,
    );
    onClose();
    act.after?.();
  };
  return (
    <Dialog title={act.label} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (isReady) void run();
        }}
      >
        <div class="words">{act.words}</div>
        {act.field !== undefined && (
          <label>
            {act.field.label}
            <input data-test="field" value={field} placeholder={act.field.hint} onInput={(event) => setField(event.currentTarget.value)} />
          </label>
        )}
        {act.hasReason === true && (
          <label>
            Why (stands in the audit log)
            <input data-test="reason" maxLength={500} value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
          </label>
        )}
        {act.typed !== undefined && (
          <label>
            <span>
              Type <strong class="mono">{act.typed}</strong> to confirm
            </span>
            <input data-test="typed" autocomplete="off" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
          </label>
        )}
        {problem !== null && <ProblemBox problem={problem} />}
        <footer>
          <button type="button" data-test="cancel" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class={act.isBad === true ? 'red' : 'main'} data-test="confirm" disabled={!isReady} aria-busy={isBusy}>
            {isBusy ? 'Working …' : act.label}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
