/**
 * `make peers`: beside the Python of the agents (`make python`), the real grpcurl, for the tests that show that it works with
 * us. They have a stand-in for it, so that a machine without Go can run them all.
 */
import { grpcurl, installGrpcurl } from '../support/grpcurl.ts';

const say = (line: string): void => void process.stderr.write(`${line}\n`);

if (grpcurl() === null) {
  say('installing grpcurl with Go (build/peers/bin)');
  if (installGrpcurl() === null) say('no grpcurl: there is no Go to build it with, and the tests use their stand-in');
}
