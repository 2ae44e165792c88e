/**
 * What was done, said in a corner and to screen readers for some seconds. Under an open window everything else is out of reach, to
 * eyes on a small screen and to screen readers on any: so each window has a place for it too, and the uppermost one says it. The
 * places are always there, because only what changes in a place that is known is read out.
 */
import { createContext } from 'preact';
import { useContext, useEffect, useLayoutEffect, useState } from 'preact/hooks';

export interface Saying {
  readonly id: number;
  readonly words: string;
}

export const SaidContext = createContext<readonly Saying[]>([]);

/** Open windows, the uppermost last. */
const windows: string[] = [];
const watchers = new Set<() => void>();

/** A window is open as long as what calls this is there. */
export function useWindow(id: string): void {
  useLayoutEffect(() => {
    windows.push(id);
    for (const changed of watchers) changed();
    return () => {
      windows.splice(windows.indexOf(id), 1);
      for (const changed of watchers) changed();
    };
  }, [id]);
}

/** @param of the window in which it stands; null = the page */
export function Said({ of }: { readonly of: string | null }) {
  const said = useContext(SaidContext);
  const [top, setTop] = useState(() => windows.at(-1) ?? null);
  useEffect(() => {
    const changed = (): void => setTop(windows.at(-1) ?? null);
    watchers.add(changed);
    changed();
    return () => void watchers.delete(changed);
  }, []);
  const isHere = top === of;
  return (
    <div class="said" role="status" aria-live="polite" data-test={isHere ? 'said' : undefined}>
      {isHere && said.map(({ id, words }) => <p key={id}>{words}</p>)}
    </div>
  );
}
