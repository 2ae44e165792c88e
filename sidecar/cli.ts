/** The command line of `reach-sidecar`: reads it, starts and stops; decides nothing about calls. */
import { readFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { realClock, type Timer } from '../base/clock.ts';
import { parseDuration } from '../base/duration.ts';
import { localUrl, probe } from '../base/probe.ts';
import { nearest } from '../base/suggest.ts';
import { notTaken } from '../base/usage.ts';
import { createLog, type LogOptions } from '../base/log.ts';
import { documentSchema } from '../proto/language/document.ts';
import { withEndpointTypes } from '../proto/language/endpoint.ts';
import { configSchema, readSidecarConfig, type SidecarConfig } from './config.ts';
import { problemsIn, readSettings, type Started, StartRefused, startSidecar } from './sidecar.ts';
import { isClean, stopWords } from './stop.ts';
import { wordsOfProblem } from './table/file.ts';
import { endpointTables, registerTransports } from './transports/index.ts';
import { packageVersion } from './version.ts';

/** Exit code of a stop that left somebody without an end: a call that was cut, work of kind once in doubt. */
const CUT = 4;
/** Beyond the grace, for last words and for what waits to be written. */
const BEYOND_MS = 1_000;

interface Verb {
  /** Options and words that it does not name are refused. */
  readonly usage: string;
  readonly does: string;
  run(args: readonly string[], options: Options): void | Promise<void>;
}

interface Options {
  readonly log: string | undefined;
  readonly json: boolean;
  readonly ready: boolean;
  readonly wait: string | undefined;
  /** Of the sandbox: what is laid over the scenarios, where chance begins, which of them, how much is told, and where for a CI. */
  readonly with: string | undefined;
  readonly seed: string | undefined;
  readonly only: readonly string[];
  readonly all: boolean;
  readonly junit: string | undefined;
  /** Of replay: single settings that are to be different, how many calls, which one, and where they are sent anew. */
  readonly set: readonly string[];
  readonly limit: string | undefined;
  readonly call: string | undefined;
  readonly send: string | undefined;
}

const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'silent'] as const satisfies readonly LogOptions['level'][];

/** Of a whole file, with what each transport takes. */
function editorSchema(kind: 'settings' | 'table'): object {
  return withEndpointTypes(kind === 'table' ? documentSchema() : configSchema(), endpointTables(registerTransports(null)));
}

