#!/usr/bin/env node
/** The entry of `reachctl`. */
import { realClock } from '../../base/clock.ts';
import { packageVersion } from '../../base/package-version.ts';
import { nodeTerminal } from './node-terminal.ts';
import { runReachctl } from './program.ts';

// A reader that went away (`reachctl watch | head`) is no failure of ours.
process.stdout.on('error', () => process.exit(0));

async function stdin(): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of process.stdin) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString('utf8');
}

const terminal = nodeTerminal();

process.exitCode = await runReachctl(
  process.argv.slice(2),
  {
    out: (text) => void process.stdout.write(`${text}\n`),
    err: (text) => void process.stderr.write(`${text}\n`),
    env: process.env,
    clock: realClock,
    stdin,
    ...(terminal === null ? null : { terminal }),
  },
  packageVersion(),
);
