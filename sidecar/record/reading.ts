/**
 * A recording, read back: one file or a folder of them. A file is whole by itself; what is damaged or torn off in it is left out
 * and said. What another version of the program wrote is refused with a sentence when it is of another format. In a folder a file
 * that cannot be read is left out and said: it takes none of the others with it.
 */
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Override } from '../../proto/language/types.ts';
import type { CellDump } from '../health/cell.ts';
import type { ProviderDump } from '../health/provider.ts';
import type { CapabilityPart } from '../table/compile.ts';
import { EXTENSION } from './files.ts';
import { isTornHead, readFrames } from './frames.ts';
import { type AnyRecord, type CallRecord, type FileRecord, type PartRecord, RECORDING_FORMAT } from './shapes.ts';

/** What something was, by revision of the health view; oldest first. */
class History<T> {
  readonly #revs: number[] = [];
  readonly #values: T[] = [];

  add(rev: number, value: T): void {
    this.#revs.push(rev);
    this.#values.push(value);
  }

  /** As of that revision; null = it had not been written then. */
  at(rev: number): T | null {
    const at = this.#indexAt(rev);
    return at < 0 ? null : (this.#values[at] as T);
  }

  /** In which revision that was written. */
  revAt(rev: number): number | null {
    return this.#revs[this.#indexAt(rev)] ?? null;
  }

  #indexAt(rev: number): number {
    const revs = this.#revs;
    let low = 0;
    let high = revs.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((revs[middle] as number) <= rev) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }
}

/** The calls of one file, and what they refer to. */
export class RecordedFile {
  readonly name: string;
  readonly head: FileRecord;
  readonly calls: CallRecord[] = [];
  readonly #parts = new Map<number, CapabilityPart>();
  /** Of the health view, what was read last. */
  #rev: number;
  /** Some revision from here on is missing; Infinity = none is. */
  #missingFrom = Number.POSITIVE_INFINITY;
  /** None is from here on. */
  #missingTo = 0;
  readonly #overrides = new Map<number, readonly Override[]>();
  readonly #cells = new Map<string, History<CellDump>>();
  readonly #providers = new Map<string, History<ProviderDump>>();

  constructor(name: string, head: FileRecord) {
    this.name = name;
    this.head = head;
    this.#rev = head.rev;
  }

