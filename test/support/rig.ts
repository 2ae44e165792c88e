/**
 * A real sidecar inside the test's process: real ports, real file, real agents, and a way to ask it. For cases and
 * end-to-end behaviour; decisions alone are tested without it.
 */
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import type { Test } from 'tap';
import { type Clock, realClock } from '../../base/clock.ts';
import { createLog } from '../../base/log.ts';
import { SeededRandom } from '../../base/random.ts';
import { type Inside, type Started, startSidecar } from '../../sidecar/sidecar.ts';
import type { LocalHub } from '../../sidecar/transports/local-hub.ts';
import { putAside } from '../run/written.ts';
import { MARK } from './credential-mark.ts';
import { assertQuiet, type Base, type ProviderCount, type Quiet } from './invariants.ts';
import { waitUntil } from './settle.ts';

export const TOKEN = `token-of-the-planner-${MARK}`;
export const CALLER = 'support.planner.1';

/** Answers with an error that are kept to be looked through for credentials. */
const MOST_ERRORS = 500;
const MOST_ERROR_BYTES = 8_192;

export interface RigOptions {
  /** The table as YAML (contracts, providers, …); null = the file is left as it is, or is not there yet. */
  readonly table: string | null;
  /** A folder to start in, which stays when the sidecar has stopped: for restarts. Default: a new one that goes with it. */
  readonly folder?: string;
  /** Lines to stand under `sidecar:`, indented by two blanks; beside name, listen, callers and table. */
  readonly settings?: string;
  /** Further agents with a token of their own: agent id → token. */
  readonly callers?: Readonly<Record<string, string>>;
  /** `host:port`; default 127.0.0.1 and any port. */
  readonly listen?: string;
  /** The agents inside this process, as the embedded library has them. */
  readonly local?: LocalHub;
  /** Default `one`. */
  readonly name?: string;
  /** Token of a mesh port; absent = none. */
  readonly meshToken?: string;
  readonly clock?: Clock;
  readonly seed?: number;
}

export interface Asking {
  readonly payload?: unknown;
  /** Sent instead of `payload`, as it is. */
  readonly body?: Buffer | string;
  readonly headers?: Readonly<Record<string, string | string[]>>;
  /** null = no credential. */
  readonly token?: string | null;
  readonly method?: string;
  /** Destroys the connection after so many milliseconds. */
  readonly hangUpAfterMs?: number;
  /** Destroys the connection when it settles. */
  readonly hangUp?: Promise<void>;
}

export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly bytes: Buffer;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into whatever came
  readonly json: any;
  readonly elapsedMs: number;
}

export class Rig {
  readonly started: Started;
  readonly folder: string;
  /** Every log line, parsed. */
  readonly logged: Record<string, unknown>[];
  readonly #keepsFolder: boolean;
  readonly #errors: string[] = [];
  #stopped = false;

  private constructor(started: Started, folder: string, logged: Record<string, unknown>[], keepsFolder: boolean) {
    this.started = started;
    this.folder = folder;
    this.logged = logged;
    this.#keepsFolder = keepsFolder;
  }

  /** Starts one; it is stopped at the end of the test at the latest. */
  static async start(t: Test, options: RigOptions): Promise<Rig> {
    const folder = options.folder ?? mkdtempSync(join(tmpdir(), 'reach-rig-'));
    if (options.table !== null) writeFileSync(join(folder, 'table.yaml'), options.table);
    writeFileSync(join(folder, 'sidecar.yaml'), settingsText(options));
    const logged: Record<string, unknown>[] = [];
    const log = createLog({ level: 'debug', to: intoList(logged), service: options.name ?? 'one' });
    const inside: Inside | undefined =
      options.local === undefined ? undefined : { text: null, local: options.local, callers: [CALLER], opensHttp: true };
    const file = join(folder, 'sidecar.yaml');
    const started = await startSidecar(file, log, options.clock ?? realClock, new SeededRandom(options.seed ?? 1), inside);
    const rig = new Rig(started, folder, logged, options.folder !== undefined);
    t.teardown(() => rig.stop());
    return rig;
  }

  get url(): string {
    return this.started.url;
  }

  get port(): number {
    return Number(new URL(this.url).port);
  }

  /** `POST /v1/invoke/{target}`; never rejects for what the sidecar answers, rejects when the connection breaks. */
  invoke(target: string, asking: Asking = {}): Promise<Answer> {
    return this.ask(`/v1/invoke/${target}`, { method: 'POST', ...asking });
  }

