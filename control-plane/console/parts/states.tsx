/** What stands where there is nothing to show yet, nothing at all, or something that is old or wrong: always in words. */
import type { ComponentChildren } from 'preact';
import type { ApiProblem } from '../client.ts';
import { type Asked, useConsole, useNow } from '../context.tsx';
import { span } from '../format.ts';

export function ProblemBox({ problem }: { readonly problem: ApiProblem }) {
  return (
    <div class="box bad" role="alert" data-test="page-problem">
      <strong>{problem.code > 0 ? `${problem.code} ${problem.name}: ` : ''}</strong>
      {problem.detail}
      {problem.mistakes.length > 0 && (
        <ul class="plain mono">
          {problem.mistakes.map((each) => (
            <li key={each}>{each}</li>
          ))}
        </ul>
      )}
    </div>
  );
}

export function Empty({ children }: { readonly children: ComponentChildren }) {
  return (
    <p class="empty" data-test="empty">
      {children}
    </p>
  );
}

export function Loading({ what }: { readonly what: string }) {
  return (
    <p class="empty" role="status">
      Asking for {what} …
    </p>
  );
}

/** How old an answer may be before it is said. */
const OLD_MS = 45_000;

interface ShownProps<T> {
  readonly asked: Asked<T>;
  readonly what: string;
  readonly children: (data: T) => ComponentChildren;
}

/** The answer once it is there; before, or when it is old, that in words. */
export function Shown<T>({ asked, what, children }: ShownProps<T>) {
  const { data, problem } = asked;
  if (data === null) return problem === null ? <Loading what={what} /> : <ProblemBox problem={problem} />;
  return (
    <>
      <Age asked={asked} />
      {children(data)}
    </>
  );
}

/** By itself, so that not everything is made anew with each second that passes. */
function Age({ asked: { problem, atMs, again } }: Pick<ShownProps<unknown>, 'asked'>) {
  const age = useNow() - atMs;
  if (problem === null && age <= OLD_MS) return null;
  return (
    <div class="box warn" data-test="stale">
      {/* The age apart: whatever changes in a place that is read out is read out, each second. */}
      <span role="status">What is shown here is old{problem === null ? '' : `: ${problem.detail}`}.</span>{' '}
      <span class="muted">It is of {span(age)} ago.</span> <button onClick={again}>Ask again</button>
    </div>
  );
}

/** What operators may do; viewers read why there is nothing. */
export function Actions({ children }: { readonly children: ComponentChildren }) {
  const { mayAct } = useConsole();
  return mayAct ? <div class="actions">{children}</div> : null;
}

export function ViewerNote() {
  const { mayAct, session } = useConsole();
  return mayAct ? null : (
    <p class="muted small" data-test="viewer-note">
      {session.name} is a viewer and may look but not change: actions need the role operator.
    </p>
  );
}
