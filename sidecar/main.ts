#!/usr/bin/env node
/**
 * The entry of `reach-sidecar`. Loading the program makes some ten megabytes of garbage that survives just long enough to
 * let V8 grow its young generation to 48 MB, and lets it optimise code that runs only once; an idle sidecar then keeps the
 * memory of both. A sidecar that starts holds both back until it is up (10 + 9 MB less); under load they work as always.
 */
import { setFlagsFromString } from 'node:v8';

const isServer = process.argv[2] === 'run';
if (isServer) setFlagsFromString('--semi-space-growth-factor=1');
if (isServer) setFlagsFromString('--no-opt');
const { runCommandLine } = await import('./cli.ts');
await runCommandLine();
if (isServer) setFlagsFromString('--opt');
if (isServer) setFlagsFromString('--semi-space-growth-factor=2');
