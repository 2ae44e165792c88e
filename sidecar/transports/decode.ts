/**
 * Bodies that come compressed although plain bytes were asked for. Some services compress whatever one asks; their
 * answers must be readable for schema checks and envelopes, so a whole answer is unpacked here, never beyond the limit
 * on bodies (a small packed body may unpack to anything). Streams: `unpacked-body.ts`.
 */
import { brotliDecompress, gunzip, inflate } from 'node:zlib';
import { Code } from '../../proto/wire/codes.ts';
import { answered, failed, type Reply, type ReplyHeaders } from '../call/reply.ts';

type Unpack = (packed: Buffer, options: { maxOutputLength: number }, done: (error: Error | null, plain: Buffer) => void) => void;

const UNPACK: Readonly<Record<string, Unpack>> = { gzip: gunzip, 'x-gzip': gunzip, deflate: inflate, br: brotliDecompress };

/** The encoding of a body, lower case; '' when it is plain. */
export function encodingOf(headers: ReplyHeaders): string {
  const value = headers['content-encoding'];
  if (value === undefined) return '';
  const encoding = (typeof value === 'string' ? value : value.join(',')).trim().toLowerCase();
  return encoding === 'identity' ? '' : encoding;
}

export function decodeBody(encoding: string, status: number, headers: ReplyHeaders, packed: Buffer, maxBytes: number): Promise<Reply> {
  const unpack = Object.hasOwn(UNPACK, encoding) ? UNPACK[encoding] : undefined;
  if (unpack === undefined) return Promise.resolve(failed(Code.bad_response, 'done', unreadable(encoding)));
  return new Promise((resolve) => {
    unpack(packed, { maxOutputLength: Math.max(1, maxBytes) }, (error, plain) => {
      if (error === null) resolve(answered(status, plainHeaders(headers), plain));
      else if ((error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE')
        resolve(failed(Code.response_too_large, 'done', `the answer is above the limit of ${maxBytes} bytes once unpacked (${encoding})`));
      else resolve(failed(Code.bad_response, 'done', `the answer says content-encoding ${encoding} but does not unpack`));
    });
  });
}

export function unreadable(encoding: string): string {
  return `the answer has the content-encoding ${JSON.stringify(encoding.slice(0, 40))}, which cannot be read; plain bytes were asked for`;
}

export function plainHeaders(headers: ReplyHeaders): ReplyHeaders {
  const plain: Record<string, string | string[] | undefined> = {};
  for (const name in headers) if (name !== 'content-encoding' && name !== 'content-length') plain[name] = headers[name];
  return plain;
}
