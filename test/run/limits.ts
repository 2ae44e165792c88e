/** How test files are run: as many at a time as the smallest machine has cores, and none longer than two minutes. */
export const LIMITS = { jobs: 2, limitMs: 120_000 } as const;
