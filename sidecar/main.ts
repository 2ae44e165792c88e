#!/usr/bin/env node
/**
 * The entry of `reach-sidecar`. Loading the program makes some ten megabytes of garbage that survives just long enough to
 * let V8 grow its young generation to 48 MB, and lets it optimise code that runs only once; an idle sidecar then keeps the
 * memory of both. A sidecar that starts holds both back until it is up (10 + 9 MB less); under load they work as always.
 *
 * One habit of V8 is switched off for good: where most of what a line of code allocates lives long, V8 allocates there in the
 * old generation from then on. The lists of listeners of thousands of connections live long, and the same line of Node's makes
 * the list of every request, which then keeps the whole call alive until a full collection: 4 KB promoted with every call, and
 * a third more CPU for each, from the first thousands of connections on.
 */
import { setFlagsFromString } from 'node:v8';
import { keepTickShape } from '../base/tick-shape.ts';

const isServer = process.argv[2] === 'run';
if (isServer) setFlagsFromString('--no-allocation-site-pretenuring');
if (isServer) setFlagsFromString('--semi-space-growth-factor=1');
if (isServer) setFlagsFromString('--no-opt');
if (isServer) keepTickShape();
const { runCommandLine } = await import('./cli.ts');
await runCommandLine();
if (isServer) setFlagsFromString('--opt');
if (isServer) setFlagsFromString('--semi-space-growth-factor=2');
