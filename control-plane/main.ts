#!/usr/bin/env node
/** The entry of `reach-control`: reads the command line and the settings, starts, and stops on a signal. */
import { readFileSync } from 'node:fs';
import { dirname, isAbsolute, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { realClock } from '../base/clock.ts';
import { parseDuration } from '../base/duration.ts';
import { createLog } from '../base/log.ts';
import { packageVersion } from '../base/package-version.ts';
import { localUrl, probe } from '../base/probe.ts';
import { notTaken } from '../base/usage.ts';
import { controlPlaneSchema, readControlPlaneConfig } from './config.ts';
import { ControlPlane, StartRefused } from './control-plane.ts';

/** How long requests under way may take to end after SIGTERM; a second signal ends them at once. */
const GRACE_MS = 5_000;

/** By command: how it is written, and what it does. */
const VERBS = {
  run: ['run <settings.yaml>', 'start a replica and stay up until SIGTERM'],
  check: ['check <settings.yaml>', 'validate the settings and say what is wrong, with line and column'],
  health: [
    'health <settings.yaml> [--ready] [--wait TIME]',
    'ask the replica of these settings on this machine whether it lives, or is ready',
  ],
  schema: ['schema', 'print the JSON Schema of the settings, for editors'],
} as const;

const WIDTH = Math.max(...Object.values(VERBS).map(([usage]) => usage.length));
const USAGE = [
  'The control plane of Agent-Reach: the registry, and what operators say.',
  '',
  ...Object.values(VERBS).map(([usage, does]) => `  reach-control ${usage.padEnd(WIDTH)}  ${does}`),
  '',
];

function settingsIn(file: string | undefined) {
  if (file === undefined) throw new StartRefused(USAGE);
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw new StartRefused([`${file}: cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})`]);
  }
  const reading = readControlPlaneConfig(text, file);
  if ('problems' in reading)
    throw new StartRefused(
      reading.problems.map(({ line, column, message }) => `${file}${line > 0 ? `:${line}:${column}` : ''}: ${message}`),
    );
  return reading.config;
}

async function run(file: string): Promise<void> {
  const config = settingsIn(file);
  const log = createLog({ level: config.logLevel, to: 'stderr', service: config.name });
  const { restore } = config;
  const restoreFile = restore === null || isAbsolute(restore) ? restore : resolve(dirname(file), restore);
  const plane = new ControlPlane(config, log, packageVersion(), restoreFile);
  await plane.start();
  process.stdout.write(`${config.name} listens on ${plane.url} (environment ${config.env}, NATS ${config.nats.url})\n`);
  let isStopping = false;
  const stop = (): void => {
    if (isStopping) realClock.after(100, () => process.exit(1));
    isStopping = true;
    void plane.stop(GRACE_MS).then(() => process.exit(0));
  };
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
}

async function health(file: string | undefined, ready: boolean, wait: string): Promise<void> {
  const { listen } = settingsIn(file).api;
  const waitMs = parseDuration(wait);
  if (typeof waitMs === 'string') throw new StartRefused([`--wait: ${waitMs}`]);
  if (listen.port === 0) throw new StartRefused([`${file}: api.listen names no port (0 is any free one), so nobody can be asked`]);
  const { isGood, words } = await probe(`${localUrl(listen)}/v1/${ready ? 'ready' : 'health'}`, waitMs, realClock);
  process[isGood ? 'stdout' : 'stderr'].write(`${words}\n`);
  process.exitCode = isGood ? 0 : 1;
}

async function obey(argv: readonly string[]): Promise<void> {
  const { values, positionals } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: {
      help: { type: 'boolean', short: 'h' },
      version: { type: 'boolean', short: 'V' },
      ready: { type: 'boolean' },
      wait: { type: 'string' },
    },
  });
  const [verb, ...words] = positionals;
  const [file] = words;
  if (values.version === true) return void process.stdout.write(`${packageVersion()}\n`);
  if (values.help === true || verb === 'help') return void process.stdout.write(USAGE.join('\n'));
  if (verb !== undefined && Object.hasOwn(VERBS, verb)) {
    const stray = notTaken('reach-control', VERBS[verb as keyof typeof VERBS][0], values, words);
    if (stray !== null) throw new StartRefused([stray]);
  }
  switch (verb) {
    case 'run':
      if (file === undefined) throw new StartRefused(USAGE);
      return run(file);
    case 'check':
      settingsIn(file);
      return void process.stdout.write(`${file}: good\n`);
    case 'health':
      return health(file, values.ready === true, values.wait ?? '0s');
    case 'schema':
      return void process.stdout.write(`${JSON.stringify(controlPlaneSchema(), null, 2)}\n`);
    default:
      throw new StartRefused(USAGE);
  }
}

try {
  await obey(process.argv.slice(2));
} catch (error) {
  const known = error instanceof Error && 'code' in error;
  const fault = known ? (error as Error).message : `a fault in Agent-Reach: ${String((error as Error).stack ?? error)}`;
  for (const line of error instanceof StartRefused ? error.lines : [fault]) process.stderr.write(`reach-control: ${line}\n`);
  process.exitCode = 2;
}
