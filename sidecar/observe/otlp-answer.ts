/** What a collector answers: whether a request is over, and when it may be sent again (OTLP specification, "OTLP/HTTP Response"). */

export type OtlpVerdict =
  /** `rejected`: spans that it did not take, and why. */
  | { readonly kind: 'taken'; readonly rejected: number; readonly why: string }
  /** Sent again after that time; 0 = it did not say when. */
  | { readonly kind: 'again'; readonly afterMs: number; readonly why: string }
  /** It would be refused again. */
  | { readonly kind: 'refused'; readonly why: string };

const AGAIN: ReadonlySet<number> = new Set([429, 502, 503, 504]);
const LONGEST_AFTER_MS = 300_000;

/** @param wallMs for a `Retry-After` that is a date */
export function verdictOf(status: number, retryAfter: string | undefined, body: Buffer, wallMs: number): OtlpVerdict {
  if (status >= 200 && status < 300) {
    const partial = partialSuccessOf(body);
    return { kind: 'taken', rejected: partial.rejected, why: partial.why };
  }
  if (AGAIN.has(status)) return { kind: 'again', afterMs: afterOf(retryAfter, wallMs), why: `it answers ${status}` };
  return { kind: 'refused', why: `it answers ${status}` };
}

function afterOf(said: string | undefined, wallMs: number): number {
  if (said === undefined) return 0;
  const ms = /^\d{1,9}$/.test(said) ? Number(said) * 1_000 : Date.parse(said) - wallMs;
  return Number.isNaN(ms) ? 0 : Math.min(LONGEST_AFTER_MS, Math.max(0, ms));
}

/** ExportTraceServiceResponse.partial_success (1): rejected_spans (1), error_message (2). What cannot be read says nothing. */
export function partialSuccessOf(body: Buffer): { readonly rejected: number; readonly why: string } {
  const nothing = { rejected: 0, why: '' };
  const inner = fieldsOf(body)?.find(({ field }) => field === 1);
  if (inner === undefined || typeof inner.value === 'number') return nothing;
  const fields = fieldsOf(inner.value);
  if (fields === null) return nothing;
  const rejected = fields.find(({ field }) => field === 1)?.value;
  const why = fields.find(({ field }) => field === 2)?.value;
  return {
    rejected: typeof rejected === 'number' ? rejected : 0,
    why: typeof why === 'object' ? why.toString('utf8', 0, MAX_WHY_BYTES) : '',
  };
}

const MAX_WHY_BYTES = 512;

interface Found {
  readonly field: number;
  readonly value: number | Buffer;
}

function fieldsOf(bytes: Buffer): Found[] | null {
  const found: Found[] = [];
  let at = 0;
  const varint = (): number => {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = bytes[at++];
      if (byte === undefined || scale > 2 ** 56) return -1;
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
    }
  };
  while (at < bytes.length) {
    const tag = varint();
    const kind = tag & 7;
    if (tag < 0 || (kind !== 0 && kind !== 2)) return null;
    const number = varint();
    if (number < 0 || (kind === 2 && at + number > bytes.length)) return null;
    found.push({ field: tag >>> 3, value: kind === 0 ? number : bytes.subarray(at, at + number) });
    if (kind === 2) at += number;
  }
  return found;
}
