/** What every part of the page can reach: who looks, the way to the API, the clock; and how it asks and is told of changes. */
import { createContext } from 'preact';
import { useContext, useEffect, useRef, useState } from 'preact/hooks';
import type { Clock } from '../../base/clock.ts';
import type { Address } from './address.ts';
import { Asking } from './asking.ts';
import type { Answer, ApiProblem, Client } from './client.ts';
import type { Live } from './live.ts';
import type { NamedOrder } from './red-order.ts';
import type { OverrideAction, OverrideTarget, Session } from './shapes.ts';

export interface RedPreset {
  readonly action?: OverrideAction;
  readonly target?: OverrideTarget;
}

export interface Console {
  readonly client: Client;
  readonly live: Live;
  readonly clock: Clock;
  readonly session: Session;
  readonly mayAct: boolean;
  readonly address: Address;
  /** Opens the red button's panel. */
  readonly openRed: (preset?: RedPreset) => void;
  /** The order that was pressed and of which it is not known whether it stands; kept while the panel is closed. */
  readonly unsure: { current: NamedOrder | null };
  /** Says something in a corner, and to screen readers. */
  readonly say: (words: string) => void;
}

export const ConsoleContext = createContext<Console>(null as unknown as Console);
/** Wall time, once a second. */
export const NowContext = createContext(0);

export const useConsole = (): Console => useContext(ConsoleContext);
export const useNow = (): number => useContext(NowContext);

export interface Asked<T> {
  /** The newest answer; kept when a later question fails. */
  readonly data: T | null;
  /** Why the newest question failed; null = it did not. */
  readonly problem: ApiProblem | null;
  /** When `data` came, wall time. */
  readonly atMs: number;
  readonly again: () => void;
}

/** However often something changes, unless a page says otherwise. */
const GAP_MS = 2_000;

export interface AskOptions {
  /** Between two questions, at least. */
  readonly gapMs?: number;
  /** Another path asks for more of the same: what is there stays until the answer comes. */
  readonly isSame?: boolean;
}

/** Asks, and again whenever one of the topics has changed. @param path null = nothing is asked */
export function useApi<T>(path: string | null, topics: readonly string[], { gapMs = GAP_MS, isSame = false }: AskOptions = {}): Asked<T> {
  const { client, live, clock } = useConsole();
  const [state, setState] = useState<{ path: string | null; data: T | null; problem: ApiProblem | null; atMs: number }>({
    path,
    data: null,
    problem: null,
    atMs: 0,
  });
  const asking = useRef<() => void>(() => {});
  const about = topics.join(' ');
  useEffect(() => {
    if (path === null) return undefined;
    const asked = new Asking<Answer<T>>({
      clock,
      gapMs,
      isHidden: () => document.hidden,
      ask: () => client.get<T>(path),
      show: (answer) =>
        setState((before) => {
          const kept = isSame || before.path === path ? before : { data: null, atMs: 0 };
          return 'ok' in answer
            ? { path, data: answer.ok, problem: null, atMs: clock.wallMs() }
            : { path, data: kept.data, problem: answer.problem, atMs: kept.atMs };
        }),
    });
    asking.current = () => asked.now();
    const seen = (): void => {
      if (!document.hidden) asked.seen();
    };
    document.addEventListener('visibilitychange', seen);
    const unwatch = live.watch(about.split(' '), () => asked.changed());
    asked.now();
    return () => {
      asked.stop();
      unwatch();
      document.removeEventListener('visibilitychange', seen);
    };
  }, [path, about, gapMs, isSame, client, live, clock]);
  const isCurrent = isSame || state.path === path;
  return {
    data: isCurrent ? state.data : null,
    problem: isCurrent ? state.problem : null,
    atMs: isCurrent ? state.atMs : 0,
    again: () => asking.current(),
  };
}
