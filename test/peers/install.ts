/**
 * `make peers`: beside the Python of the agents (`make python`), the real grpcurl, for the tests that show that it works with
 * us. They have a stand-in for it, so that a machine without Go can run them all. And a collector of OpenTelemetry's own modules, which
 * has no stand-in.
 */
import { otelCollector, installOtelCollector } from '../support/otel-collector.ts';
import { grpcurl, installGrpcurl } from '../support/grpcurl.ts';

const say = (line: string): void => void process.stderr.write(`${line}\n`);

if (grpcurl() === null) {
  say('installing grpcurl with Go (build/peers/bin)');
  if (installGrpcurl() === null) say('no grpcurl: there is no Go to build it with, and the tests use their stand-in');
}

if (otelCollector() === null) {
  say('building an OpenTelemetry collector with Go (build/peers/bin)');
  if (installOtelCollector() === null) say('no collector: there is no Go to build it with, and the test of the export cannot be run');
}
