/**
 * What notifications came to that were not accepted. The protocol knows no answer to them, HTTP has a status and headers: a loss
 * that nobody hears of would be worse than an unusual status.
 */
import type { ServerResponse } from 'node:http';
import { codeEntry } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import { headerText, retryAfterSeconds, writeNothing } from './answer.ts';
import { pushRate } from './rate-headers.ts';
import type { Door } from './rpc-door.ts';

/** Nothing is answered. @param count notifications that came. */
export function writeNoAnswer(response: ServerResponse, door: Door, count: number): void {
  if (door.refusal === null) {
    writeNothing(response);
    return;
  }
  response.writeHead(codeEntry(door.refusal.code).http, [...silenceHeaders(door, count), 'content-length', '0']);
  response.end();
}

/** Of an answer that says nothing of them; none when all were accepted. */
export function silenceHeaders({ refusal, refusedCount }: Door, count: number): string[] {
  if (refusal === null) return [];
  const { code, detail, retryAfterMs, rate } = refusal;
  const words = count === 1 ? detail : `${refusedCount} of ${count} notifications were not accepted, the last because: ${detail}`;
  const head = [Header.code, String(code), Header.detail, headerText(words)];
  if (retryAfterMs > 0) head.push('retry-after', retryAfterSeconds(retryAfterMs), Header.retryAfterMs, String(Math.ceil(retryAfterMs)));
  if (rate !== null) pushRate(head, rate);
  return head;
}
