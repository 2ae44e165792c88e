/**
 * What only a sidecar can tell about a table: whether it has an adapter for every endpoint that it has to reach itself,
 * and whether that adapter understands what was written for it. A misspelt transport is refused with the table, at its
 * place in the file, rather than found out by the first call. Providers behind another sidecar are that one's affair.
 */
import { quote } from '../../base/duration.ts';
import { nearest } from '../../base/suggest.ts';
import { openSource, Place } from '../../proto/language/reader.ts';
import type { Problem, ProviderRecord } from '../../proto/language/types.ts';
import type { TableReader } from '../table/file.ts';
import { readScript } from './mock-script.ts';

/**
 * @param types the endpoint types that there are adapters for.
 * @param own name of this sidecar; null = not known: only providers without `via` are judged.
 */
export function withReachable(read: TableReader, types: readonly string[], own: string | null): TableReader {
  return (text, file) => {
    const reading = read(text, file);
    if ('problems' in reading) return reading;
    const problems = reading.document.providers.flatMap((provider, i) => problemsOf(provider, i, types, own));
    return problems.length === 0 ? reading : { problems: placed(problems, text, file) };
  };
}

/** Why a sidecar cannot reach a provider that it would have to reach itself; null = it can, or another one has to. */
export function unreachableBecause(provider: ProviderRecord, types: readonly string[], own: string): string | null {
  return problemsOf(provider, 0, types, own)[0]?.message ?? null;
}

interface Found {
  readonly path: readonly (string | number)[];
  readonly message: string;
}

function problemsOf(provider: ProviderRecord, i: number, types: readonly string[], own: string | null): Found[] {
  if (provider.via !== null && provider.via !== own) return [];
  const { type, options } = provider.endpoint;
  const path = ['providers', i, 'endpoint'];
  if (!types.includes(type)) {
    const near = nearest(type, types);
    return [
      {
        path: [...path, 'type'],
        message: `no transport is called ${quote(type)}${near === null ? `; there are ${types.join(', ')}` : `; did you mean ${near}?`}`,
      },
    ];
  }
  if (type !== 'mock') return [];
  const script = readScript(options);
  return 'base' in script ? [] : script.map((message) => ({ path, message }));
}

/** The file is opened again only when there is something to point at. */
function placed(found: readonly Found[], text: string, file: string): readonly Problem[] {
  const { source } = openSource(text, file);
  const place = new Place(source);
  for (const { path, message } of found) place.at(...path).bad(message);
  return source.problems;
}
