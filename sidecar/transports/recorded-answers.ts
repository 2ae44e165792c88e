/**
 * Which recorded answer belongs to a request. Capability, version, caller and body must be the same, and of a request that speaks
 * HTTP its method and target as well; method and target alone never are enough. Bodies are compared as values: members of a JSON
 * object may stand in another order, numbers be written in another way, and none is rounded.
 *
 * Each recorded answer is given once, in the order in which they were recorded: a third request where two were recorded is a miss.
 *
 * A place whose value was not kept must be there in the request, but its value cannot be compared; a body of which only the size
 * was kept is compared by its size and content type. Whoever asks is told what was not compared. A recorded request that can be
 * compared whole comes before one that cannot.
 */
import { ExactNumber, parseExact, withDigits, writeExact } from '../../base/json-exact.ts';
import { stepOf } from '../../base/json-pointer.ts';
import { NOT_SHOWN } from '../../base/redact.ts';

export interface KeptRequest {
  readonly bytes: number;
  readonly type: string;
  readonly json?: unknown;
  readonly numbers?: Readonly<Record<string, string>>;
  readonly base64?: string;
  readonly whole: boolean;
}

export interface RecordedRequest<A> {
  readonly capability: string;
  readonly version: string;
  readonly caller: string;
  readonly http: { readonly method: string; readonly target: string } | null;
  readonly body: KeptRequest;
  readonly answer: A;
  /** For words: `call 12, attempt 1`. */
  readonly name: string;
}

export interface Ask {
  readonly capability: string;
  readonly version: string;
  readonly caller: string;
  readonly http: { readonly method: string; readonly target: string } | null;
  readonly body: Buffer;
  readonly type: string;
}

export interface Match<A> {
  readonly answer: A;
  readonly name: string;
  /** Places and parts whose values were not kept; empty = all of it was compared. */
  readonly notCompared: readonly string[];
}

/** `REPLAY_MISS`: nothing that was recorded belongs to it. */
export interface ReplayMiss {
  readonly why: string;
  /** What is different from the recorded request that comes nearest; values only where they were kept. */
  readonly diff: readonly string[];
}

/** Differences that are told. */
const MAX_DIFF = 20;

interface Entry<A> {
  readonly request: RecordedRequest<A>;
  isGiven: boolean;
}

interface Held {
  readonly diff: string[];
  readonly notCompared: string[];
}

export class RecordedAnswers<A> {
  readonly #entries: readonly Entry<A>[];
  readonly #byName = new Map<string, Entry<A>[]>();

  constructor(requests: readonly RecordedRequest<A>[]) {
    this.#entries = requests.map((request) => ({ request, isGiven: false }));
    for (const entry of this.#entries) {
      const key = keyOf(entry.request);
      const same = this.#byName.get(key);
      if (same === undefined) this.#byName.set(key, [entry]);
      else same.push(entry);
    }
  }

  /** Recorded answers that nobody has asked for. */
  get left(): number {
    let left = 0;
    for (const { isGiven } of this.#entries) if (!isGiven) left++;
    return left;
  }

  take(ask: Ask): Match<A> | ReplayMiss {
    const json = jsonOf(ask.body, ask.type);
    let best: { readonly entry: Entry<A>; readonly held: Held } | null = null;
    let given = 0;
    for (const entry of this.#byName.get(keyOf(ask)) ?? []) {
      const held = hold(entry.request, ask, json);
      if (held.diff.length > 0) continue;
      if (entry.isGiven) {
        given++;
        continue;
      }
      if (best === null || held.notCompared.length < best.held.notCompared.length) best = { entry, held };
      if (held.notCompared.length === 0) break;
    }
    if (best !== null) {
      best.entry.isGiven = true;
      return { answer: best.entry.request.answer, name: best.entry.request.name, notCompared: best.held.notCompared };
    }
    if (given > 0) return { why: `it was recorded ${times(given)}, and each recorded answer is given once`, diff: [] };
    return this.#nearest(ask, json);
  }

  #nearest(ask: Ask, json: unknown): ReplayMiss {
    let nearest: { readonly name: string; readonly diff: readonly string[] } | null = null;
    for (const { request } of this.#entries) {
      if (request.capability !== ask.capability) continue;
      const diff = [...namesDiff(request, ask), ...hold(request, ask, json).diff];
      if (nearest === null || diff.length < nearest.diff.length) nearest = { name: request.name, diff };
    }
    if (nearest === null) return { why: `no call of ${ask.capability} was recorded`, diff: [] };
    return { why: `no recorded request is the same; ${nearest.name} comes nearest`, diff: nearest.diff.slice(0, MAX_DIFF) };
  }
}

function keyOf({ capability, version, caller }: Pick<Ask, 'capability' | 'version' | 'caller'>): string {
  return `${capability}@${version} ${caller}`;
}

function times(count: number): string {
  return count === 1 ? 'once' : `${count} times`;
}

function namesDiff(request: RecordedRequest<unknown>, ask: Ask): string[] {
  const diff: string[] = [];
  if (request.version !== ask.version) diff.push(`version: asked ${ask.version}, recorded ${request.version}`);
  if (request.caller !== ask.caller) diff.push(`caller: asked by ${ask.caller}, recorded by ${request.caller}`);
  return diff;
}

