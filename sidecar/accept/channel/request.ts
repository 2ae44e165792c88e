/** A call as it is said to the agent: `reach.invoke` with the headers that an HTTP agent would get, and the payload as it came. */
import { bodyKind, isWholeJson } from '../../call/answer-body.ts';
import { forwardRequestHeaders } from '../../transports/hygiene.ts';
import type { Exchange } from '../../transports/transport.ts';
import { JSON_TYPE, quoted } from './message.ts';

export interface Refused {
  readonly refusal: string;
}

/** All before the payload; or why these headers cannot be sent on. */
export function requestHead(exchange: Exchange, ask: string, id: number, wantsStream: boolean): string | Refused {
  const { own } = exchange;
  const passed: string[] = [];
  const refusal = forwardRequestHeaders(exchange.incoming, own, null, passed);
  if (refusal !== '') return { refusal };
  let headers = pairs('', own, false);
  if (passed.length > 0) headers = pairs(headers, passed, true);
  return `{"jsonrpc":"2.0","id":${id},${ask}${wantsStream ? ',"stream":true' : ''},"headers":{${headers}}`;
}

/** @param mayRepeat names may come twice, and an object has each once: the values are joined, as HTTP allows. */
function pairs(before: string, flat: readonly string[], mayRepeat: boolean): string {
  let text = before;
  for (let i = 0; i < flat.length; i += 2) {
    const name = flat[i] as string;
    let value = flat[i + 1] as string;
    if (mayRepeat) while (flat[i + 2] === name) value += `, ${flat[(i += 2) + 1] as string}`;
    text += `${text === '' ? '' : ','}${quoted(name)}:${quoted(value)}`;
  }
  return text;
}

interface Payload {
  readonly before: string;
  readonly bytes: Buffer | null;
  readonly after: string;
}

const NOTHING: Payload = { before: '}}', bytes: null, after: '' };

/**
 * What is JSON goes in as it came. It is looked at before, whatever its type says: what is not well formed could close the
 * object that it is put into and go on with members of its own.
 */
export function requestPayload({ body, contentType, json }: Exchange): Payload {
  if (body.length === 0) return contentType === '' ? NOTHING : { before: `${typed(contentType)}}}`, bytes: null, after: '' };
  const kind = bodyKind(contentType);
  const hasMark = body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf;
  if ((kind === 'json' || kind === 'unknown') && (json !== undefined || isWholeJson(body)))
    return {
      before: `${contentType === '' || contentType === JSON_TYPE ? '' : typed(contentType)},"payload":`,
      bytes: hasMark ? body.subarray(3) : body,
      after: '}}',
    };
  return {
    before: `${contentType === '' ? '' : typed(contentType)},"payload_base64":"${body.toString('base64')}"}}`,
    bytes: null,
    after: '',
  };
}

function typed(contentType: string): string {
  return `,"content_type":${quoted(contentType)}`;
}
