#!/usr/bin/env node
/**
 * The entry of `reach-sidecar`. Loading the program makes some ten megabytes of garbage that survives just long enough to
 * let V8 grow its young generation to 48 MB, which an idle sidecar then keeps. Growth is held back until it is loaded, so
 * that a sidecar beside every agent costs what it needs; under load the young generation grows as always.
 */
import { setFlagsFromString } from 'node:v8';

setFlagsFromString('--semi-space-growth-factor=1');
const { runCommandLine } = await import('./cli.ts');
await runCommandLine();
setFlagsFromString('--semi-space-growth-factor=2');
