/** The keys. */
import { PAGE_KEYS } from './keys.ts';
import { Dialog } from './parts/dialog.tsx';

const KEYS: readonly (readonly [string, string])[] = [
  ['b', 'the red button, from everywhere'],
  ['/', 'search on this page'],
  ['j k, ↓ ↑', 'next and previous row'],
  ['Enter', 'open the row'],
  ['n N', 'next page of a list, and back'],
  ['Esc', 'close a window; leave a field'],
  ['d', 'dark, light, or as the system is'],
  ['Alt ←', 'back'],
  ['?', 'this'],
];

export function Help({ onClose }: { readonly onClose: () => void }) {
  return (
    <Dialog title="Keys" onClose={onClose} test="help-panel">
      <div class="two">
        <dl class="keys">
          {KEYS.map(([key, words]) => (
            <div key={key}>
              <dt>
                <kbd>{key}</kbd>
              </dt>
              <dd>{words}</dd>
            </div>
          ))}
        </dl>
        <dl class="keys">
          {Object.entries(PAGE_KEYS).map(([key, page]) => (
            <div key={key}>
              <dt>
                <kbd>g</kbd> <kbd>{key}</kbd>
              </dt>
              <dd>{page}</dd>
            </div>
          ))}
        </dl>
      </div>
    </Dialog>
  );
}
