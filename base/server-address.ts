/** Where a server of the bus is, as people write it, and whether something that speaks its protocol is there. */
import { createConnection } from 'node:net';
import type { Clock } from './clock.ts';

export interface ServerAddress {
  readonly host: string;
  readonly port: number;
  readonly isTls: boolean;
  readonly login: { readonly user: string; readonly password: string } | { readonly token: string } | null;
}

const USUAL_PORT = 4_222;
const MAX_GREETING_CHARS = 65_536;

/** Reads `nats://[user:password@]host[:port]`, `tls://…` or plain `host[:port]`; the reason as text when it is none of them. */
export function readServerAddress(text: string): ServerAddress | string {
  const whole = text.includes('://') ? text : `nats://${text}`;
  const url = URL.canParse(whole) ? new URL(whole) : null;
  if (url === null || url.hostname === '') return 'is no address like nats://host:4222';
  if (url.protocol !== 'nats:' && url.protocol !== 'tls:') return `begins with ${url.protocol}// where nats:// or tls:// is possible`;
  if ((url.pathname !== '' && url.pathname !== '/') || url.search !== '' || url.hash !== '') return 'has something behind the port';
  const host = url.hostname.startsWith('[') ? url.hostname.slice(1, -1) : url.hostname;
  const user = decoded(url.username);
  const password = decoded(url.password);
  const login = user === '' ? null : password === '' ? { token: user } : { user, password };
  return { host, port: url.port === '' ? USUAL_PORT : Number(url.port), isTls: url.protocol === 'tls:', login };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** A connection of our own that waits for the server's first line and is closed in any case. */
export class Greeting {
  /** Whether the server wants TLS; else why there was no greeting. */
  readonly result: Promise<{ readonly needsTls: boolean } | { readonly failed: string }>;
  /** Ends it at once. */
  readonly cancel: () => void;

  constructor(address: ServerAddress, clock: Clock, timeoutMs: number) {
    let resolve: (result: { needsTls: boolean } | { failed: string }) => void = () => {};
    this.result = new Promise((done) => {
      resolve = done;
    });
    const socket = createConnection({ host: address.host, port: address.port });
    let heard = '';
    const end = (result: { needsTls: boolean } | { failed: string }): void => {
      timer.cancel();
      socket.destroy();
      resolve(result);
    };
    const timer = clock.after(timeoutMs, () => end({ failed: `no word from the server within ${timeoutMs} ms` }));
    this.cancel = () => end({ failed: 'given up' });
    socket.on('error', (error) => end({ failed: error.message || 'cannot connect' }));
    socket.on('close', () => end({ failed: 'the server hung up' }));
    socket.on('data', (chunk: Buffer) => {
      heard += chunk.toString('latin1');
      if (!heard.includes('\n') && heard.length < MAX_GREETING_CHARS) return;
      end(heard.startsWith('INFO ') ? { needsTls: heard.includes('"tls_required":true') } : { failed: 'what answers there is not NATS' });
    });
  }
}
