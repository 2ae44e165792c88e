/**
 * The headers that a handler has given its answer, as they can be sent. The answer is worth more than one odd header: what
 * cannot be sent is left out and told, and so is what says how the connection is framed, which the handler cannot know.
 */
import { sendableText } from '../wire-text.ts';

const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}$/;
const FRAMING: ReadonlySet<string> = new Set([
  'connection',
  'content-length',
  'keep-alive',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);
/** A sidecar takes 64 with 12,288 characters in all: what is added behind this has its room. */
const MAX_HEADERS = 60;
const MAX_CHARS = 12_000;

/** Names come out in lower case; of one that stands there twice the last counts. */
export function sendableHeaders(
  given: Readonly<Record<string, unknown>>,
  capability: string,
  log: (line: string) => void,
): Record<string, string> {
  const headers: Record<string, string> = {};
  let count = 0;
  let chars = 0;
  for (const name of Object.keys(given)) {
    const text = sendableText(given[name]);
    const lower = name.toLowerCase();
    if (!NAME.test(name)) log(leftOut(capability, name, 'no header has such a name'));
    else if (FRAMING.has(lower)) log(leftOut(capability, name, 'it is said by the connection'));
    else if (text === null) log(leftOut(capability, name, 'its value is no text that a header can have'));
    else if (count === MAX_HEADERS || chars + name.length + text.length > MAX_CHARS)
      log(leftOut(capability, name, `an answer has at most ${MAX_HEADERS} headers with ${MAX_CHARS} characters in all`));
    else {
      headers[lower] = text;
      count++;
      chars += name.length + text.length;
    }
  }
  return headers;
}

export function leftOut(capability: string, name: string, why: string): string {
  return `the answer to ${capability} goes without the header ${JSON.stringify(name.slice(0, 64))}: ${why}`;
}
