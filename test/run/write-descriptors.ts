/**
 * Writes `proto/wire/reach-descriptors.ts` from the `.proto` files (`make descriptors`, after a change of them; a test fails
 * until then). The compiler is the one in grpcurl, since it keeps the comments, which `grpcurl describe` shows.
 */
import { writeFileSync } from 'node:fs';
import { compiledDescriptors, DESCRIPTORS_FILE, descriptorsModule } from '../support/descriptors.ts';
import { grpcurl, installGrpcurl } from '../support/grpcurl.ts';

const program = grpcurl() ?? installGrpcurl();
if (program === null) {
  process.stderr.write('grpcurl is needed to compile the .proto files: install it, or Go to install it with\n');
  process.exitCode = 1;
} else {
  writeFileSync(DESCRIPTORS_FILE, descriptorsModule(compiledDescriptors(program)));
  process.stdout.write(`${DESCRIPTORS_FILE} written\n`);
}
