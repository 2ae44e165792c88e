/**
 * `/v1/recording`: how the recording of calls stands, and starting and stopping it while the sidecar runs. For the operator's token
 * alone. What may be kept of a call is not said here but in the settings (`recording.keep`): without that there is no recording.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { capabilityPatternProblem } from '../../proto/language/policy.ts';
import { Code } from '../../proto/wire/codes.ts';
import { callerPatternProblem, type RecordingFilter } from '../recording-config.ts';
import { refuse } from './answer.ts';
import type { Front } from './front.ts';
import { json } from './pages.ts';

const MAX_BODY_BYTES = 65_536;
const KEYS: ReadonlySet<string> = new Set(['on', 'share', 'capability', 'caller', 'codes', 'failed_only']);

export async function recording(front: Front, request: IncomingMessage, response: ServerResponse, body: unknown): Promise<void> {
  const { recorder } = front;
  if (recorder === null) {
    refuse(response, Code.invalid_request, 409, 'nothing is recorded here: the settings have no recording with its keep', 'keep');
    return;
  }
  if (!front.isOperator(request.headers.authorization ?? '')) {
    refuse(response, Code.forbidden, 403, 'recording is for the operator: show the operator_token of the settings', 'keep');
    return;
  }
  if (request.method === 'POST') {
    const said = orderIn(Buffer.isBuffer(body) ? body : Buffer.alloc(0));
    if (typeof said === 'string') {
      refuse(response, Code.invalid_request, 422, said, 'keep');
      return;
    }
    if (said.isOn) recorder.start(said.filter);
    else await recorder.stop();
  }
  json(response, 200, viewOf(recorder.status()));
}

function orderIn(body: Buffer): { readonly isOn: boolean; readonly filter: Partial<RecordingFilter> } | string {
  if (body.length > MAX_BODY_BYTES) return `an order has at most ${MAX_BODY_BYTES} bytes`;
  let value: unknown;
  try {
    value = JSON.parse(body.toString('utf8'));
  } catch {
    return 'an order is JSON such as {"on": true, "share": 0.1}';
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return 'an order is a JSON object such as {"on": true}';
  const order = value as Readonly<Record<string, unknown>>;
  for (const key of Object.keys(order))
    if (!KEYS.has(key)) return `${JSON.stringify(key.slice(0, 40))}: an order has ${[...KEYS].join(', ')}`;
  const { on, share, capability, caller, codes, failed_only: failedOnly } = order;
  if (typeof on !== 'boolean') return 'on must be true or false';
  if (share !== undefined && !(typeof share === 'number' && share > 0 && share <= 1)) return 'share must be above 0 and at most 1';
  if (capability !== undefined) {
    const problem = typeof capability === 'string' ? capabilityPatternProblem(capability) : 'it must be a text';
    if (problem !== null) return `capability: ${problem}`;
  }
  if (caller !== undefined) {
    const problem = typeof caller === 'string' ? callerPatternProblem(caller) : 'it must be a text';
    if (problem !== null) return `caller: ${problem}`;
  }
  if (codes !== undefined && !(Array.isArray(codes) && codes.length <= 64 && codes.every(Number.isInteger)))
    return 'codes must be a list of codes';
  if (failedOnly !== undefined && typeof failedOnly !== 'boolean') return 'failed_only must be true or false';
  return {
    isOn: on,
    filter: {
      ...(share === undefined ? {} : { share }),
      ...(capability === undefined ? {} : { capability: capability as string }),
      ...(caller === undefined ? {} : { caller: caller as string }),
      ...(codes === undefined ? {} : { codes: codes as number[] }),
      ...(failedOnly === undefined ? {} : { failedOnly }),
    },
  };
}

function viewOf({
  isOn,
  folder,
  filter,
  bytes,
  isFailing,
  recorded,
  disk,
  cpu,
  rotated,
  fault,
}: ReturnType<NonNullable<Front['recorder']>['status']>): object {
  const { share, capability, caller, codes, failedOnly } = filter;
  return {
    on: isOn,
    folder,
    filter: { share, capability, caller, codes, failed_only: failedOnly },
    bytes,
    disk_fails: isFailing,
    recorded,
    not_recorded: { disk, cpu, rotated, fault },
  };
}
