/**
 * Sidecars of the red-button drill, many in one process: each has what a sidecar has inside (bus, registry's client, table,
 * overrides, engine, transports), without ports. In force means that a call through the engine is answered 2006: such a call is
 * made whenever another list of overrides has been installed, and its moment is noted by the monotonic clock, which on Linux is
 * the same for all processes of a machine.
 */
import { realClock } from '../../../base/clock.ts';
import { createLog } from '../../../base/log.ts';
import { Bus } from '../../../base/nats.ts';
import { systemRandom } from '../../../base/random.ts';
import { Subjects } from '../../../proto/wire/subjects.ts';
import { readTraceContext } from '../../../proto/wire/trace-context.ts';
import { assemble } from '../../../sidecar/assemble.ts';
import { Call } from '../../../sidecar/call/call.ts';
import { readSidecarConfig } from '../../../sidecar/config.ts';
import type { Engine } from '../../../sidecar/engine.ts';
import { Health } from '../../../sidecar/health/health.ts';
import { StaticTokens } from '../../../sidecar/identify/static-tokens.ts';
import { Observation } from '../../../sidecar/observe/observer.ts';
import { outbound } from '../../../sidecar/pipeline.ts';
import { InstalledTable } from '../../../sidecar/table/installed.ts';
import { RegistryClient } from '../../../sidecar/table/registry.ts';
import { registerTransports, Transports } from '../../../sidecar/transports/index.ts';
import { sharedNowMs } from '../../bench/push-orders.ts';
import { waitUntil } from '../../support/settle.ts';
import type { Codes, Noted, SidecarsOrder, StartOrder } from './orders.ts';

const BLOCKED = 2006;
const COMPLETE_WITHIN_MS = 60_000;
const TOKEN = 'token-of-the-probe';

class Sidecar {
  readonly name: string;
  readonly #capability: string;
  readonly #bus: Bus;
  readonly #table: InstalledTable;
  readonly #engine: Engine;
  readonly #registry: RegistryClient;

  constructor(name: string, { nats, env, meshToken, capability }: StartOrder, note: (sidecar: string) => void) {
    this.name = name;
    this.#capability = capability;
    const clock = realClock;
    const random = systemRandom;
    const log = createLog({ level: 'error', to: 'stderr', service: name }).logger;
    const agent = `probe.${name}.1`.replaceAll('-', '_');
    const reading = readSidecarConfig(`sidecar: {name: ${name}, table: none.yaml, callers: [{agent: ${agent}, token: ${TOKEN}}]}\n`, name);
    if ('problems' in reading) throw new Error(reading.problems.map(({ message }) => message).join('\n'));
    const { config } = reading;
    const health = new Health(clock, config.ejection);
    this.#table = new InstalledTable(clock, health, config);
    const transports = new Transports(
      {
        clock,
        random,
        secret: () => '',
        connectTimeoutMs: config.connectTimeoutMs,
        connectionsPerOrigin: config.connectionsPerOrigin,
        maxResponseHeaderBytes: config.limits.headerBytes,
      },
      registerTransports({ token: meshToken, secure: null, homes: null }),
    );
    const observer = new Observation(clock, log, 'off');
    const identities = new StaticTokens([{ agent, token: TOKEN }], [], null);
    this.#engine = assemble({ clock, random, config, table: this.#table, health, identities, transports, observer });
    const install = this.#table.installOverrides.bind(this.#table);
    this.#table.installOverrides = (rules) => {
      install(rules);
      void this.probe().then((code) => {
        if (code === BLOCKED) note(name);
      });
    };
    this.#bus = Bus.open({ servers: [nats], name: `sidecar ${name}`, clock, random, inboxPrefix: `_INBOX.${name}` });
    this.#registry = new RegistryClient({
      bus: this.#bus,
      subjects: new Subjects(env, name),
      env,
      clock,
      random,
      log,
      table: this.#table,
      self: {
        sidecar: name,
        instance: `${process.pid}-${Math.floor(sharedNowMs())}`,
        region: null,
        zone: null,
        callers: [agent],
        heartbeatMs: 45_000,
        leaseMs: 135_000,
      },
      staleAfterMs: 5_000,
      keepAt: null,
      version: 'drill',
      unreachable: () => null,
    });
    this.#registry.start();
    this.#registry.announce(null);
  }

  get isComplete(): boolean {
    return this.#registry.sync.confirmed && this.#table.current().capabilities.has(this.#capability);
  }

  /** The code with which a call through it is answered. */
  async probe(): Promise<number> {
    const headers = { authorization: `Bearer ${TOKEN}` };
    const call = new Call('local', this.#capability, headers, Buffer.from('{}'), 'application/json', false, realClock);
    readTraceContext(call, undefined, undefined, systemRandom);
    await outbound(this.#engine, call);
    return call.code;
  }
}

let noted: [string, number][] = [];
const sidecars: Sidecar[] = [];
const note = (sidecar: string): void => void noted.push([sidecar, sharedNowMs()]);

/** One after another: before the block each is a real call to a real agent. */
async function codes(): Promise<Codes> {
  const all: Record<string, number> = {};
  for (const sidecar of sidecars) all[sidecar.name] = await sidecar.probe();
  return all;
}

async function obey(order: SidecarsOrder): Promise<object> {
  switch (order.do) {
    case 'start':
      sidecars.push(...order.names.map((name) => new Sidecar(name, order, note)));
      await waitUntil('every table is complete', () => sidecars.every((each) => each.isComplete), COMPLETE_WITHIN_MS, 5);
      return {};
    case 'arm': {
      const before = await codes();
      noted = [];
      return before;
    }
    case 'noted':
      return noted satisfies Noted;
    case 'probe':
      return await codes();
  }
}

if (process.channel !== undefined) {
  process.on('message', (order: SidecarsOrder) => {
    obey(order).then(
      (answer) => process.send?.(answer),
      (error: unknown) => {
        process.stderr.write(`${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
        process.exit(1);
      },
    );
  });
  process.on('disconnect', () => process.exit(1));
  process.send?.({ ready: true });
}