  take(record: AnyRecord): void {
    switch (record.k) {
      case 'call':
        this.calls.push(this.#isWhole(record) ? record : { ...record, unfit: MISSING });
        break;
      case 'part':
        // What it is a change of stood in a damaged place.
        if (record.base === null || this.#parts.has(record.base)) this.#parts.set(record.id, this.#partOf(record));
        break;
      case 'overrides':
        this.#overrides.set(record.id, record.list);
        break;
      case 'health':
        if (record.before !== this.#rev) {
          this.#missingFrom = Math.min(this.#missingFrom, this.#rev + 1);
          this.#missingTo = record.rev;
        }
        this.#rev = record.rev;
        for (const [agent, capability, dump] of record.cells) into(this.#cells, `${agent} ${capability}`, record.rev, dump);
        for (const [agent, dump] of record.providers) into(this.#providers, agent, record.rev, dump);
        break;
      case 'file':
    }
  }

  /** Everything that it refers to has been read. */
  #isWhole({ unfit, parts, overrides, rev, choices, after, claims }: CallRecord): boolean {
    if (unfit !== '') return true;
    if (!parts.every((id) => this.#parts.has(id)) || !overrides.every(([, id]) => this.#overrides.has(id))) return false;
    const revs = [...choices.map((choice) => choice.rev), ...claims.map((claim) => claim.rev)];
    for (const one of after) if (one !== null) revs.push(one);
    // A call that did not look at it needs nothing of it.
    if (revs.length === 0) return true;
    if (Math.max(rev, ...revs) > this.#rev) return false;
    if (Math.max(...revs) < this.#missingFrom) return true;
    // Of everybody who might have served it, it must be known anew since then.
    const least = Math.min(...revs);
    const isKnown = (history: History<unknown> | undefined): boolean => (history?.revAt(least) ?? -1) >= this.#missingTo;
    const names = new Set(choices.flatMap(({ lines }) => lines.map(({ capability }) => capability)));
    return parts.every((id) => {
      const part = this.#parts.get(id) as CapabilityPart;
      if (names.size > 0 && !names.has(part.name)) return true;
      return part.providers.every(
        ({ record: { agentId } }) => isKnown(this.#cells.get(`${agentId} ${part.name}`)) && isKnown(this.#providers.get(agentId)),
      );
    });
  }

  part(id: number): CapabilityPart | null {
    return this.#parts.get(id) ?? null;
  }

  overrides(id: number): readonly Override[] {
    return this.#overrides.get(id) ?? [];
  }

  cell(agent: string, capability: string, rev: number): CellDump | null {
    return this.#cells.get(`${agent} ${capability}`)?.at(rev) ?? null;
  }

  provider(agent: string, rev: number): ProviderDump | null {
    return this.#providers.get(agent)?.at(rev) ?? null;
  }

  #partOf({ name, contracts, policies, base, providers, gone }: PartRecord): CapabilityPart {
    const all = new Map((base === null ? [] : (this.#parts.get(base)?.providers ?? [])).map((each) => [each.record.agentId, each]));
    for (const agent of gone) all.delete(agent);
    // Nothing leads anywhere: that it is reached over another sidecar counts, the address does not.
    for (const { record, mesh } of providers) all.set(record.agentId, { record, mesh: mesh ? NOWHERE : '' });
    return { name, contracts, policies, providers: [...all.values()] };
  }
}

const MISSING = 'what it refers to stood in a damaged place of the file';

/** Stands where the address of a sidecar was. */
const NOWHERE = 'http://recorded.invalid';

function into<T>(all: Map<string, History<T>>, key: string, rev: number, value: T): void {
  let history = all.get(key);
  if (history === undefined) {
    history = new History();
    all.set(key, history);
  }
  history.add(rev, value);
}

/** Files one after the other, so that a large recording need not be held at once. */
export interface RecordingSource {
  readonly files: Iterable<RecordedFile>;
  /** What is missing, in words; as far as it has been read. */
  readonly remarks: readonly string[];
  /** Why it could not be read to its end; empty = it could. */
  readonly problems: readonly string[];
}

export interface Recording extends RecordingSource {
  readonly files: readonly RecordedFile[];
  /** What is missing, in words. */
  readonly remarks: readonly string[];
}

/** A file, or a folder of them (oldest first). Words when there is nothing to read. */
export function readRecording(path: string): Recording | string {
  const source = openRecording(path);
  if (typeof source === 'string') return source;
  const files = [...source.files];
  return source.problems[0] ?? { files, remarks: source.remarks, problems: source.problems };
}

/** The same, file by file. */
export function openRecording(path: string): RecordingSource | string {
  let files: string[];
  let isFolder: boolean;
  try {
    isFolder = statSync(path).isDirectory();
    files = isFolder
      ? readdirSync(path)
          .filter((name) => name.endsWith(EXTENSION))
          .sort()
          .map((name) => join(path, name))
      : [path];
  } catch (error) {
    return `${path}: cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})`;
  }
  if (files.length === 0) return `${path}: there is no recording in this folder (files that end in ${EXTENSION})`;
  const remarks: string[] = [];
  const problems: string[] = [];
  return { files: isFolder ? readEach(files, remarks, problems) : readOne(path, remarks, problems), remarks, problems };
}

function* readOne(path: string, remarks: string[], problems: string[]): Generator<RecordedFile> {
  const file = readFile(path, remarks);
  if (typeof file === 'string') problems.push(file);
  else if (file !== null) yield file;
}

/** Nothing of it can be read = the reason of the first is the problem. */
function* readEach(paths: readonly string[], remarks: string[], problems: string[]): Generator<RecordedFile> {
  const left: string[] = [];
  for (const path of paths) {
    const file = readFile(path, remarks);
    if (typeof file === 'string') {
      left.push(file);
      remarks.push(`${file}; it is left out`);
    } else if (file !== null) yield file;
  }
  if (left.length === paths.length) problems.push(left[0] as string);
}

function readFile(file: string, remarks: string[]): RecordedFile | null | string {
  let bytes: Buffer;
  try {
    bytes = readFileSync(file);
  } catch (error) {
    return `${file}: cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})`;
  }
  return recordedIn(bytes, file, remarks);
}

/** Null = its process died before anything was written. */
export function recordedIn(bytes: Buffer, name: string, remarks: string[]): RecordedFile | null | string {
  const frames = readFrames(bytes);
  if (frames === null)
    return isTornHead(bytes)
      ? `${name}: nothing was written to it but ${bytes.length} bytes of its beginning`
      : `${name}: this is no recording of Agent-Reach`;
  if (frames.damagedBytes > 0) remarks.push(`${name}: ${frames.damagedBytes} bytes in it are damaged, and what stood there is left out`);
  if (frames.tornBytes > 0) remarks.push(`${name}: its last ${frames.tornBytes} bytes are a record that was not written to its end`);
  let file: RecordedFile | null = null;
  for (const body of frames.bodies) {
    const record = JSON.parse(body.toString('utf8')) as AnyRecord;
    if (file === null) {
      if (record.k !== 'file') return `${name}: its head is damaged, and nothing in it can be told`;
      if (record.format !== RECORDING_FORMAT)
        return `${name}: it was written by Agent-Reach ${record.program} in format ${record.format}, and this program reads format ${RECORDING_FORMAT}: replay it with that version`;
      file = new RecordedFile(name, record);
    } else file.take(record);
  }
  return file;
}
