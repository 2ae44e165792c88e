/** Text that ends up in an HTTP request: header names and values, addresses, path templates. */
import { pointerProblem } from '../../base/json-pointer.ts';
import { quote } from '../../base/duration.ts';

const TOKEN = /^[a-z0-9!#$%&'*+.^_`|~-]{1,128}$/;

/** Lower case. */
export function isHeaderName(text: string): boolean {
  return TOKEN.test(text);
}

/** Headers that belong to the connection or to Agent-Reach: a mapping must not set them. */
const RESERVED: ReadonlySet<string> = new Set([
  'connection',
  'content-length',
  'expect',
  'host',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'traceparent',
  'tracestate',
]);

/** Why a header of this name may not be set by a file; null when it may. Any case is taken. */
export function headerNameProblem(text: string): string | null {
  const name = text.toLowerCase();
  if (!isHeaderName(name)) return `${quote(text)} is not a header name`;
  if (RESERVED.has(name) || name.startsWith('reach-')) return `the header ${name} is set by the sidecar itself and cannot be set here`;
  return null;
}

/** Names under which credentials go, in headers and queries: what stands beside one in a file is read by many. */
const SECRET_NAME =
  /^(?:authorization|cookie|(?:x-)?(?:api|access|auth|secret|private|subscription)[-_]?(?:key|token|secret)|(?:.*[-_])?(?:token|secret|password|passwd|pwd|credential|credentials|api[-_]?key|apikey|access[-_]?key))$/i;
/** Such as look like one and are none. */
const NO_SECRET = /^(?:idempotency[-_]?key|(?:page|next|continuation|cursor|sync|x-csrf)[-_]?token|max[-_]?token)$/i;

/** Why a fixed value may not stand under this name in a mapping; null when it may. A template may: its value comes with the call. */
export function inlineSecretProblem(name: string, value: string): string | null {
  if (!SECRET_NAME.test(name) || NO_SECRET.test(name) || /\{[^{}]*\}/.test(value)) return null;
  return `${quote(name)} holds a secret, and a secret does not stand in this file: name where it is kept under credential: {header: ..., secret: {env: NAME}}`;
}

/** No line ends, no control characters. */
export function headerValueProblem(text: string): string | null {
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if ((c < 32 && c !== 9) || c === 127 || c > 255) return "a header's value holds printable Latin characters only, on one line";
  }
  return null;
}

/** An http(s) address without credentials, query or fragment. */
export function addressProblem(text: string, isPathAllowed = true): string | null {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    return `${quote(hideUserInfo(text))} is not an address: write one such as http://127.0.0.1:8080`;
  }
  if (url.username !== '' || url.password !== '')
    return 'an address must not hold a user name or password: name the secret under credential';
  if (url.protocol !== 'http:' && url.protocol !== 'https:')
    return `an address begins with http:// or https://, not ${quote(url.protocol)}`;
  if (url.search !== '' || url.hash !== '' || /[?#]/.test(text)) return 'an address has no query and no fragment (? or #)';
  if (/[\s\\]/.test(text)) return 'an address has no spaces and no backslashes';
  if (!isPathAllowed && url.pathname !== '/') return 'this address is a host and a port only, without a path';
  return null;
}

function hideUserInfo(text: string): string {
  return text.replace(/\/\/[^/@]*@/, '//...@');
}

/** The address without slashes at its end. */
export function tidyAddress(text: string): string {
  return text.replace(/\/+$/, '');
}

/** `{/json/pointer}` parts; `words` are the other parts that are filled (`capability`). */
export function templateProblem(text: string, words: readonly string[] = []): string | null {
  let at = 0;
  while (at < text.length) {
    const two = text.slice(at, at + 2);
    if (two === '{{' || two === '}}') {
      at += 2;
      continue;
    }
    if (two[0] === '}') return `${quote(text)} has a } without its {; write }} for a brace`;
    if (two[0] !== '{') {
      at++;
      continue;
    }
    const close = text.indexOf('}', at);
    if (close < 0) return `${quote(text)} has a { without its }; write {{ for a brace`;
    const inner = text.slice(at + 1, close);
    if (inner.includes('{')) return `${quote(text)} has a { inside a { }`;
    // `{}` is the whole payload
    if (inner !== '' && !words.includes(inner)) {
      if (!inner.startsWith('/'))
        return `${quote(`{${inner}}`)} cannot be filled: write a JSON pointer into the payload such as {/order/id}${words.length > 0 ? `, or one of ${words.map((word) => `{${word}}`).join(', ')}` : ''}`;
      const problem = pointerProblem(inner);
      if (problem !== null) return problem;
    }
    at = close + 1;
  }
  return null;
}

/** A path template begins with / and stays on its host. */
export function pathProblem(text: string, words: readonly string[], arePointersAllowed: boolean): string | null {
  if (!text.startsWith('/')) return `a path begins with /, not ${quote(text)}`;
  if (text.startsWith('//')) return 'a path begins with one /, not two';
  if (/[\s\\#]/.test(text)) return 'a path has no spaces, no backslashes and no #';
  const problem = templateProblem(text, words);
  if (problem !== null) return problem;
  if (/\{\}|\{\{|\}\}/.test(text)) return 'a path holds no braces but those around a pointer';
  if (!arePointersAllowed && /\{\//.test(text)) return 'a path here is not filled from the payload: use a mapping for that';
  const outside = text.replace(/\{[^}]*\}/g, 'x');
  if (/(?:^|\/)(?:\.|%2e){1,2}(?:\/|$|\?)/i.test(outside)) return 'a path has no . or .. parts';
  return null;
}