const VERBS: Readonly<Record<string, Verb>> = {
  run: {
    usage: 'run <settings.yaml> [--log LEVEL]',
    does: 'start the sidecar and stay up until SIGTERM',
    run: async ([file], { log }) => {
      const { config } = readSettings(needed(file, 'run', 'the settings file'));
      const level = LEVELS.find((each) => each === (log ?? config.log.level));
      if (level === undefined) throw new StartRefused([`--log ${log}: must be one of ${LEVELS.join(', ')}`]);
      const started = await startSidecar(file as string, createLog({ level, to: 'stderr', service: config.name }));
      announce(started);
      stopOnSignal(started);
    },
  },
  check: {
    usage: 'check <file.yaml>',
    does: 'validate a settings file with its table, or a table file, and say what is wrong, with line and column',
    run: ([file]) => check(needed(file, 'check', 'a file')),
  },
  health: {
    usage: 'health <settings.yaml> [--ready] [--wait TIME]',
    does: 'ask the sidecar of these settings on this machine whether it lives, or is ready to be called; exit 1 when not',
    run: async ([file], { ready, wait }) => {
      const config = ownSettings(needed(file, 'health', 'the settings file'));
      const waitMs = wait === undefined ? 0 : parseDuration(wait);
      if (typeof waitMs === 'string') throw new StartRefused([`--wait: ${waitMs}`]);
      const socket = config.socket === null ? null : resolve(dirname(file as string), config.socket.path);
      if (socket === null && config.listen.port === 0)
        throw new StartRefused([`${file}: listen names no port (0 is any free one), so nobody can be asked`]);
      const place = socket === null ? localUrl(config.listen) : 'http://localhost';
      const { isGood, words } = await probe(`${place}/v1/${ready ? 'ready' : 'health'}`, waitMs, realClock, socket);
      process[isGood ? 'stdout' : 'stderr'].write(`${words}\n`);
      process.exitCode = isGood ? 0 : 1;
    },
  },
  schema: {
    usage: 'schema [settings|table]',
    does: 'print the JSON Schema of a settings file (with or without its table) or of a table file, for editors',
    run: ([kind = 'settings']) => {
      if (kind !== 'settings' && kind !== 'table')
        throw new StartRefused([`there is no schema of ${JSON.stringify(kind.slice(0, 40))}: settings or table`]);
      process.stdout.write(`${JSON.stringify(editorSchema(kind), null, 2)}\n`);
    },
  },
  record: {
    usage: 'record <settings.yaml> [start|stop|status]',
    does: 'begin or end the recording of calls in the sidecar of these settings on this machine, or show how it stands',
    run: async ([file, order = 'status']) => {
      const config = ownSettings(needed(file, 'record', 'the settings file'));
      const { ORDERS, orderRecording } = await import('./record/command.ts');
      const known = ORDERS.find((each) => each === order);
      if (known === undefined) throw new StartRefused([`record: ${JSON.stringify(order.slice(0, 40))} is none of ${ORDERS.join(', ')}`]);
      const socket = config.socket === null ? null : resolve(dirname(file as string), config.socket.path);
      const { isGood, words } = await orderRecording(config, known, socket);
      process[isGood ? 'stdout' : 'stderr'].write(`${words}\n`);
      process.exitCode = isGood ? 0 : 1;
    },
  },
  replay: {
    usage: 'replay <file|folder> [--with FILE] [--set SETTING] [--call N] [--limit N] [--send WHERE] [--json]',
    does: 'decide recorded calls anew, under other policies or settings, and tell what would differ; exit 1 when something does',
    run: async ([path], { json, with: withFile, set, limit, call, send }) => {
      needed(path, 'replay', 'a recording');
      const { runReplay } = await import('./replay/command.ts');
      process.exitCode = await runReplay(path as string, {
        withFile: withFile ?? null,
        sets: set,
        json,
        limit: limit ?? null,
        call: call ?? null,
        send: send ?? null,
        token: process.env['REACH_TOKEN'] ?? null,
        columns: process.stdout.columns ?? 160,
        write: (line) => process.stdout.write(`${line}\n`),
      });
    },
  },
  sandbox: {
    usage: 'sandbox <file|folder> … [--with FILE] [--seed N] [--only WORD] [--all] [--json] [--junit FILE]',
    does: 'run scenarios on mock providers and a virtual clock; exit 1 when an expectation fails',
    run: async (files, { json, with: withFile, seed, only, all, junit }) => {
      needed(files[0], 'sandbox', 'a scenario file');
      const number = seed === undefined ? null : Number(seed);
      if (number !== null && !(seed?.trim() !== '' && Number.isInteger(number) && number >= 0 && number <= 4_294_967_295))
        throw new StartRefused([`--seed: must be a whole number from 0 to 4294967295, not ${JSON.stringify(seed)}`]);
      // Loaded only when it is used: a running sidecar has no need of it.
      const { runSandbox } = await import('./lab/command.ts');
      process.exitCode = await runSandbox(files, {
        json,
        withFile: withFile ?? null,
        seed: number,
        only,
        isDetailed: all,
        junit: junit ?? null,
        clock: realClock,
        write: (line) => process.stdout.write(`${line}\n`),
      });
    },
  },
};

function check(file: string): void {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw new StartRefused([`${file}: cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})`]);
  }
  const problems = problemsIn(text, file);
  if (problems.length > 0) throw new StartRefused(problems.map(wordsOfProblem));
  process.stdout.write(`${file}: good\n`);
}

/** Of a sidecar that runs: a table that was spoilt since, in the same file, is its own affair. */
function ownSettings(file: string): SidecarConfig {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw new StartRefused([`${file}: cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})`]);
  }
  const reading = readSidecarConfig(text, file);
  if (!('problems' in reading)) return reading.config;
  if (reading.own !== null) return reading.own;
  throw new StartRefused(reading.problems.map(wordsOfProblem));
}

function needed(value: string | undefined, verb: string, what: string): string {
  if (value === undefined) throw new StartRefused([`${verb} needs ${what}: reach-sidecar ${VERBS[verb]?.usage}`]);
  return value;
}

