/** The table of every bound on what comes in, for docs/config.md: from the constants themselves, and by name where one is a setting. */
import { MAX_DEPTH as ANSWER_LEVELS } from '../base/json-scan.ts';
import { MAX_PATTERN } from '../base/pattern-safety.ts';
import { MAX_BYTES as FILE_BYTES } from '../base/yaml.ts';
import { MAX_HEADER_BYTES as CONTROL_HEADER_BYTES } from '../control-plane/api/server.ts';
import { AGENT_ID_MAX, MAX_TAGS, SEGMENT_MAX } from '../proto/language/names.ts';
import { MAX_DEPTH as GRPC_VALUE_LEVELS } from '../sidecar/accept/grpc-value.ts';
import { MAX_PIPELINED } from '../sidecar/accept/line.ts';
import { HEAD_MS, MAX_TARGET_CHARS, REQUEST_MS } from '../sidecar/accept/server.ts';
import { LONGEST_KEY, PAYLOAD_BOUNDS } from '../sidecar/contract/contract.ts';
import { MAX_FORWARDED_BYTES, MAX_FORWARDED_HEADERS } from '../sidecar/transports/hygiene.ts';

const { levels, members, nameChars } = PAYLOAD_BOUNDS;
const sec = (ms: number): string => `${ms / 1_000} s`;

/** What is bounded, by how much, what is answered above it, what becomes of the connection. */
const ROWS: readonly (readonly [what: string, bound: string, answer: string, connection: string])[] = [
  [
    'body of a request',
    '`limits.body`, and for the capability its `limits.request`',
    '4005, HTTP 413',
    'closed after the answer above `limits.body`; kept above `limits.request`',
  ],
  ['line and headers of a request', '`limits.header_bytes`', '4005, HTTP 431', 'closed after the answer'],
  ['headers that are passed on to a provider', `${MAX_FORWARDED_HEADERS}, with ${MAX_FORWARDED_BYTES} bytes in all`, '4003', 'kept'],
  [
    'address of a request',
    `\`limits.header_bytes\`; one segment of the path ${MAX_TARGET_CHARS} characters`,
    '4006 where a name is meant, else 4003',
    'kept',
  ],
  ['head of a request, time', sec(HEAD_MS), '4003, HTTP 408', 'closed after the answer'],
  ['head and body of a request, time', sec(REQUEST_MS), '4003, HTTP 408', 'closed after the answer'],
  ['answer that its caller does not take', '`limits.stall`', 'none', 'cut'],
  ['requests sent ahead of their answers on one connection', String(MAX_PIPELINED), '3002', 'closed after the answer'],
  ['connections of one port', '`limits.connections`', 'none', 'closed at once'],
  [
    'length that can be read in two ways (two lengths, length and coding, folded lines, other codings than `chunked`, …)',
    'none is taken',
    '4003',
    'closed after the answer; what was sent behind it is not looked at',
  ],
  ['lists and maps inside one another in a JSON payload', String(levels), '4003', 'kept'],
  ['members and items of a JSON payload', String(members), '4003', 'kept'],
  ['one name in a JSON payload', `${nameChars} characters`, '4003', 'kept'],
  ['levels of a `params` value over gRPC', String(GRPC_VALUE_LEVELS), '4003', 'kept'],
  ['messages of a JSON-RPC batch', '`limits.batch`', '4003 for the whole', 'kept'],
  ['members of JSON-RPC, an envelope, a registration, an order or a file that stand there twice', 'none is taken', '4003', 'kept'],
  ['message on a channel', '`limits.body` and room for what stands around it', 'close code 1009', 'closed'],
  ['RPCs of one gRPC connection', '`grpc.streams`', 'the client waits', 'kept'],
  ['name of a capability', `three segments of ${SEGMENT_MAX} characters`, '4006', 'kept'],
  ['name of an agent', `${AGENT_ID_MAX} characters`, '4003', 'kept'],
  ['tags', String(MAX_TAGS), '4003', 'kept'],
  ['key (`Idempotency-Key`, `Reach-Power-Id`)', `${LONGEST_KEY} characters`, '4003', 'kept'],
  ['answer of a provider', '`limits.response`; headers `limits.header_bytes`', '1005', 'of the provider: cut'],
  ['levels of a JSON answer', String(ANSWER_LEVELS), '1004', 'kept'],
  ['one event or line of a stream', '`limits.event`', '1005', 'of the provider: cut'],
  [
    'time to the first piece of a stream, and between two',
    '`streaming.first_chunk`, `streaming.idle`',
    '1003, 1006',
    'of the provider: cut',
  ],
  ['time of an attempt', '`timeout`', '1003', 'of the provider: cut'],
  ['settings and table files, policies, rules', `${FILE_BYTES} bytes`, 'refused with line and column', '–'],
  [
    '`pattern` in a schema',
    `${MAX_PATTERN} characters; none that a text can drive into time without bound`,
    'the registration is refused (4003)',
    'kept',
  ],
  ['body of an order to the control plane', '`api.body`', '4005, HTTP 413', 'closed after the answer'],
  ['line and headers of an order', `${CONTROL_HEADER_BYTES} bytes`, '4005, HTTP 431', 'closed after the answer'],
];

export function limitsSection(): string {
  const rows = ROWS.map((row) => `| ${row.join(' | ')} |`);
  return `\n## Limits\n\nWhat is above one is refused with the code that stands beside it, before any work is done, and counted (\`reach_refused_requests_total\` for what never became a call). Those in \`code\` are settings.\n\n| what | at most | above it | the connection |\n| --- | --- | --- | --- |\n${rows.join('\n')}\n`;
}
