/**
 * The body of a mock's answer. String leaves that are a word of the list below become what the word stands for, with its
 * type; everything else stands as written: `$payload` (the request's, parsed when it is JSON), `$agent`, `$capability`,
 * `$version`, `$call` (the number of this call at this provider and capability, from 1), `$header.<name>` (as the
 * provider would see it: what the sidecar adds, else the caller's).
 */
import type { Exchange } from './transport.ts';

const HEADER = '$header.';

export function fillBody(template: unknown, exchange: Exchange, callNumber: number): Buffer {
  return Buffer.from(JSON.stringify(filled(template, exchange, callNumber)) ?? 'null');
}

function filled(node: unknown, exchange: Exchange, callNumber: number): unknown {
  if (typeof node === 'string') return node.startsWith('$') ? word(node, exchange, callNumber) : node;
  if (Array.isArray(node)) return node.map((one) => filled(one, exchange, callNumber));
  if (typeof node === 'object' && node !== null)
    return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, filled(value, exchange, callNumber)]));
  return node;
}

function word(text: string, exchange: Exchange, callNumber: number): unknown {
  const { candidate } = exchange;
  if (text === '$payload') return payloadOf(exchange);
  if (text === '$agent') return candidate.provider.agentId;
  if (text === '$capability') return candidate.version.capability.name;
  if (text === '$version') return candidate.version.text;
  if (text === '$call') return callNumber;
  if (text.startsWith(HEADER)) return headerOf(exchange, text.slice(HEADER.length).toLowerCase());
  return text;
}

function payloadOf(exchange: Exchange): unknown {
  if (exchange.json !== undefined) return exchange.json;
  if (exchange.body.length === 0) return null;
  const text = exchange.body.toString('utf8');
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function headerOf(exchange: Exchange, name: string): unknown {
  const own = exchange.own;
  for (let i = 0; i + 1 < own.length; i += 2) if (own[i] === name) return own[i + 1];
  return exchange.incoming[name] ?? null;
}
