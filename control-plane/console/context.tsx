/** What every part of the page can reach: who looks, the way to the API, the clock; and how it asks and is told of changes. */
import { createContext } from 'preact';
import { useContext, useEffect, useRef, useState } from 'preact/hooks';
import type { Clock, Timer } from '../../base/clock.ts';
import type { Address } from './address.ts';
import type { Answer, ApiProblem, Client } from './client.ts';
import type { Live } from './live.ts';
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

/** What changes without anybody saying so (rates that sink, ages) is asked for this often. */
const QUIET_MS = 20_000;
/** However often something changes, unless a page says otherwise. */
const GAP_MS = 2_000;
/** What is told together is asked for together. */
const SOON_MS = 200;

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
    let isOver = false;
    let isAsking = false;
    let isWanted = false;
    let next: Timer | null = null;
    let askedMs = Number.NEGATIVE_INFINITY;
    const ask = async (): Promise<void> => {
      next?.cancel();
      isAsking = true;
      isWanted = false;
      const answer: Answer<T> = await client.get<T>(path);
      isAsking = false;
      if (isOver) return;
      setState((before) => {
        const kept = isSame || before.path === path ? before : { data: null, atMs: 0 };
        return 'ok' in answer
          ? { path, data: answer.ok, problem: null, atMs: clock.wallMs() }
          : { path, data: kept.data, problem: answer.problem, atMs: kept.atMs };
      });
      next = clock.after(isWanted ? gapMs : QUIET_MS, look);
      askedMs = clock.now();
    };
    const look = (): void => {
      // A page that nobody sees asks nothing; it asks when it is seen again.
      if (document.hidden) next = clock.after(QUIET_MS, look);
      else void ask();
    };
    const changed = (): void => {
      if (isAsking || isWanted) {
        isWanted = true;
        return;
      }
      isWanted = true;
      next?.cancel();
      next = clock.after(Math.max(SOON_MS, askedMs + gapMs - clock.now()), look);
    };
    asking.current = () => void ask();
    const seen = (): void => {
      if (!document.hidden) changed();
    };
    document.addEventListener('visibilitychange', seen);
    const unwatch = live.watch(about.split(' '), changed);
    void ask();
    return () => {
      isOver = true;
      next?.cancel();
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
