/** Who are you: an operator's token, given once; it becomes a session's cookie and is kept nowhere on this page. */
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { ApiProblem, Client } from './client.ts';
import { ProblemBox } from './parts/states.tsx';
import type { Session } from './shapes.ts';

interface SignInProps {
  readonly client: Client;
  /** Why one is asked; '' = nobody was signed in. */
  readonly why: string;
  readonly onSession: (session: Session) => void;
}

export function SignIn({ client, why, onSession }: SignInProps) {
  const field = useRef<HTMLInputElement>(null);
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const [isBusy, setBusy] = useState(false);
  useLayoutEffect(() => field.current?.focus(), []);
  const signIn = async (): Promise<void> => {
    const token = field.current?.value.trim() ?? '';
    if (token === '') return;
    setBusy(true);
    const answer = await client.order<Session>('POST', '/v1/session', { token });
    setBusy(false);
    if (field.current !== null) field.current.value = '';
    if ('problem' in answer) {
      setProblem(answer.problem);
      field.current?.focus();
    } else onSession(answer.ok);
  };
  return (
    <main class="sign-in">
      <h1>Agent-Reach</h1>
      <p>
        {why !== '' && <strong>{why} </strong>}
        Sign in with your operator’s token, the one that reachctl uses.
      </p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void signIn();
        }}
      >
        <label>
          Token
          <input ref={field} type="password" autocomplete="current-password" required data-test="sign-in-token" />
        </label>
        <button type="submit" class="main" data-test="sign-in-submit" disabled={isBusy}>
          {isBusy ? 'Signing in …' : 'Sign in'}
        </button>
      </form>
      {problem !== null && (
        <div data-test="sign-in-error">
          <ProblemBox problem={problem} />
        </div>
      )}
      <p class="muted small">Viewers may look, operators may also change. Tokens stand in the settings of the control plane (operators).</p>
    </main>
  );
}
