/** JSON pointers (RFC 6901): `''` is the whole value, `/a/0` a place in it. */

/** Why `text` is no pointer; null when it is one. */
export function pointerProblem(text: string): string | null {
  if (text === '') return null;
  if (!text.startsWith('/')) return 'a JSON pointer begins with /, such as /customer/id';
  if (/~(?![01])/.test(text)) return 'in a JSON pointer ~ is written ~0 and a / inside a name ~1';
  return null;
}

/** A name as it stands in a pointer. */
export function stepOf(name: string): string {
  return name.replaceAll('~', '~0').replaceAll('/', '~1');
}
