/** Reads what stands under `op.alerts`, or in an export; what is not in its form is left out, one by one. */
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import { type Alert, ALERT_KINDS, ALERT_STATES, type Silence, type StoredAlerts } from './alert.ts';

const MOST = 1_000;
const STATES: readonly unknown[] = ALERT_STATES;
const KINDS: readonly unknown[] = ALERT_KINDS;

export function readStored(value: unknown): StoredAlerts | null {
  const map = mapOf(value);
  if (map === null || map['wire'] !== REGISTRY_WIRE || !Array.isArray(map['alerts']) || !Array.isArray(map['silences'])) return null;
  return {
    wire: REGISTRY_WIRE,
    epoch: textOf(map['epoch']) ?? '',
    lastAlert: wholeOf(map['lastAlert']),
    lastSilence: wholeOf(map['lastSilence']),
    alerts: (map['alerts'] as unknown[]).slice(0, MOST).flatMap((one) => readAlert(one) ?? []),
    silences: (map['silences'] as unknown[]).slice(0, MOST).flatMap((one) => readSilence(one) ?? []),
  };
}

function readAlert(value: unknown): Alert | null {
  const map = mapOf(value);
  if (map === null || !KINDS.includes(map['kind']) || !STATES.includes(map['state'])) return null;
  const id = textOf(map['id']);
  const subject = textOf(map['subject']);
  const sinceMs = numberOf(map['sinceMs']);
  if (id === null || subject === null || sinceMs === null) return null;
  return {
    id,
    kind: map['kind'] as Alert['kind'],
    subject,
    state: map['state'] as Alert['state'],
    sinceMs,
    firedMs: numberOf(map['firedMs']),
    resolvedMs: numberOf(map['resolvedMs']),
    goodSinceMs: numberOf(map['goodSinceMs']),
    unknownSinceMs: numberOf(map['unknownSinceMs']),
    words: textOf(map['words']) ?? '',
    value: numberOf(map['value']) ?? 0,
    limit: numberOf(map['limit']) ?? 0,
    capability: textOf(map['capability']),
    agent: textOf(map['agent']),
    sidecar: textOf(map['sidecar']),
    traceId: textOf(map['traceId']),
    look: textOf(map['look']) ?? '',
    held: numberOf(map['held']),
    toldFiring: map['toldFiring'] === true,
    toldResolved: map['toldResolved'] === true,
  };
}

function readSilence(value: unknown): Silence | null {
  const map = mapOf(value);
  if (map === null || (map['kind'] !== null && !KINDS.includes(map['kind']))) return null;
  const id = textOf(map['id']);
  const subject = textOf(map['subject']);
  const untilMs = numberOf(map['untilMs']);
  if (id === null || subject === null || untilMs === null) return null;
  return {
    id,
    kind: map['kind'] as Silence['kind'],
    subject,
    untilMs,
    reason: textOf(map['reason']) ?? '',
    author: textOf(map['author']) ?? '',
    createdMs: numberOf(map['createdMs']) ?? 0,
  };
}

function mapOf(value: unknown): Readonly<Record<string, unknown>> | null {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Readonly<Record<string, unknown>>) : null;
}

const textOf = (value: unknown): string | null => (typeof value === 'string' ? value : null);
const numberOf = (value: unknown): number | null => (typeof value === 'number' && Number.isFinite(value) ? value : null);
const wholeOf = (value: unknown): number => (Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : 0);
