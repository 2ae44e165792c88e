/** What Prometheus reads of a replica. All of it is read when somebody scrapes; only requests are counted as they come. */
import { metricsContentType } from '../../base/metric.ts';
import { ALERT_KINDS, ALERT_STATES } from '../alerts/alert.ts';
import type { Leading } from '../push/leading.ts';
import { isOver } from '../shifts/shift.ts';
import { CONTROL_METRICS as METRICS } from './declared-metrics.ts';
import { ControlPage } from './metric-page.ts';
import type { Plane } from './plane.ts';

/** Requests answered, by route (the template, never a path that somebody made up) and status. */
export class RequestCounts {
  readonly #counts = new Map<string, number>();

  add(route: string, status: number): void {
    const key = `${route} ${status}`;
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
  }

  *all(): Generator<{ readonly route: string; readonly status: string; readonly count: number }> {
    for (const [key, count] of this.#counts) {
      const cut = key.lastIndexOf(' ');
      yield { route: key.slice(0, cut), status: key.slice(cut + 1), count };
    }
  }
}

/** Agents that are named one by one. */
const MAX_OFFLINE = 200;

export async function metricsText(plane: Plane, counts: RequestCounts): Promise<{ readonly text: string; readonly contentType: string }> {
  const page = new ControlPage(Object.values(METRICS));
  readReplica(page, plane);
  readFleet(page, plane);
  if (plane.epoch !== '') readRegistry(page, plane);
  if (plane.leading !== null) {
    readMessages(page, plane.leading);
    readAlerts(page, plane.leading);
  }
  readSeen(page, plane);
  for (const { route, status, count } of counts.all()) page.set(METRICS.requests, count, route, status);
  readProcess(page);
  return { text: await page.text(), contentType: metricsContentType('text') };
}

function readReplica(page: ControlPage, plane: Plane): void {
  const { leading, mirror, audit } = plane;
  page.set(METRICS.leading, leading === null ? 0 : 1);
  page.set(METRICS.term, plane.leader()?.term ?? 0);
  page.set(METRICS.connected, plane.natsConnected ? 1 : 0);
  page.set(METRICS.warnings, plane.warnings().length);
  page.set(METRICS.lastSequence, mirror.lastSeq);
  page.set(METRICS.subjects, mirror.size);
  page.set(METRICS.pendingWrites, leading?.writer.pending ?? 0);
  page.set(METRICS.held, leading?.held.length ?? 0);
  const { done, refused, lost, waiting } = audit.counts;
  page.set(METRICS.auditEntries, done, 'done');
  page.set(METRICS.auditEntries, refused, 'refused');
  page.set(METRICS.auditEntries, lost, 'lost');
  page.set(METRICS.auditWaiting, waiting);
}

function readFleet(page: ControlPage, { fleet, clock, overrides }: Plane): void {
  const standings: Record<string, number> = { current: 0, behind: 0, stale: 0, missing: 0 };
  let refusing = 0;
  let behind = 0;
  for (const row of fleet.rows(clock.now())) {
    standings[row.standing] = (standings[row.standing] ?? 0) + 1;
    if (row.refused.length > 0) refusing++;
    behind = Math.max(behind, row.behind);
  }
  for (const [standing, count] of Object.entries(standings)) page.set(METRICS.sidecars, count, standing);
  page.set(METRICS.refusing, refusing);
  page.set(METRICS.behind, behind);
  page.set(METRICS.overrides, overrides.overrides.length);
  page.set(METRICS.overridesMissing, overrides.count(overrides.seq).missing.length);
}

function readRegistry(page: ControlPage, plane: Plane): void {
  const registry = plane.registry();
  const statuses: Record<string, number> = { online: 0, offline: 0, overdue: 0 };
  let named = 0;
  for (const { agent, sidecar, status, why, drain } of registry.providers()) {
    statuses[status] = (statuses[status] ?? 0) + 1;
    if (status === 'offline' && (why === 'lease' || why === 'probe') && !drain && named++ < MAX_OFFLINE)
      page.set(METRICS.offline, 1, agent, sidecar);
  }
  for (const [status, count] of Object.entries(statuses)) page.set(METRICS.providers, count, status);
  page.set(METRICS.capabilities, registry.capabilities().length);
  page.set(METRICS.shifts, registry.operators().shifts.shifts.filter((shift) => !isOver(shift)).length);
}

function readMessages(page: ControlPage, { messages }: Leading): void {
  const { pools, parkedPools, waiting, fullest, inHand, kept, fill, ghosts, expired } = messages.figures;
  page.set(METRICS.pools, pools);
  page.set(METRICS.parkedPools, parkedPools);
  for (const [lane, count] of Object.entries(waiting)) page.set(METRICS.waiting, count, lane);
  for (const { pool, capability, waiting: count } of fullest) page.set(METRICS.poolWaiting, count, pool, capability);
  page.set(METRICS.inHand, inHand);
  page.set(METRICS.kept, kept);
  page.set(METRICS.ghosts, ghosts);
  page.set(METRICS.expired, expired);
  for (const [stream, ratio] of fill) page.set(METRICS.fill, ratio, stream);
}

function readAlerts(page: ControlPage, { alerts, messages }: Leading): void {
  const { book } = alerts;
  for (const kind of ALERT_KINDS)
    for (const state of ALERT_STATES)
      page.set(METRICS.alerts, book.alerts.filter((one) => one.kind === kind && one.state === state).length, kind, state);
  page.set(METRICS.alertsUntold, book.dropped);
  if (messages.notices !== null) page.set(METRICS.noticesFailing, messages.notices.trouble === '' && alerts.trouble === '' ? 0 : 1);
}

function readSeen(page: ControlPage, { traffic, traces }: Plane): void {
  const { heard, repeated, missed, refused } = traffic.counts;
  page.set(METRICS.digests, heard, 'heard');
  page.set(METRICS.digests, repeated, 'repeated');
  page.set(METRICS.digests, missed, 'missed');
  page.set(METRICS.digests, refused, 'refused');
  page.set(METRICS.silent, traffic.sidecars().filter(({ isSilent }) => isSilent).length);
  const { traces: held, bytes, spans, twice, cut, evicted, aged, refusedSpans } = traces.figures;
  page.set(METRICS.traces, held);
  page.set(METRICS.tracesBytes, bytes);
  page.set(METRICS.spans, spans, 'kept');
  page.set(METRICS.spans, twice, 'repeated');
  page.set(METRICS.spans, cut, 'cut');
  page.set(METRICS.spans, refusedSpans, 'refused');
  page.set(METRICS.tracesDropped, evicted, 'evicted');
  page.set(METRICS.tracesDropped, aged, 'aged');
}

function readProcess(page: ControlPage): void {
  const { user, system } = process.cpuUsage();
  page.set(METRICS.cpu, (user + system) / 1e6);
  const memory = process.memoryUsage();
  page.set(METRICS.rss, memory.rss);
  page.set(METRICS.heap, memory.heapUsed);
  page.set(METRICS.uptime, process.uptime());
}
