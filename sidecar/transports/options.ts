/** What people wrote for an adapter under `endpoint:`, read by the same kit as the table, so that it is refused in the same words. */
import type { Endpoint } from '../../proto/language/types.ts';
import { BAD, type FieldTable, object, openSource, Place, type ReadFields } from '../../proto/language/reader.ts';

/** The fields of its `options`, or every problem; a key that the table does not know is refused with a suggestion. */
export function readOptions<F extends FieldTable>(fields: F, options: Endpoint['options']): ReadFields<F> | readonly string[] {
  const { source } = openSource('{}', '');
  const read = object('endpoint', fields).read(options, new Place(source, ['endpoint']));
  if (read !== BAD && source.problems.length === 0) return read;
  return source.problems.map(({ path, message }) =>
    path.length > '/endpoint'.length ? `${path.slice('/endpoint'.length)}: ${message}` : message,
  );
}

export function isProblems<T>(read: T | readonly string[]): read is readonly string[] {
  return Array.isArray(read);
}
