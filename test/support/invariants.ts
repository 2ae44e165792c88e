/**
 * What must hold after every case, whatever it did: nothing in flight, nothing left open, nothing thrown past everybody,
 * one attempt ended for each begun, one access record for each call, and providers that were asked just as often as said.
 *
 *     const before = takeBase();
 *     t.test('C001 …', async (t) => {
 *       …
 *       await assertQuiet(t, { before, engines: [engine], providers: [{ name: 'order-1', count: stub.requests, expected: 1 }] });
 *     });
 */
import { readdirSync, readlinkSync } from 'node:fs';
import type { Test } from 'tap';
import { waitUntil } from './settle.ts';

/** The counters of one sidecar under test. */
export interface Quiet {
  /** Calls and attempts under way, all gauges together. */
  inFlight(): number;
  /** Attempts begun and ended since the start. */
  started(): number;
  ended(): number;
  /** Access records written and calls accepted since the start. */
  accessRecords(): number;
  calls(): number;
}

export interface ProviderCount {
  readonly name: string;
  readonly count: number | (() => number);
  readonly expected: number;
}

export interface QuietOptions {
  readonly before: Base;
  readonly engines?: readonly Quiet[];
  readonly providers?: readonly ProviderCount[];
  /** What may be open beyond the base, by kind (`TCPSocketWrap`, `socket`, …): a pool that stays up keeps its idle connections. */
  readonly mayStayOpen?: Readonly<Record<string, number>>;
  /** How long things may take to come to rest. */
  readonly withinMs?: number;
}

/** What was open when the case began: how many of each kind. */
export type Base = ReadonlyMap<string, number>;

const thrown: string[] = [];
const warned: string[] = [];
let listening = false;

/** Counts what is open now and begins, once a process, to write down what nobody caught. Call it before the case starts anything. */
export function takeBase(): Base {
  if (!listening) {
    listening = true;
    // The monitor sees without handling: an exception still fails the test as it would have.
    process.on('uncaughtExceptionMonitor', (error: unknown, origin: string) => thrown.push(`${origin}: ${words(error)}`));
    process.on('warning', (warning) => {
      if (warning.name === 'MaxListenersExceededWarning') warned.push(warning.message);
    });
  }
  return openNow();
}

/** Waits for rest and asserts it; one assertion that lists everything which is not as it must be. */
export async function assertQuiet(t: Test, options: QuietOptions): Promise<void> {
  let left = disturbances(options);
  try {
    await waitUntil('rest', () => (left = disturbances(options)).length === 0, options.withinMs ?? 2_000);
  } catch {
    // `left` says what is still moving
  }
  t.strictSame(left, [], 'all is quiet afterwards');
}

/** Everything that is not as it must be, one line each. */
export function disturbances(options: QuietOptions): string[] {
  const found: string[] = [];
  const unequal = (what: string, is: number, must: number): void => {
    if (is !== must) found.push(`${what}: ${is}, not ${must}`);
  };
  (options.engines ?? []).forEach((engine, index) => {
    const of = (options.engines?.length ?? 0) > 1 ? ` of engine ${index}` : '';
    unequal(`in flight${of}`, engine.inFlight(), 0);
    unequal(`attempts ended${of}`, engine.ended(), engine.started());
    unequal(`access records${of}`, engine.accessRecords(), engine.calls());
  });
  for (const { name, count, expected } of options.providers ?? []) {
    unequal(`requests to ${name}`, typeof count === 'number' ? count : count(), expected);
  }
  for (const [kind, now] of openNow()) {
    const most = (options.before.get(kind) ?? 0) + (options.mayStayOpen?.[kind] ?? 0);
    if (now > most) found.push(`open ${kind}: ${now}, at most ${most}`);
  }
  return [...found, ...thrown.map((text) => `nobody caught ${text}`), ...warned.map((text) => `warning: ${text}`)];
}

/** Kinds that come and go by themselves (requests on a handle that is itself counted), or belong to the test runner. */
const PASSING: ReadonlySet<string> = new Set([
  'Immediate',
  'TickObject',
  'FSReqCallback',
  'FSReqPromise',
  'CloseReq',
  'ConnectWrap',
  'WriteWrap',
  'ShutdownWrap',
  'TTYWrap',
]);

/**
 * Ref'd handles by kind as Node counts them, and, where the system tells (Linux), all open sockets as `socket`: a socket
 * that was unref'd and forgotten is a leak which Node's own list does not show.
 */
function openNow(): Base {
  const open = new Map<string, number>();
  for (const kind of process.getActiveResourcesInfo()) {
    if (!PASSING.has(kind)) open.set(kind, (open.get(kind) ?? 0) + 1);
  }
  // The timer that `waitUntil` itself sleeps on has fired by the time this runs.
  const sockets = openSockets();
  if (sockets !== null) open.set('socket', sockets);
  return open;
}

function openSockets(): number | null {
  let names: string[];
  try {
    names = readdirSync('/proc/self/fd');
  } catch {
    return null; // not Linux
  }
  return names.filter((name) => isSocket(`/proc/self/fd/${name}`)).length;
}

function isSocket(link: string): boolean {
  try {
    return readlinkSync(link).startsWith('socket:');
  } catch {
    return false; // closed while we looked
  }
}

function words(error: unknown): string {
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}
