/** The sections of a table as they were read, good entries and bad ones, for the checks over the whole. */
import { BAD, type Bad } from './reader.ts';
import type { Contract, Override, Policy, ProviderRecord, SidecarAddress } from './types.ts';

/** One section as read: BAD stands where an entry could not be used; `raw` is what was written there. */
export interface Section<T> {
  readonly entries: readonly (T | Bad)[];
  readonly raw: readonly unknown[];
}

export interface Sections {
  readonly contracts: Section<Contract>;
  readonly providers: Section<ProviderRecord>;
  readonly policies: Section<Policy>;
  readonly overrides: Section<Override>;
  readonly sidecars: Section<SidecarAddress>;
}

/** Good entries with their index. */
export function* good<T>(section: Section<T>): Generator<[number, T]> {
  for (const [i, entry] of section.entries.entries()) if (entry !== BAD) yield [i, entry];
}
