/** The provider over gRPC: a bare grpc-js server that answers with one message made once. Says `{port}` to who started it. */
import { type sendUnaryData, Server, ServerCredentials, type ServerUnaryCall } from '@grpc/grpc-js';
import { loadSync, type ServiceDefinition } from '@grpc/proto-loader';
import { repoFile } from '../support/paths.ts';
import { ANSWER } from './payload.ts';

const loaded = loadSync(repoFile('test/bench/orders.proto'), { keepCase: true });
const { Explain } = loaded['bench.v1.Orders'] as ServiceDefinition;
if (Explain === undefined) throw new Error('orders.proto has no Explain');

const answer = Explain.responseSerialize(JSON.parse(ANSWER.toString('utf8')) as object);
const asItIs = (bytes: Buffer): Buffer => bytes;
const explain = (_call: ServerUnaryCall<Buffer, Buffer>, done: sendUnaryData<Buffer>): void => done(null, answer);

const server = new Server();
server.register(Explain.path, explain, asItIs, asItIs, 'unary');
server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, port) => {
  if (error !== null) throw error;
  process.send?.({ port });
});
