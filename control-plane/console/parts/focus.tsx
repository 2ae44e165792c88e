/** A row that moves to another place of its list keeps the keyboard's focus: to the browser it has been taken out and put in again. */
import type { RefObject } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';

export function useKeptFocus<T extends HTMLElement>(): RefObject<T | null> {
  const list = useRef<T>(null);
  const held = document.activeElement;
  useLayoutEffect(() => {
    if (held === null || held === document.activeElement || !held.isConnected) return;
    if (list.current?.contains(held) === true) (held as HTMLElement).focus({ preventScroll: true });
  });
  return list;
}