function hold({ http, body }: RecordedRequest<unknown>, ask: Ask, json: unknown): Held {
  const held: Held = { diff: [], notCompared: [] };
  holdTarget(http, ask.http, held);
  if (body.base64 !== undefined) {
    if (!Buffer.from(body.base64, 'base64').equals(ask.body))
      held.diff.push(`body: ${ask.body.length} bytes that are not the ${body.bytes} recorded ones`);
  } else if (body.json !== undefined) {
    if (json === undefined) held.diff.push('body: asked with something that is not JSON, recorded with JSON');
    else compare('', exactJson(body), json, held);
  } else {
    if (body.bytes !== ask.body.length) held.diff.push(`body: asked with ${ask.body.length} bytes, recorded with ${body.bytes}`);
    else if (body.bytes > 0) held.notCompared.push(`the body, of which only the size is recorded (${body.bytes} bytes)`);
  }
  return held;
}

function holdTarget(recorded: Ask['http'], asked: Ask['http'], held: Held): void {
  if (recorded === null && asked === null) return;
  if (recorded === null || asked === null) {
    held.diff.push(`way: asked ${asked === null ? 'by name' : 'in HTTP'}, recorded ${recorded === null ? 'by name' : 'in HTTP'}`);
    return;
  }
  if (recorded.method !== asked.method) held.diff.push(`method: asked ${asked.method}, recorded ${recorded.method}`);
  const [path = '', query = ''] = recorded.target.split('?', 2);
  const [askedPath = '', askedQuery = ''] = asked.target.split('?', 2);
  if (!isSamePath(path, askedPath)) held.diff.push('path: asked another one than was recorded');
  else if (path.includes(NOT_SHOWN)) held.notCompared.push('path, where it is not recorded');
  const was = pairsOf(query);
  const is = pairsOf(askedQuery);
  if (was.length !== is.length) held.diff.push(`query: asked with ${is.length} parts, recorded with ${was.length}`);
  for (const [i, [name, value]] of was.entries()) {
    const other = is[i];
    if (other === undefined) continue;
    if (other[0] !== name) held.diff.push(`query: part ${i + 1} is not ${name}`);
    else if (value === NOT_SHOWN) held.notCompared.push(`query ${name}`);
    else if (other[1] !== value) held.diff.push(`query ${name}: asked ${shown(other[1])}, recorded ${shown(value)}`);
  }
}

/** As far as it is recorded. */
function isSamePath(recorded: string, asked: string): boolean {
  const was = recorded.split('/');
  const is = asked.split('/');
  return was.length === is.length && was.every((part, i) => part === is[i] || (part === NOT_SHOWN && is[i] !== ''));
}

function pairsOf(query: string): [string, string][] {
  if (query === '') return [];
  return query.split('&').map((pair) => {
    const at = pair.indexOf('=');
    return at < 0 ? ['', pair] : [pair.slice(0, at), pair.slice(at + 1)];
  });
}

/** What was recorded of a body, each number with its own digits. */
export function exactJson({ json, numbers }: Pick<KeptRequest, 'json' | 'numbers'>): unknown {
  return numbers === undefined ? json : withDigits(json, numbers);
}

/** How a value differs from what was recorded of it, and which places could not be compared; both with exact numbers. */
export function heldAgainst(
  recorded: unknown,
  value: unknown,
): { readonly diff: readonly string[]; readonly notCompared: readonly string[] } {
  const held: Held = { diff: [], notCompared: [] };
  compare('', recorded, value, held);
  return held;
}

/** Of the asked value only what stands at a place that was kept may be shown. */
function compare(place: string, recorded: unknown, asked: unknown, held: Held): void {
  if (held.diff.length >= MAX_DIFF) return;
  const at = place === '' ? 'body' : `body ${place}`;
  if (recorded === NOT_SHOWN) {
    held.notCompared.push(place === '' ? 'the body' : place);
    return;
  }
  if (Array.isArray(recorded) && Array.isArray(asked)) {
    if (recorded.length !== asked.length) held.diff.push(`${at}: asked with ${asked.length} items, recorded with ${recorded.length}`);
    for (let i = 0; i < Math.min(recorded.length, asked.length); i++) compare(`${place}/${i}`, recorded[i], asked[i], held);
    return;
  }
  if (isMap(recorded) && isMap(asked)) {
    for (const [name, value] of Object.entries(recorded)) {
      const below = `${place}/${stepOf(name)}`;
      if (Object.hasOwn(asked, name)) compare(below, value, asked[name], held);
      else held.diff.push(`body ${below}: is not there, and was recorded`);
    }
    for (const name of Object.keys(asked))
      if (!Object.hasOwn(recorded, name)) held.diff.push(`body ${place}/${name.slice(0, 128)}: was not there when it was recorded`);
    return;
  }
  if (Object.is(recorded, asked) || (recorded === 0 && asked === 0)) return;
  if (recorded instanceof ExactNumber && asked instanceof ExactNumber && recorded.isSame(asked)) return;
  const isShown = isPlain(recorded) && (isPlain(asked) || asked === null);
  held.diff.push(
    `${at}: asked ${isShown ? shown(asked) : kindOf(asked)}, recorded ${isPlain(recorded) ? shown(recorded) : kindOf(recorded)}`,
  );
}

function isPlain(value: unknown): boolean {
  return typeof value !== 'object' || value instanceof ExactNumber;
}

function isMap(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof ExactNumber);
}

function kindOf(value: unknown): string {
  if (value instanceof ExactNumber) return 'a number';
  return Array.isArray(value) ? 'a list' : value === null ? 'null' : typeof value === 'object' ? 'a map' : `a ${typeof value}`;
}

function shown(value: unknown): string {
  return (value === undefined ? 'nothing' : writeExact(value)).slice(0, 120);
}

/** undefined = it is none. */
function jsonOf(body: Buffer, contentType: string): unknown {
  const type = (contentType.split(';', 1)[0] as string).trim().toLowerCase();
  if (type !== 'application/json' && !type.endsWith('+json')) return undefined;
  try {
    return parseExact(body);
  } catch {
    return undefined;
  }
}
