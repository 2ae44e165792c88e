/** What a caller inside the process may say of a call: the headers of the HTTP way in under other names. */
import { Header } from '../../proto/wire/headers.ts';

export interface CallOptions {
  /** Milliseconds that the caller waits in all. Inside a served function it is never more than what is left of its work. */
  readonly deadlineMs?: number;
  /** Gives the call up when it aborts. */
  readonly signal?: AbortSignal;
  /** The agent that calls, instead of the one the engine was started for. Inside a served function: that function's agent. */
  readonly as?: string;
  /** Key of the conversation. */
  readonly affinity?: string;
  readonly sequenceId?: string;
  /** The provider that is to serve it. */
  readonly pin?: string;
  readonly tags?: Readonly<Record<string, string>>;
  /** Key of the work, the same at each repetition. */
  readonly powerId?: string;
  /** `none`: nobody is to repeat it. */
  readonly retry?: 'none';
  /** The Result carries what every stage decided. */
  readonly explain?: boolean;
  /** Budgets of the steps of the task, milliseconds, in their order; and the step that this call is. */
  readonly budget?: Readonly<Record<string, number>>;
  readonly step?: string;
  /** Of the payload; default `application/json`, for bytes `application/octet-stream`. */
  readonly contentType?: string;
  /** Any other header, lower case. */
  readonly headers?: Readonly<Record<string, string>>;
}

export function headersOf(options: CallOptions): Record<string, string> {
  const headers: Record<string, string> = {};
  if (options.headers !== undefined)
    for (const [name, value] of Object.entries(options.headers)) headers[name.toLowerCase()] = String(value);
  if (options.deadlineMs !== undefined) headers[Header.deadlineMs] = String(Math.max(0, Math.floor(options.deadlineMs)));
  if (options.affinity !== undefined) headers[Header.affinity] = options.affinity;
  if (options.sequenceId !== undefined) headers[Header.sequenceId] = options.sequenceId;
  if (options.pin !== undefined) headers[Header.pin] = options.pin;
  if (options.tags !== undefined) headers[Header.tags] = pairs(options.tags, ',');
  if (options.powerId !== undefined) headers[Header.powerId] = options.powerId;
  if (options.retry !== undefined) headers[Header.retry] = options.retry;
  if (options.explain === true) headers[Header.explain] = '1';
  if (options.budget !== undefined) headers[Header.budget] = pairs(options.budget, ', ');
  if (options.step !== undefined) headers[Header.step] = options.step;
  return headers;
}

function pairs(values: Readonly<Record<string, string | number>>, between: string): string {
  return Object.entries(values)
    .map(([name, value]) => `${name}=${typeof value === 'number' ? Math.round(value) : value}`)
    .join(between);
}
