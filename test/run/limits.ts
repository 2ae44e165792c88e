/** How test files are run: as many at a time as the smallest machine has cores, and none longer than two minutes. */
export const LIMITS = {
  jobs: 2,
  limitMs: 120_000,
  /**
   * Files that wait for most of their time, for outages and leases that must be real: they use less than a third of a core (`time`, user
   * and system over real; together a seventh), so one of them at a time runs beside the two. The longest first, so that none is left
   * over at the end.
   */
  patient: [
    'test/cases/nats.test.ts',
    'test/unit/control-plane/messages.test.ts',
    'test/e2e/long-work.test.ts',
    'test/conformance/transports.test.ts',
    'test/unit/control-plane/upkeep.test.ts',
    'test/e2e/control-plane.test.ts',
    'test/unit/sidecar/ledger/nats-ledger.test.ts',
    'test/e2e/send.test.ts',
    'test/cases/nats-messages.test.ts',
  ],
} as const;
