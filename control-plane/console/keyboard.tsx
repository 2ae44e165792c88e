/** Keys anywhere on the page; not while somebody types, and not under an open window, which has its own. */
import { useEffect, useRef } from 'preact/hooks';
import type { Clock } from '../../base/clock.ts';
import type { PageName } from './address.ts';
import { actionOf, GO_MS } from './keys.ts';

interface KeyHandlers {
  readonly red: () => void;
  readonly help: () => void;
  readonly theme: () => void;
  readonly go: (page: PageName) => void;
}

export function useKeys(clock: Clock, handlers: KeyHandlers): void {
  const now = useRef(handlers);
  now.current = handlers;
  useEffect(() => {
    let goingSince = Number.NEGATIVE_INFINITY;
    const pressed = (event: KeyboardEvent): void => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (document.querySelector('dialog[open]') !== null) return;
      const field = event.target instanceof HTMLElement && event.target.matches('input, select, textarea') ? event.target : null;
      if (field !== null) {
        if (event.key === 'Escape') field.blur();
        // Out of a search, straight into what it found.
        if (event.key === 'ArrowDown' && field.matches('[type=search]') && move(1)) event.preventDefault();
        return;
      }
      const action = actionOf(event.key, clock.now() - goingSince < GO_MS);
      goingSince = Number.NEGATIVE_INFINITY;
      if (action === null) return;
      if (typeof action === 'object' && 'move' in action) {
        // The browser's own, where there is no further row: it scrolls the page, or the picture.
        const isScrolling = event.key.startsWith('Arrow') && event.target instanceof Element && event.target.closest('.picture') !== null;
        if (!isScrolling && move(action.move)) event.preventDefault();
        return;
      }
      event.preventDefault();
      if (action === 'go') goingSince = clock.now();
      else if (action === 'red') now.current.red();
      else if (action === 'help') now.current.help();
      else if (action === 'theme') now.current.theme();
      else if (action === 'search') document.querySelector<HTMLInputElement>('main [data-search]:not([data-search=false])')?.focus();
      else if ('go' in action) now.current.go(action.go);
      else document.querySelector<HTMLElement>(`main [data-page=${action.page}]`)?.click();
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  }, [clock]);
}

/** To the next row in the order of the page, from where the focus is; false = there is none. */
function move(by: 1 | -1): boolean {
  const rows = [...document.querySelectorAll<HTMLElement>('main [data-row]')].filter((row) => row.getClientRects().length > 0);
  const active = document.activeElement;
  let at = active === null ? -1 : rows.indexOf(active as HTMLElement);
  if (at < 0 && active !== null && active.closest('main') !== null && !active.matches('main'))
    // Between rows: the first one after it, or the last one before it.
    at = rows.filter((row) => (row.compareDocumentPosition(active) & Node.DOCUMENT_POSITION_FOLLOWING) !== 0).length - (by === 1 ? 1 : 0);
  const next = rows[Math.min(rows.length - 1, Math.max(0, at + by))];
  if (next === undefined || next === active) return false;
  next.focus();
  next.scrollIntoView({ block: 'nearest' });
  return true;
}
