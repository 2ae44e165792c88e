/** What Prometheus reads of a replica. Gauges are read when somebody scrapes; only requests are counted as they come. */
import { Counter, Gauge, Registry as Metrics } from 'prom-client';
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

export async function metricsText(plane: Plane, counts: RequestCounts): Promise<{ readonly text: string; readonly contentType: string }> {
  const metrics = new Metrics();
  const registers = [metrics];
  const gauge = (name: string, help: string, value: number): void => new Gauge({ name, help, registers }).set(value);
  const { leading } = plane;
  gauge('reach_control_leading', '1 when this replica leads.', leading === null ? 0 : 1);
  gauge('reach_control_nats_connected', '1 when there is a connection to NATS.', plane.natsConnected ? 1 : 0);
  gauge('reach_control_last_sequence', 'Last sequence of the configuration stream that this replica has seen.', plane.mirror.lastSeq);
  gauge('reach_control_stored_subjects', 'Subjects of the configuration stream.', plane.mirror.size);
  gauge('reach_control_pending_writes', 'Changes that wait to be written.', leading?.writer.pending ?? 0);
  gauge('reach_control_held', 'Losses that are held back until an operator confirms them.', leading?.held.length ?? 0);
  if (leading !== null) {
    const { pools, parkedPools, waiting, inHand, kept, fill, ghosts, expired } = leading.messages.figures;
    gauge('reach_control_pools', 'Pools that tasks wait in.', pools);
    gauge('reach_control_pools_parked', 'Pools that hold tasks and have nobody who works on them.', parkedPools);
    gauge('reach_control_tasks_in_hand', 'Tasks that are with workers, or wait for another try.', inHand);
    gauge('reach_control_tasks_kept', 'Tasks that are kept for people: dead, in doubt, to be reviewed; -1 when that is not known.', kept);
    gauge(
      'reach_control_tasks_come_back_deleted',
      'Acknowledged tasks that had come back with a restart of NATS, and were deleted since this replica leads.',
      ghosts,
    );
    gauge('reach_control_tasks_expired_untaken', 'Tasks that nobody took in time, ended since this replica leads.', expired);
    const full = new Gauge({
      name: 'reach_control_stream_fill_ratio',
      help: 'How full the streams of messages are, 0 to 1, by bytes or by messages.',
      labelNames: ['stream'],
      registers,
    });
    for (const [stream, ratio] of fill) full.set({ stream }, ratio);
    const lanes = new Gauge({
      name: 'reach_control_tasks_waiting',
      help: 'Tasks that wait for a worker, by lane.',
      labelNames: ['lane'],
      registers,
    });
    for (const [lane, count] of Object.entries(waiting)) lanes.set({ lane }, count);
  }
  const sidecars = new Gauge({ name: 'reach_control_sidecars', help: 'Sidecars by standing.', labelNames: ['standing'], registers });
  const refusing = new Gauge({
    name: 'reach_control_sidecars_refusing',
    help: 'Sidecars that refuse something that was pushed.',
    registers,
  });
  for (const standing of ['current', 'behind', 'stale', 'missing']) sidecars.set({ standing }, 0);
  for (const row of plane.fleet.rows(plane.clock.now())) {
    sidecars.inc({ standing: row.standing });
    if (row.refused.length > 0) refusing.inc();
  }
  gauge('reach_control_overrides', 'Emergency overrides that last.', plane.overrides.overrides.length);
  gauge(
    'reach_control_overrides_missing',
    'Sidecars at which the newest list of overrides is not in force.',
    plane.overrides.count(plane.overrides.seq).missing.length,
  );
  const providers = new Gauge({ name: 'reach_control_providers', help: 'Providers by status.', labelNames: ['status'], registers });
  for (const status of ['online', 'offline', 'overdue']) providers.set({ status }, 0);
  if (plane.epoch !== '') for (const { status } of plane.registry().providers()) providers.inc({ status });
  const requests = new Counter({
    name: 'reach_control_requests_total',
    help: 'Requests of the API, by route and status.',
    labelNames: ['route', 'status'],
    registers,
  });
  for (const { route, status, count } of counts.all()) requests.inc({ route, status }, count);
  const usage = process.cpuUsage();
  new Counter({ name: 'process_cpu_seconds_total', help: 'User and system time of the process.', registers }).inc(
    (usage.user + usage.system) / 1e6,
  );
  gauge('process_resident_memory_bytes', 'Resident memory.', process.memoryUsage.rss());
  return { text: await metrics.metrics(), contentType: metrics.contentType };
}
