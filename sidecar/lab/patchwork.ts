/** A place in a file whose parts stand elsewhere: in other steps, in a variant, in another file. Problems point to where the text is. */
import { Place } from '../../proto/language/reader.ts';

export class Patchwork extends Place {
  readonly #homes: ReadonlyMap<string | number, Place>;
  constructor(base: Place, homes: ReadonlyMap<string | number, Place>) {
    super(base.source, base.path);
    this.#homes = homes;
  }
  override at(...steps: (string | number)[]): Place {
    const [first, ...rest] = steps;
    const home = first === undefined ? undefined : this.#homes.get(first);
    if (home === undefined) return super.at(...steps);
    return rest.length === 0 ? home : home.at(...rest);
  }
}

/** A map whose keys stand where `patch` has them, and else where the base is. */
export function patched(base: Place, patch: Readonly<Record<string, unknown>>, at: Place): Place {
  return new Patchwork(base, new Map(Object.keys(patch).map((key) => [key, at.at(key)])));
}
