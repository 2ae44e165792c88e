/** What came of one file of scenarios: a report for each of its runs, or why it could not be used. */
import type { Problem } from '../../proto/language/types.ts';
import type { RunReport } from './run.ts';

export type Ending = { readonly file: string } & ({ readonly reports: readonly RunReport[] } | { readonly problems: readonly Problem[] });
