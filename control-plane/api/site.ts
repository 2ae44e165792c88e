/**
 * The console's files as a browser gets them: read once when the program starts, served from memory by their exact names and by
 * nothing else, so that no path can lead out of them. What is named by its content stays in the browser's cache for good; the
 * page itself is asked for each time, and answered with 304 while it is the same. Nothing may be loaded from elsewhere, no script
 * or style may stand in the page, and no other page may frame it.
 *
 * What the console shows it asks of the API; none of it stands in these files, so they need no credential.
 */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';

const TYPES: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
  png: 'image/png',
  ico: 'image/x-icon',
  woff2: 'font/woff2',
  json: 'application/json; charset=utf-8',
  webmanifest: 'application/manifest+json',
};
/** Named by what is in it, as esbuild does: `app-4K7QZ2XA.js`. */
const HASHED = /-[A-Z0-9]{8}\.[a-z0-9]+$/;
const IMMUTABLE = 'public, max-age=31536000, immutable';
/** May be kept, and is asked about each time. */
const ASKED = 'no-cache';
/** Smaller ones gain nothing. */
const MIN_COMPRESSED_BYTES = 1_024;
export const CONSOLE_PATH = '/console/';

const POLICY = [
  "default-src 'self'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self' data:",
  "object-src 'none'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
].join('; ');

/** Of every answer of the port. */
export const EVERYWHERE: Readonly<Record<string, string>> = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
};

const OF_FILES: Readonly<Record<string, string>> = {
  ...EVERYWHERE,
  'content-security-policy': POLICY,
  'cross-origin-opener-policy': 'same-origin',
  'x-frame-options': 'DENY',
  'permissions-policy': 'camera=(), geolocation=(), microphone=(), payment=(), usb=()',
};

type Coding = 'br' | 'gzip';

interface Asset {
  readonly bytes: Buffer;
  readonly etag: string;
  readonly type: string;
  readonly isHashed: boolean;
  /** Made when somebody first asks for it. */
  readonly coded: Map<Coding, Promise<Buffer>>;
}

export class Site {
  readonly #assets: ReadonlyMap<string, Asset>;

  /** The files beside the program, wherever it stands: as source, compiled, bundled. Null = this build carries none. */
  static beside(): Site | null {
    for (const place of ['./console/', '../../bundle-control/console/', '../../dist/bundle-control/console/']) {
      const site = Site.from(fileURLToPath(new URL(place, import.meta.url)));
      if (site !== null) return site;
    }
    return null;
  }

  /** @param folder with index.html; null when it has none */
  static from(folder: string): Site | null {
    const assets = new Map<string, Asset>();
    let names: string[];
    try {
      names = readdirSync(folder, { recursive: true, encoding: 'utf8' });
    } catch {
      return null;
    }
    for (const name of names) {
      const type = TYPES[name.slice(name.lastIndexOf('.') + 1)];
      if (type === undefined) continue;
      const bytes = readFileSync(`${folder}/${name}`);
      const etag = createHash('sha256').update(bytes).digest('base64url').slice(0, 22);
      assets.set(name.replaceAll('\\', '/'), { bytes, etag, type, isHashed: HASHED.test(name), coded: new Map() });
    }
    return assets.get('index.html')?.type === TYPES['html'] ? new Site(assets) : null;
  }

  private constructor(assets: ReadonlyMap<string, Asset>) {
    this.#assets = assets;
  }

  /** @param path below `/console/`; '' = the page. @returns false when there is no such file */
  async serve(path: string, request: IncomingMessage, response: ServerResponse): Promise<boolean> {
    const asset = this.#assets.get(path === '' ? 'index.html' : path);
    if (asset === undefined) return false;
    const coding = codingOf(asset, request.headers['accept-encoding']);
    const etag = `"${asset.etag}${coding === null ? '' : `-${coding}`}"`;
    const head: Record<string, string> = {
      ...OF_FILES,
      'content-type': asset.type,
      'cache-control': asset.isHashed ? IMMUTABLE : ASKED,
      etag,
      vary: 'accept-encoding',
    };
    if (isKnown(request.headers['if-none-match'], etag)) {
      response.writeHead(304, head);
      response.end();
      return true;
    }
    const bytes = coding === null ? asset.bytes : await codedBy(asset, coding);
    if (coding !== null) head['content-encoding'] = coding;
    response.writeHead(200, { ...head, 'content-length': String(bytes.length) });
    response.end(request.method === 'HEAD' ? undefined : bytes);
    return true;
  }
}

/** `/`, `/console` and what is not there. @param words plain text */
export function sendPlain(response: ServerResponse, status: number, words: string, head: Readonly<Record<string, string>> = {}): void {
  const text = `${words}\n`;
  response.writeHead(status, {
    ...OF_FILES,
    'content-type': 'text/plain; charset=utf-8',
    'content-length': String(Buffer.byteLength(text)),
    'cache-control': 'no-store',
    ...head,
  });
  response.end(response.req.method === 'HEAD' ? undefined : text);
}

function codingOf({ bytes, type }: Asset, accepted: string | undefined): Coding | null {
  if (accepted === undefined || bytes.length < MIN_COMPRESSED_BYTES || type === TYPES['png'] || type === TYPES['woff2']) return null;
  for (const coding of ['br', 'gzip'] as const) {
    const named = accepted.split(',').find((each) => each.trim().split(';', 1)[0] === coding);
    if (named !== undefined && !/;\s*q=0(\.0*)?\s*$/.test(named)) return coding;
  }
  return null;
}

function codedBy(asset: Asset, coding: Coding): Promise<Buffer> {
  const known = asset.coded.get(coding);
  if (known !== undefined) return known;
  const made =
    coding === 'br'
      ? promisify(brotliCompress)(asset.bytes, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: asset.bytes.length } })
      : promisify(gzip)(asset.bytes, { level: 9 });
  asset.coded.set(coding, made);
  return made;
}

/** `If-None-Match` names it, or anything. */
function isKnown(given: string | undefined, etag: string): boolean {
  return given !== undefined && given.split(',').some((each) => each.trim() === '*' || each.trim().replace(/^W\//, '') === etag);
}
