/** `make docs-transports`, after the conformance suites have run: what they found becomes docs/transports.json. */
import { readFileSync, writeFileSync } from 'node:fs';
import { type Direction, outcomeFile } from '../support/conformance.ts';
import { repoFile } from '../support/paths.ts';

const read = (direction: Direction): unknown => JSON.parse(readFileSync(outcomeFile(direction), 'utf8'));
const kept = { ways_in: read('ways_in'), ways_out: read('ways_out') };
writeFileSync(repoFile('docs/transports.json'), `${JSON.stringify(kept, null, 2)}\n`);
