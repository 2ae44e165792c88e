/**
 * The streams that the control plane lives in: made if they are missing, read back, warned about. The epoch is minted
 * with the configuration stream and is its first message: a stream that was deleted and made anew has another one, and
 * everybody who holds something of the old one can tell.
 */
import { randomUUID } from 'node:crypto';
import type { Bus } from '../../base/nats.ts';
import type { StreamSpec } from '../../base/jetstream.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import { CONFIG_STREAM, CONTROL_STREAM, OPERATIONS_STREAM, type Subjects, Tail } from '../../proto/wire/subjects.ts';

const DAY_MS = 86_400_000;
/** Who did what is kept this long, unless it is more than `OPS_MESSAGES`. */
const OPS_AGE_MS = 400 * DAY_MS;
const OPS_MESSAGES = 100_000;

export interface StreamsReady {
  readonly epoch: string;
  /** The stream was made just now: what it held before, if anything, is gone. */
  readonly isNew: boolean;
  /** What the server did not take over, in words. */
  readonly warnings: readonly string[];
}

interface EpochState {
  readonly wire: number;
  readonly epoch: string;
}

export function streamSpecs(subjects: Subjects, replicas: number): readonly StreamSpec[] {
  return [
    {
      name: CONFIG_STREAM,
      description: 'Agent-Reach: registry and policies, newest state of each subject',
      subjects: [subjects.config],
      storage: 'file',
      discard: 'old',
      maxMsgsPerSubject: 1,
      allowDirect: true,
      replicas,
      republish: { source: subjects.config, destination: subjects.push },
    },
    {
      name: OPERATIONS_STREAM,
      description: 'Agent-Reach: what operators did',
      subjects: [subjects.operations],
      storage: 'file',
      discard: 'old',
      maxMsgs: OPS_MESSAGES,
      maxAgeMs: OPS_AGE_MS,
      allowDirect: true,
      replicas,
    },
    {
      name: CONTROL_STREAM,
      description: 'Agent-Reach: which replica leads',
      subjects: [subjects.control],
      storage: 'file',
      discard: 'old',
      maxMsgsPerSubject: 1,
      allowDirect: true,
      replicas,
    },
  ];
}

/** Makes sure of all of them; gives one sentence when it cannot. */
export async function readyStreams(bus: Bus, subjects: Subjects, replicas: number): Promise<StreamsReady | { readonly failed: string }> {
  const warnings: string[] = [];
  let isNew = false;
  for (const spec of streamSpecs(subjects, replicas)) {
    const ready = await bus.ensureStream(spec);
    if ('failed' in ready) return ready;
    if (spec.name === CONFIG_STREAM && ready.change === 'created') isNew = true;
    for (const each of ready.ignored) warnings.push(`stream ${spec.name}: the server did not take over ${each}`);
  }
  const epoch = await readyEpoch(bus, subjects);
  return 'failed' in epoch ? epoch : { epoch: epoch.epoch, isNew: isNew || epoch.minted, warnings };
}

/** The epoch of the stream as it is; mints one when it has none. */
async function readyEpoch(bus: Bus, subjects: Subjects): Promise<{ epoch: string; minted: boolean } | { failed: string }> {
  const subject = subjects.cfg(Tail.epoch);
  for (let attempt = 0; attempt < 3; attempt++) {
    const found = await readEpoch(bus, subjects);
    if (found !== null && typeof found === 'object') return found;
    if (found !== null) return { epoch: found, minted: false };
    const state: EpochState = { wire: REGISTRY_WIRE, epoch: randomUUID() };
    const minted = await bus.append(subject, Buffer.from(JSON.stringify(state), 'utf8'), {
      expectLastSubjectSeq: 0,
      stream: CONFIG_STREAM,
    });
    if ('seq' in minted) return { epoch: state.epoch, minted: true };
    if ('failed' in minted && !minted.ambiguous) return { failed: minted.failed };
  }
  return { failed: 'the epoch could neither be read nor minted' };
}

/** Null = the stream has none, or is not there. */
export async function readEpoch(bus: Bus, subjects: Subjects): Promise<string | null | { failed: string }> {
  const stored = await bus.last(CONFIG_STREAM, subjects.cfg(Tail.epoch));
  if (stored === null) return null;
  return 'failed' in stored ? stored : epochOf(stored.data.toString('utf8'));
}

export interface ConfigRead {
  readonly epoch: string;
  readonly entries: readonly (readonly [tail: string, seq: number, text: string])[];
  /** Of the stream, before the first message was read. */
  readonly lastSeq: number;
}

/** What is written while one reads may be half seen: then it is read again, so often. */
const READINGS = 5;

/** Everything that the configuration stream holds, as of one sequence. */
export async function readConfig(bus: Bus, subjects: Subjects): Promise<ConfigRead | { readonly failed: string }> {
  for (let reading = 0; reading < READINGS; reading++) {
    const read = await bus.readAll(CONFIG_STREAM, subjects.config);
    if ('failed' in read) return read;
    if (read.messages.some(({ seq }) => seq > read.lastSeq)) continue;
    const entries: (readonly [string, number, string])[] = [];
    let epoch = '';
    for (const { subject, seq, data } of read.messages) {
      const tail = subjects.tailOf(subject);
      if (tail === null) continue;
      const text = data.toString('utf8');
      if (tail === Tail.epoch) epoch = epochOf(text) ?? '';
      else entries.push([tail, seq, text]);
    }
    return epoch === '' ? { failed: 'the stream has no epoch' } : { epoch, entries, lastSeq: read.lastSeq };
  }
  return { failed: 'somebody writes faster than the stream can be read' };
}

function epochOf(text: string): string | null {
  try {
    const { epoch } = JSON.parse(text) as EpochState;
    return typeof epoch === 'string' && epoch !== '' ? epoch : null;
  } catch {
    return null;
  }
}
