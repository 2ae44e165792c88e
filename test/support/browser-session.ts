/** Speaks to the control plane's API as a browser does: with a cookie, and with headers that only a browser sets. */
import { request } from 'node:http';

export interface BrowserAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: an answer of HTTP
  readonly json: any;
}

export interface BrowserAsking {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly json?: unknown;
  readonly body?: string;
}

export function asBrowser(url: string, path: string, { method, headers = {}, json, body }: BrowserAsking = {}): Promise<BrowserAnswer> {
  const text = json === undefined ? body : JSON.stringify(json);
  return new Promise((done, failed) => {
    const target = new URL(url);
    // The path as it is written: what a URL would tidy up is what is tried here.
    const asked = request(
      {
        host: target.hostname,
        port: target.port,
        path,
        method: method ?? (text === undefined ? 'GET' : 'POST'),
        agent: false,
        headers: {
          host: target.host,
          ...(text === undefined ? {} : { 'content-length': String(Buffer.byteLength(text)) }),
          ...(json === undefined ? {} : { 'content-type': 'application/json' }),
          ...headers,
        },
      },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('end', () => {
          const whole = Buffer.concat(chunks).toString('utf8');
          done({
            status: response.statusCode ?? 0,
            headers: response.headers,
            text: whole,
            json: whole.startsWith('{') ? (JSON.parse(whole) as unknown) : null,
          });
        });
      },
    );
    asked.on('error', failed);
    asked.end(text);
  });
}

/** Headers of a page of the port itself. */
export function pageHeaders(url: string): Record<string, string> {
  return { origin: new URL(url).origin, 'sec-fetch-site': 'same-origin', 'sec-fetch-mode': 'cors' };
}

export interface SignedIn {
  readonly name: string;
  readonly role: string;
  readonly csrf: string;
  /** As a browser sends it back. */
  readonly cookie: string;
  readonly setCookie: string;
  readonly untilMs: number;
}

export async function signIn(url: string, secret: string, headers: Readonly<Record<string, string>> = {}): Promise<SignedIn> {
  const {
    status,
    json,
    headers: head,
  } = await asBrowser(url, '/v1/session', {
    json: { token: secret },
    headers: { ...pageHeaders(url), ...headers },
  });
  if (status !== 201) throw new Error(`signing in: ${status} ${String(json?.detail)}`);
  const setCookie = ([] as string[]).concat(head['set-cookie'] ?? [])[0] ?? '';
  return {
    name: String(json.name),
    role: String(json.role),
    csrf: String(json.csrf),
    untilMs: Number(json.until_ms),
    setCookie,
    cookie: setCookie.split(';', 1)[0] as string,
  };
}

/** Of a page that has signed in. */
export function sessionHeaders(url: string, { cookie, csrf }: SignedIn): Record<string, string> {
  return { ...pageHeaders(url), cookie, 'x-reach-csrf': csrf };
}
