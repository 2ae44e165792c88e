#!/usr/bin/env node
/** `reach-sidecar`: the entry. Reads the command line, starts and stops; decides nothing about calls. */
import { readFileSync } from 'node:fs';
import { Command } from 'commander';
import { realClock } from '../base/clock.ts';
import { createLog, type LogOptions } from '../base/log.ts';
import { documentSchema, readTable } from '../proto/language/document.ts';
import { readSidecarConfig } from './config.ts';
import { runSandbox } from './lab/command.ts';
import { readSettings, type Started, StartRefused, startSidecar } from './sidecar.ts';
import { wordsOfProblem } from './table/file.ts';

/** How long calls under way may take to end after SIGTERM; a second signal ends them at once. */
const GRACE_MS = 10_000;

const program = new Command('reach-sidecar').description('The sidecar that lets an agent reach others by what they can do.').version(packageVersion());

program
  .command('run')
  .description('start the sidecar and stay up until SIGTERM')
  .argument('<settings>', 'YAML file with the section `sidecar`, and the table inline or by `sidecar.table`')
  .option('--log <level>', 'trace, debug, info, warn, error or silent; overrides the file')
  .action(async (settings: string, options: { log?: string }) => {
    const { config } = readSettings(settings);
    const level = (options.log ?? config.log.level) as LogOptions['level'];
    const log = createLog({ level, to: 'stderr', service: config.name });
    const started = await startSidecar(settings, log);
    announce(started);
    stopOnSignal(started);
  });

program
  .command('check')
  .description('validate a settings or table file and say what is wrong, with line and column')
  .argument('<file>')
  .action((file: string) => {
    const text = readFileSync(file, 'utf8');
    const reading = /^sidecar:/m.test(text) ? readSidecarConfig(text, file) : readTable(text, file);
    if ('problems' in reading) throw new StartRefused(reading.problems.map(wordsOfProblem));
    process.stdout.write(`${file}: good\n`);
  });

program
  .command('schema')
  .description('print the JSON Schema of the table file, for editors')
  .action(() => {
    process.stdout.write(`${JSON.stringify(documentSchema(), null, 2)}\n`);
  });

program
  .command('sandbox')
  .description('run scenario files on mock providers and a virtual clock; exit 1 when an expectation fails')
  .argument('<scenario...>')
  .option('--json', 'one JSON object instead of a table')
  .action(async (files: string[], options: { json?: boolean }) => {
    process.exitCode = await runSandbox(files, { json: options.json === true, write: (line) => process.stdout.write(`${line}\n`) });
  });

function announce(started: Started): void {
  const { front } = started;
  const mesh = started.meshUrl === null ? '' : `, mesh ${started.meshUrl}`;
  const state = front.ready ? `table ${front.table.current().version} from ${front.table.source}` : `not ready: ${front.table.staleBecause}`;
  process.stdout.write(`${started.config.name} listens on ${started.url}${mesh} (${state})\n`);
}

function stopOnSignal(started: Started): void {
  let stopping = false;
  const stop = (): void => {
    const graceMs = stopping ? 0 : GRACE_MS;
    if (stopping) realClock.after(100, () => process.exit(1));
    stopping = true;
    void started.stop(graceMs).then(() => process.exit(0));
  };
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
}

function packageVersion(): string {
  for (const place of ['../package.json', '../../package.json']) {
    try {
      return (JSON.parse(readFileSync(new URL(place, import.meta.url), 'utf8')) as { version: string }).version;
    } catch {
      // The compiled program stands one folder deeper than the source.
    }
  }
  return 'unknown';
}

try {
  await program.parseAsync();
} catch (error) {
  const lines = error instanceof StartRefused ? error.lines : [error instanceof Error && 'code' in error ? error.message : `a fault in Agent-Reach: ${String((error as Error).stack ?? error)}`];
  for (const line of lines) process.stderr.write(`reach-sidecar: ${line}\n`);
  process.exitCode = 2;
}
