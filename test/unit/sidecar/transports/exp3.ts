import { TcpStub, rawAnswer } from '../../../support/tcp-stub.ts';
import { TestAgent } from '../../../support/agent.ts';
import { HttpTransport } from '../../../../sidecar/transports/http.ts';
import { candidateOf, contextOf, exchangeOf, Collector } from './exchanges.ts';
const t0 = performance.now(); const log = (...a: unknown[]) => console.log((performance.now() - t0).toFixed(0), ...a);
const stub = await TcpStub.listen(async (connection) => {
      connection.socket.on('close', () => log('closed')); connection.socket.on('error', (e) => log(e.message)); connection.socket.on('end', () => log('end'));
      await connection.write(rawAnswer(200, { 'transfer-encoding': 'chunked' }));
      while (!connection.socket.destroyed) {
        await connection.write('2\r\nab\r\n');
        await new Promise(r => setTimeout(r, 2));
      }
});
const http = new HttpTransport(contextOf());
const candidate = candidateOf({ address: stub.url });
const second = exchangeOf(candidate);
const other = await http.invokeStream(second);
log('abort');
second.abort?.();
await stub.allClosed();
log('done');
for (const bytes of ['SSH-2.0-OpenSSH_9\r\n', `HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`]) {
  stub.script = (c) => c.write(bytes);
  console.log((await http.invoke(exchangeOf(candidate))).detail);
}
const agent = await TestAgent.listen('a');
const r = await http.invoke(exchangeOf(candidateOf({ address: agent.url, endpoint: { mapping: { '*': { method: 'GET', path: '/v1/orders/{/order/id}', query: { lang: '{/lang}', fixed: 'a b' }, headers: {}, body: 'none' } } } }), { body: '{"order":{"id":"A/1?x"},"lang":"d&e","tenant":7}' }));
console.log(r.code, r.detail);
process.exit(0);
