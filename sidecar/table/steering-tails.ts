/**
 * What operators steer by at run time, as this sidecar has it: quotas, and which capabilities are watched while their
 * traffic is shifted. Read with the same distrust as the table: a state that cannot be read is refused, visibly, and what was
 * in force stays. What follows from it is decided by those who count.
 */
import { isCapabilityName } from '../../proto/language/names.ts';
import { MAX_QUOTAS, QUOTA_KINDS, type QuotasState } from '../../proto/wire/quotas.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import { MAX_RUNNING_SHIFTS, type ShiftsState } from '../../proto/wire/shifts.ts';
import { Tail } from '../../proto/wire/subjects.ts';
import type { Opened, Unreadable } from './readable.ts';
import { TailState } from './tail-state.ts';

const NO_QUOTAS: QuotasState = Object.freeze({ wire: REGISTRY_WIRE, epoch: '', quotas: Object.freeze([]) });
const NO_SHIFTS: ShiftsState = Object.freeze({ wire: REGISTRY_WIRE, epoch: '', watched: Object.freeze([]) });
const SEGMENT = /^(?:\*|[A-Za-z0-9_-]{1,64})$/;

export function quotasTail(): TailState<QuotasState> {
  return new TailState(Tail.quotas, NO_QUOTAS, readQuotas);
}

export function shiftsTail(): TailState<ShiftsState> {
  return new TailState(Tail.shifts, NO_SHIFTS, readShifts);
}

function readQuotas({ value }: Opened): QuotasState | Unreadable {
  const { quotas } = value;
  if (!Array.isArray(quotas) || quotas.length > MAX_QUOTAS) return { problem: `quotas must be a list of at most ${MAX_QUOTAS}` };
  const bad = (quotas as readonly unknown[]).findIndex((one) => !isQuota(one));
  return bad < 0 ? (value as unknown as QuotasState) : { problem: `quota ${bad} has no kind, target or limits that can be read` };
}

function isQuota(one: unknown): boolean {
  if (!isMap(one)) return false;
  const { kind, target, calls, messages, inFlight, expiresAtMs } = one;
  if (!QUOTA_KINDS.some((known) => known === kind)) return false;
  if (typeof target !== 'string') return false;
  const segments = target.split('.');
  if (segments.length !== 3 || !segments.every((segment) => SEGMENT.test(segment))) return false;
  return isRate(calls) && isRate(messages) && isAboveZeroOrNull(inFlight) && isAboveZeroOrNull(expiresAtMs);
}

function isRate(value: unknown): boolean {
  if (value === null) return true;
  return isMap(value) && isAboveZero(value['perSec']) && isAboveZero(value['burst']) && (value['burst'] as number) >= 1;
}

function readShifts({ value }: Opened): ShiftsState | Unreadable {
  const { watched } = value;
  if (!Array.isArray(watched) || watched.length > MAX_RUNNING_SHIFTS || !watched.every(isName))
    return { problem: `watched must be a list of at most ${MAX_RUNNING_SHIFTS} capabilities` };
  return value as unknown as ShiftsState;
}

function isName(one: unknown): boolean {
  return typeof one === 'string' && isCapabilityName(one);
}

function isAboveZeroOrNull(value: unknown): boolean {
  return value === null || isAboveZero(value);
}

function isAboveZero(value: unknown): boolean {
  return typeof value === 'number' && Number.isFinite(value) && value > 0;
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
