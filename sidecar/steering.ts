/**
 * Where what operators steer by at run time takes effect, and what is measured goes back: quotas and their shares are
 * handed to whoever counts, the capabilities whose traffic is shifted to whoever measures, and both are told with the
 * reports. Decides nothing.
 */
import type { Shares } from '../proto/wire/quotas.ts';
import { REGISTRY_WIRE } from '../proto/wire/registry.ts';
import type { Joined } from './join.ts';
import type { ShiftCounts } from './observe/shift-counts.ts';
import type { Quotas } from './quotas/quotas.ts';

export function steer({ client, bus, subjects }: Joined, quotas: Quotas, shifts: ShiftCounts): { stop(): void } {
  const { reporter } = client;
  quotas.onNews = () => reporter.measured();
  shifts.onNews = () => reporter.measured();
  reporter.measures = {
    hits: () => quotas.hits(),
    demand: () => quotas.demand(),
    shifted: () => shifts.take(),
  };
  const listening = [
    client.quotas.onChange((state) => quotas.replace(state.quotas)),
    client.shifts.onChange(({ watched }) => shifts.watch(watched)),
    bus.subscribe(subjects.shares, ({ data }) => {
      const shares = readShares(data);
      if (shares !== null && shares.epoch === client.quotas.epoch) quotas.share(shares);
    }),
  ];
  // What was on disk has been taken before anybody listened.
  quotas.replace(client.quotas.current().quotas);
  shifts.watch(client.shifts.current().watched);
  return {
    stop: () => {
      for (const each of listening) each.close();
      quotas.stop();
    },
  };
}

/** null = it is none; then the next one counts. */
function readShares(data: Buffer): Shares | null {
  try {
    const shares = JSON.parse(data.toString('utf8')) as Shares | null;
    if (
      shares === null ||
      shares.wire !== REGISTRY_WIRE ||
      typeof shares.epoch !== 'string' ||
      !isPart(shares.rest) ||
      !isPart(shares.burst)
    )
      return null;
    if (typeof shares.shares !== 'object' || shares.shares === null) return null;
    for (const one of Object.values(shares.shares))
      if (!isPart(one.rest) || !isPart(one.burst) || !Object.values(one.of).every(isPart)) return null;
    return shares;
  } catch {
    return null;
  }
}

function isPart(value: unknown): boolean {
  return typeof value === 'number' && value >= 0 && value <= 1;
}
