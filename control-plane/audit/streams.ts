/**
 * The two streams of the audit log. What operators did is refused when there is no room, never dropped early: a log that
 * forgets silently is worth less than one that says that it is full. What was refused can be brought about by anybody, so it
 * has its own room, in which the oldest goes first, and can push out nothing of the other. From neither can a message be
 * deleted or purged, where the server knows how to forbid that. That they cannot be made holds up nobody: orders are then
 * answered with the warning that they are not in the log.
 */
import type { StreamFacts, StreamSpec } from '../../base/jetstream.ts';
import type { Bus } from '../../base/nats.ts';
import { AUDIT_STREAM, REFUSED_STREAM, type Subjects } from '../../proto/wire/subjects.ts';
import type { AuditConfig } from './config.ts';

export function auditStreams(subjects: Subjects, config: AuditConfig, replicas: number): readonly StreamSpec[] {
  const common = {
    storage: 'file',
    retention: 'limits',
    maxAgeMs: config.ageMs,
    allowDirect: true,
    denyDelete: true,
    denyPurge: true,
    replicas,
  } as const;
  return [
    {
      ...common,
      name: AUDIT_STREAM,
      description: 'Agent-Reach: audit log, what operators did',
      subjects: [subjects.audit('*', 'act')],
      discard: 'new',
      maxBytes: config.bytes,
    },
    {
      ...common,
      name: REFUSED_STREAM,
      description: 'Agent-Reach: audit log, what was refused',
      subjects: [subjects.audit('*', 'asked'), subjects.audit('*', 'refused')],
      discard: 'old',
      maxBytes: config.refusedBytes,
    },
  ];
}

/** Makes sure of both; every sentence is something that an operator should know. */
export async function readyAuditStreams(bus: Bus, subjects: Subjects, config: AuditConfig, replicas: number): Promise<readonly string[]> {
  const warnings: string[] = [];
  for (const spec of auditStreams(subjects, config, replicas)) {
    const ready = await bus.ensureStream(spec);
    if ('failed' in ready) warnings.push(`the audit log is not kept: ${ready.failed}`);
    else for (const each of ready.ignored) warnings.push(`stream ${spec.name}: the server did not take over ${each}`);
  }
  return warnings;
}

const NEARLY_FULL = 0.8;

/** A sentence when what operators did will soon find no room; null while there is. */
export function auditFullness(facts: StreamFacts | null): string | null {
  if (facts === null || facts.maxBytes <= 0) return null;
  const fill = facts.bytes / facts.maxBytes;
  if (fill < NEARLY_FULL) return null;
  const how = fill >= 0.995 ? 'is full' : fill >= 0.95 ? 'is full to more than 95 %' : 'is full to more than 80 %';
  return `the stream ${AUDIT_STREAM} ${how} (control_plane.audit.size): when it is full orders go on, and are not in the audit log`;
}
