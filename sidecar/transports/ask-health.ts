/** Asks an agent of this sidecar how it is: a GET that is to be answered 2xx. Redirects are not followed, and no more than the head is read. */
import { request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import type { Clock } from '../../base/clock.ts';

/** `late`: it took the connection and said nothing in time. */
export function askHealth(clock: Clock, url: string, timeoutMs: number): Promise<'well' | 'unwell' | 'late'> {
  return new Promise((done) => {
    let isConnected = false;
    const headers = { 'user-agent': 'agent-reach-health', connection: 'close' };
    const request = (url.startsWith('https:') ? requestHttps : requestHttp)(url, { method: 'GET', agent: false, headers });
    const end = (condition: 'well' | 'unwell' | 'late'): void => {
      timer.cancel();
      request.destroy();
      done(condition);
    };
    const timer = clock.after(timeoutMs, () => end(isConnected ? 'late' : 'unwell'));
    request.on('socket', (socket) => socket.on('connect', () => (isConnected = true)));
    request.on('response', ({ statusCode = 0 }) => end(statusCode >= 200 && statusCode < 300 ? 'well' : 'unwell'));
    request.on('error', () => end('unwell'));
    request.end();
  });
}
