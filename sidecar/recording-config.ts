/** The sidecar's settings for recordings (`sidecar.recording`): which calls are written down, what of them, and how much in all. */
import { redactionRules, type RedactionRules } from '../base/redact.ts';
import { capabilityPattern } from '../proto/language/policy.ts';
import { mapped, object, optional, required, type Shape } from '../proto/language/reader.ts';
import { anyJson, count, duration, flag, list, ratio, size, text } from '../proto/language/shapes.ts';

/** Which calls; all parts that are set must hold. */
export interface RecordingFilter {
  /** Of all traces, 0–1: the same ones at every sidecar. */
  readonly share: number;
  /** Name or pattern; `*` = every one. */
  readonly capability: string;
  /** `team.role.id`, where a part may be `*`; '' = every one. */
  readonly caller: string;
  /** Codes it must have ended in; empty = any. */
  readonly codes: readonly number[];
  readonly failedOnly: boolean;
}

export interface RecordingSettings {
  /** From the start of the process on; else when somebody says so. */
  readonly isOn: boolean;
  readonly keep: RedactionRules;
  readonly filter: RecordingFilter;
  /** Relative to the config file; null = in `state_dir`. */
  readonly folder: string | null;
  /** All files together. */
  readonly maxBytes: number;
  readonly fileBytes: number;
  readonly maxAgeMs: number;
  /** Of one body that may be kept. */
  readonly bodyBytes: number;
  /** Of a stream, from its beginning. */
  readonly streamBytes: number;
  /** Share of one processor's time that it may take, 0–1. */
  readonly cpu: number;
}

const rules: Shape<RedactionRules> = mapped(anyJson, (written, place) => {
  const read = redactionRules(written);
  return typeof read === 'string' ? place.bad(read) : read;
});

const SEGMENT = /^(\*|[A-Za-z0-9_-]{1,64})$/;

/** Words, or null when it is a pattern of agents. */
export function callerPatternProblem(pattern: string): string | null {
  const parts = pattern.split('.');
  if (parts.length === 3 && parts.every((part) => SEGMENT.test(part))) return null;
  return 'a caller is written team.role.id, where a part may be *';
}

export const recordingShape: Shape<RecordingSettings> = mapped(
  object('map', {
    on: optional(
      flag,
      '`true`: from the start on. `false`: it waits until it is said (`reach-sidecar record settings.yaml start`).',
      true,
      'true',
    ),
    keep: required(
      rules,
      'what may be written down of requests and answers: {headers: [names], query: [names], json: [places such as /order/status, * for any name or index], bodies: [content types kept whole], paths: [paths of HTTP requests such as /orders/*, where * is a segment that is not kept]}; each list may be empty, and what is not named is not kept',
    ),
    share: optional(
      ratio(true),
      'Share of the traces that is recorded: by a hash of the trace id, so that every sidecar records the same ones.',
      0.01,
      '1%',
    ),
    capability: optional(capabilityPattern, 'Only calls for these: a name, crm.* or *.', '*', '*'),
    caller: optional(
      text('an agent', callerPatternProblem),
      'Only calls of these: team.role.id, where a part may be `*`.',
      '',
      'every one',
    ),
    codes: optional(
      list(count(0, 9_999), 64),
      'Only calls that ended in one of these codes.',
      Object.freeze([]) as readonly number[],
      'any',
    ),
    failed_only: optional(flag, 'Only calls that failed.', false, 'false'),
    dir: optional<string, null>(text('a directory'), 'Where the files lie, relative to this one.', null, '<state_dir>/<name>/recordings'),
    max_bytes: optional(size(1_048_576, 1_099_511_627_776), 'All files together; above it the oldest is removed.', 268_435_456, '256MiB'),
    file_bytes: optional(size(65_536, 1_073_741_824), 'A file that has grown so large is followed by a new one.', 16_777_216, '16MiB'),
    max_age: optional(duration(60_000), 'Files that were begun longer ago are removed.', 604_800_000, '7d'),
    body_bytes: optional(
      size(0, 67_108_864),
      'Bodies up to this size are kept, as far as `keep` allows; of larger ones their size.',
      65_536,
      '64KiB',
    ),
    stream_bytes: optional(
      size(0, 16_777_216),
      'Of a stream so much is kept, from its beginning, where `keep` has its content type.',
      4_096,
      '4KiB',
    ),
    cpu: optional(
      ratio(true),
      'Share of one processor that recording may take. A call that comes when it is used up is not recorded, and counted.',
      0.05,
      '5%',
    ),
  }),
  (read, place) => {
    if (read.file_bytes * 2 > read.max_bytes)
      return place.at('file_bytes').bad('file_bytes must be at most half of max_bytes: the oldest file is removed whole');
    if (read.share === 0) return place.at('share').bad('a share of 0 records nothing: write on: false');
    return {
      isOn: read.on,
      keep: read.keep,
      filter: {
        share: read.share,
        capability: read.capability,
        caller: read.caller,
        codes: read.codes,
        failedOnly: read.failed_only,
      },
      folder: read.dir,
      maxBytes: read.max_bytes,
      fileBytes: read.file_bytes,
      maxAgeMs: read.max_age,
      bodyBytes: read.body_bytes,
      streamBytes: read.stream_bytes,
      cpu: read.cpu,
    };
  },
);
