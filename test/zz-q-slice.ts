import { connect } from 'node:http2';
import { ScriptedFront } from '/work/main/test/support/front.ts';
import { grpcPort } from '/work/main/sidecar/accept/grpc.ts';
const NAME='crm.order.query';
const body = JSON.stringify('x'.repeat(8_000_000));
const front = new ScriptedFront({ script: (c, s) => s.answer(c, 200, body), config: { limits: { bodyBytes: 65536, headerBytes: 16384, connections: 100, batch: 1, unsentBytes: 16_777_216, stallMs: 10_000 } } });
const port = grpcPort(front, { listen: { host: '127.0.0.1', port: 0 }, streams: 100 });
await port.open();
for (const w of [65_535, 16_777_216]) {
const session = connect(`http://127.0.0.1:${port.address.port}`, { settings: { initialWindowSize: w } });
await new Promise((d) => session.on('connect', d)); if (w > 65535) session.setLocalWindowSize(w);
const req = Buffer.from([0, 0, 0, 0, NAME.length + 2, 0x0a, NAME.length, ...Buffer.from(NAME)]);
const one = () => new Promise<void>((done) => { const st = session.request({ ':method': 'POST', ':path': '/agentreach.v1.Reach/Invoke', 'content-type': 'application/grpc', te: 'trailers' }); st.on('close', () => done()); st.resume(); st.end(req); });
for (let i = 0; i < 5; i++) await one();
const t0 = performance.now(); for (let i = 0; i < 25; i++) await one();
console.log(w, ((25 * 8) / ((performance.now() - t0) / 1000)).toFixed(0), 'MB/s');
session.destroy();
}
process.exit();