function help(): string {
  const width = Math.max(...Object.values(VERBS).map((verb) => verb.usage.length));
  const lines = Object.values(VERBS).map((verb) => `  reach-sidecar ${verb.usage.padEnd(width)}  ${verb.does}`);
  return ['The sidecar that lets an agent reach others by what they can do.', '', ...lines, ''].join('\n');
}

async function obey(argv: readonly string[]): Promise<void> {
  const { values, positionals } = parsed(argv);
  if (values.version === true) return void process.stdout.write(`${packageVersion()}\n`);
  const [word, ...args] = positionals;
  if (values.help === true || word === 'help') return void process.stdout.write(help());
  if (word === undefined) throw new StartRefused(help().trimEnd().split('\n'));
  const verb = Object.hasOwn(VERBS, word) ? VERBS[word] : undefined;
  if (verb === undefined) {
    const near = nearest(word, Object.keys(VERBS));
    throw new StartRefused([
      `there is no command ${JSON.stringify(word.slice(0, 40))}${near === null ? '' : `; did you mean ${near}?`} (see reach-sidecar --help)`,
    ]);
  }
  const stray = notTaken('reach-sidecar', verb.usage, values, args);
  if (stray !== null) throw new StartRefused([stray]);
  await verb.run(args, {
    log: values.log,
    json: values.json === true,
    ready: values.ready === true,
    wait: values.wait,
    with: values.with,
    seed: values.seed,
    only: values.only ?? [],
    all: values.all === true,
    junit: values.junit,
    set: values.set ?? [],
    limit: values.limit,
    call: values.call,
    send: values.send,
  });
}

function parsed(argv: readonly string[]) {
  try {
    return parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: {
        log: { type: 'string' },
        json: { type: 'boolean' },
        ready: { type: 'boolean' },
        wait: { type: 'string' },
        with: { type: 'string' },
        seed: { type: 'string' },
        only: { type: 'string', multiple: true },
        all: { type: 'boolean' },
        junit: { type: 'string' },
        set: { type: 'string', multiple: true },
        limit: { type: 'string' },
        call: { type: 'string' },
        send: { type: 'string' },
        help: { type: 'boolean', short: 'h' },
        version: { type: 'boolean', short: 'V' },
      },
    });
  } catch (error) {
    throw new StartRefused([(error as Error).message]);
  }
}

function announce(started: Started): void {
  const { front } = started;
  const mesh = started.meshUrl === null ? '' : `, mesh ${started.meshUrl}`;
  const state = front.ready
    ? `table ${front.table.current().version} from ${front.table.source}`
    : `not ready: ${front.table.staleBecause}`;
  const grpc = started.grpcAddress === null ? '' : `, gRPC ${started.grpcAddress}`;
  process.stdout.write(`${started.config.name} listens on ${started.url}${mesh}${grpc} (${state})\n`);
}

/**
 * SIGTERM and SIGINT mean the same: the first begins the stop, the second ends the grace at once (what is under way is told so), the
 * third ends the process as it is.
 */
function stopOnSignal(started: Started): void {
  let signals = 0;
  let hard: Timer | null = null;
  const stop = (): void => {
    signals++;
    if (signals > 2) process.exit(CUT);
    const graceMs = signals === 1 ? started.config.shutdown.graceMs : 0;
    hard?.cancel();
    hard = realClock.after(graceMs + BEYOND_MS, () => {
      process.stderr.write(`reach-sidecar: was not done ${BEYOND_MS / 1_000} s after its grace, and ends as it is\n`);
      process.exit(CUT);
    });
    void started.stop(graceMs).then((report) => {
      if (!isClean(report)) process.stderr.write(`reach-sidecar: ${stopWords(report)}\n`);
      process.exit(isClean(report) ? 0 : CUT);
    });
  };
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
}

/** Runs the command line; what goes wrong is said in one line each, and the exit code is 2. */
export async function runCommandLine(): Promise<void> {
  try {
    await obey(process.argv.slice(2));
  } catch (error) {
    const known = error instanceof Error && 'code' in error;
    const lines =
      error instanceof StartRefused
        ? error.lines
        : [known ? error.message : `a fault in Agent-Reach: ${String((error as Error).stack ?? error)}`];
    for (const line of lines) process.stderr.write(`reach-sidecar: ${line}\n`);
    process.exitCode = 2;
  }
}
