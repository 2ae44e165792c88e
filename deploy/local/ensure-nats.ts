/** Before tests and demo: a nats-server is there, or is got, or it is said in one sentence how to get one. `--own`: one that can be killed. */
import { versionWarning } from '../../base/jetstream.ts';
import { ensureNatsServer, OR_NAME_ONE, versionOf } from './nats-binary.ts';

const say = (line: string): void => void process.stderr.write(`${line}\n`);
const mustBeOwn = process.argv.includes('--own');

if (mustBeOwn || (process.env['REACH_NATS_URL'] ?? '') === '') {
  try {
    const binary = ensureNatsServer(say);
    const version = versionOf(binary);
    if (version === '') throw new Error(`${binary} does not work: it does not tell its version`);
    const warning = versionWarning(version);
    if (warning !== null) say(`WARNING: ${warning}.`);
  } catch (error) {
    say(error instanceof Error ? error.message : String(error));
    if (!mustBeOwn) say(OR_NAME_ONE);
    process.exitCode = 1;
  }
}
