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
import { endpointTypes, type TransportKinds } from './index.ts';
import type { TransportKind } from './transport.ts';

/**
 * @param kinds the adapters that there are.
 * @param own name of this sidecar; null = not known: only providers without `via` are judged.
 */
export function withReachable(read: TableReader, kinds: TransportKinds, own: string | null): TableReader {
  return (text, file) => {
    const reading = read(text, file);
    if ('problems' in reading) return reading;
    const problems = reading.document.providers.flatMap((provider, i) => problemsOf(provider, i, kinds, own));
    return problems.length === 0 ? reading : { problems: placed(problems, text, file) };
  };
}

/** Why a sidecar cannot reach a provider that it would have to reach itself; null = it can, or another one has to. */
export function unreachableBecause(provider: ProviderRecord, kinds: TransportKinds, own: string): string | null {
  return problemsOf(provider, 0, kinds, own)[0]?.message ?? null;
}

interface Found {
  readonly path: readonly (string | number)[];
  readonly message: string;
}

function problemsOf(provider: ProviderRecord, i: number, kinds: TransportKinds, own: string | null): Found[] {
  if (provider.via !== null && provider.via !== own) return [];
  const { type } = provider.endpoint;
  const types = endpointTypes(kinds);
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
  return (kinds[type] as TransportKind).problems(provider.endpoint).map((message) => ({ path, message }));
}

/** The file is opened again only when there is something to point at. */
function placed(found: readonly Found[], text: string, file: string): readonly Problem[] {
  const { source } = openSource(text, file);
  const place = new Place(source);
  for (const { path, message } of found) place.at(...path).bad(message);
  return source.problems;
}