  async ask(path: string, asking: Asking = {}): Promise<Answer> {
    const token = asking.token === undefined ? TOKEN : asking.token;
    const body =
      asking.body ?? (asking.payload === undefined ? (asking.method === 'POST' ? '{}' : undefined) : JSON.stringify(asking.payload));
    const began = performance.now();
    return await new Promise<Answer>((done, fail) => {
      const request = httpRequest(
        `${this.url}${path}`,
        {
          method: asking.method ?? 'GET',
          agent: false,
          headers: {
            ...(token === null ? {} : { authorization: `Bearer ${token}` }),
            ...(body === undefined ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }),
            ...asking.headers,
          },
        },
        (response) => {
          const chunks: Buffer[] = [];
          response.on('data', (chunk: Buffer) => chunks.push(chunk));
          response.on('error', fail);
          response.on('aborted', () => fail(new Error('the answer was cut')));
          response.on('end', () => {
            const bytes = Buffer.concat(chunks);
            if ((response.statusCode ?? 0) >= 400 && this.#errors.length < MOST_ERRORS)
              this.#errors.push(bytes.toString('utf8', 0, MOST_ERROR_BYTES) + JSON.stringify(response.headers));
            done({
              status: response.statusCode ?? 0,
              headers: response.headers,
              bytes,
              json: parsed(bytes),
              elapsedMs: performance.now() - began,
            });
          });
        },
      );
      request.on('error', fail);
      if (asking.hangUpAfterMs !== undefined) setTimeout(() => request.destroy(new Error('hung up')), asking.hangUpAfterMs);
      void asking.hangUp?.then(() => request.destroy(new Error('hung up')));
      request.end(body);
    });
  }

  /** Replaces the table file as an editor would (new inode) and waits until the sidecar has taken or refused it. */
  async push(table: string): Promise<'installed' | 'refused'> {
    const { table: view } = this.started.front;
    const version = view.current().version;
    const refusals = view.refusals;
    const fresh = join(this.folder, 'table.yaml.new');
    writeFileSync(fresh, table);
    renameSync(fresh, join(this.folder, 'table.yaml'));
    await waitUntil('the table is taken or refused', () => view.current().version !== version || view.refusals !== refusals, 3_000);
    return view.current().version === version ? 'refused' : 'installed';
  }

  /** The counters that `assertQuiet` compares. */
  get quiet(): Quiet {
    const { observation, engine } = this.started.front;
    return {
      inFlight: () => {
        let sum = observation.inFlight() + engine.limits.inFlight();
        for (const provider of engine.health.providers()) sum += provider.inFlight;
        return sum;
      },
      started: () => observation.started(),
      ended: () => observation.ended(),
      accessRecords: () => observation.accessRecords(),
      calls: () => observation.started(),
    };
  }

  /** Stops the sidecar, then asserts that nothing is left of it. */
  async finish(t: Test, before: Base, providers: readonly ProviderCount[] = []): Promise<void> {
    await waitUntil('calls under way have ended', () => this.quiet.inFlight() === 0, 5_000).catch(() => undefined);
    await this.stop();
    await assertQuiet(t, { before, engines: [this.quiet], providers });
  }

  /** What it has said of itself, for the run to look through. */
  async #putAside(): Promise<void> {
    if (process.env['REACH_TEST_WRITTEN'] === undefined) return;
    putAside(`rig-log.${process.pid}`, this.logged.map((line) => `${JSON.stringify(line)}\n`).join(''));
    putAside(`rig-errors.${process.pid}`, this.#errors.join('\n'));
    const told = await Promise.all(['/metrics', '/v1/health'].map((path) => this.ask(path).catch(() => null)));
    putAside(`rig-pages.${process.pid}`, told.map((answer) => answer?.bytes.toString('utf8') ?? '').join('\n'));
  }

  async stop(): Promise<void> {
    if (this.#stopped) return;
    this.#stopped = true;
    await this.#putAside();
    await this.started.stop(0);
    if (!this.#keepsFolder) rmSync(this.folder, { recursive: true, force: true });
  }
}

function settingsText(options: RigOptions): string {
  const lines = [
    'sidecar:',
    `  name: ${options.name ?? 'one'}`,
    `  listen: ${options.listen ?? '127.0.0.1:0'}`,
    '  table: ./table.yaml',
    '  callers:',
    `    - {agent: ${CALLER}, token: ${TOKEN}}`,
    '    - {agent: sales.helper.2, token: token-of-the-helper}',
    ...Object.entries(options.callers ?? {}).map(([agent, token]) => `    - {agent: ${agent}, token: ${token}}`),
  ];
  if (!options.settings?.includes('log:')) lines.push('  log: {level: debug, access: all}');
  if (options.meshToken !== undefined) lines.push('  mesh: {listen: "127.0.0.1:0", token: ' + options.meshToken + '}');
  if (options.settings !== undefined) lines.push(options.settings.replace(/\n$/, ''));
  return `${lines.join('\n')}\n`;
}

function intoList(logged: Record<string, unknown>[]): Writable {
  return new Writable({
    write(chunk: Buffer, _encoding, done) {
      for (const line of chunk.toString('utf8').split('\n'))
        if (line !== '') logged.push((parsed(Buffer.from(line)) as Record<string, unknown>) ?? { unparsable: line });
      done();
    },
  });
}

function parsed(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString('utf8'));
  } catch {
    return undefined;
  }
}
