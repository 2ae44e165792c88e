/**
 * Whether this sidecar can be used, in words for whoever waits for it. Alive is another question, which `/v1/health` answers with 200 as
 * long as the process does: a sidecar that waits for NATS, or stops, is alive, and must not be restarted for it.
 */
import type { Front } from './front.ts';

export interface Readiness {
  /** A call can succeed. */
  readonly ready: boolean;
  /** `ok`, `stale`, `starting` or `draining`. */
  readonly status: string;
  /** Why it is not ready; null = it is. */
  readonly why: string | null;
  /** What does not work although calls do; empty = everything works. */
  readonly lacks: readonly string[];
}

export function readinessOf(front: Front): Readiness {
  return { ready: front.ready, status: statusOf(front), why: front.ready ? null : whyNot(front), lacks: lacksOf(front) };
}

export function statusOf(front: Front): string {
  if (front.draining) return 'draining';
  if (!front.table.ready) return 'starting';
  return front.table.staleBecause === '' ? 'ok' : 'stale';
}

function whyNot(front: Front): string {
  if (front.closed) return 'it has stopped';
  if (front.draining) return 'it stops: nothing new is taken, what is under way ends, and the agents beside it finish';
  const { staleBecause } = front.table;
  if (front.registry === null) return `no table is loaded yet${staleBecause === '' ? '' : `: ${staleBecause}`}`;
  const { connected, announced, announce_trouble } = front.registry.client.status();
  if (!connected) return `waits for NATS, and has no table from an earlier run${staleBecause === '' ? '' : `: ${staleBecause}`}`;
  if (!announced) return `waits for the control plane${announce_trouble === null ? '' : `: ${announce_trouble}`}`;
  return `waits for its table${staleBecause === '' ? '' : `: ${staleBecause}`}`;
}

function lacksOf({ table, registry, outbox }: Front): string[] {
  const lacks: string[] = [];
  if (table.ready && table.staleBecause !== '') lacks.push(`changes of the table: ${table.staleBecause}`);
  if (registry === null) return lacks;
  const { connected, announced, announce_trouble, agents } = registry.client.status();
  if (connected && !announced) lacks.push(`its own agents are not announced${announce_trouble === null ? '' : `: ${announce_trouble}`}`);
  if (agents.gone > 0) lacks.push(`${agents.gone} of its own agents ${agents.gone === 1 ? 'is' : 'are'} not there`);
  if (agents.refused > 0) lacks.push(`${agents.refused} of its own agents ${agents.refused === 1 ? 'is' : 'are'} refused by the registry`);
  if (!connected) lacks.push('durable messages wait on this machine, and keys cannot be claimed');
  else if (outbox !== null && outbox.pending > 0) lacks.push(`${outbox.pending} messages wait on this machine to be sent`);
  return lacks;
}
