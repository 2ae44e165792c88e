/** The values of single members of an object, as the bytes in which their author wrote them: a view of each, nothing is built. */
import { membersOf, startOf } from './json-members.ts';

const OPEN_MAP = 0x7b;

/** For each name its value's bytes, or null; of two members with one name the last counts, as for `JSON.parse`. Null: no object. */
export function valuesOf(bytes: Buffer, names: readonly string[]): (Buffer | null)[] | null {
  const from = startOf(bytes);
  if (bytes[from] !== OPEN_MAP) return null;
  const found: (Buffer | null)[] = names.map(() => null);
  for (const member of membersOf(bytes, from)) {
    const index = names.indexOf(member.name);
    if (index >= 0) found[index] = bytes.subarray(member.from, member.to);
  }
  return found;
}
