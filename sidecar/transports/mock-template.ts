/**
 * The body of a mock's answer. String leaves that are a word of the list below become what the word stands for, with its
 * type; everything else stands as written: `$payload` (the request's, parsed when it is JSON), `$agent`, `$capability`,
 * `$version`, `$call` (the number of this call at this provider and capability, from 1), `$header.<name>` (as the
 * provider would see it: what the sidecar adds, else the caller's), `$answers` (what the agents that it asked answered, in order),
 * `$answers.<n>` (one of them, from 1).
 */
import type { SubAnswer } from './mock-calls.ts';
import type { Exchange } from './transport.ts';

const HEADER = '$header.';

const ANSWER = '$answers.';
const NO_ANSWERS: readonly SubAnswer[] = Object.freeze([]);

export function fillBody(template: unknown, exchange: Exchange, callNumber: number, answers: readonly SubAnswer[]): Buffer {
  return fillJson(filled(template, exchange, callNumber, answers));
}

export function fillJson(value: unknown): Buffer {
  return Buffer.from(JSON.stringify(value) ?? 'null');
}

/** @param answers of those that were asked before, where there are any */
export function filled(node: unknown, exchange: Exchange, callNumber: number, answers: readonly SubAnswer[] = NO_ANSWERS): unknown {
  if (typeof node === 'string') return node.startsWith('$') ? word(node, exchange, callNumber, answers) : node;
  if (Array.isArray(node)) return node.map((one) => filled(one, exchange, callNumber, answers));
  if (typeof node === 'object' && node !== null)
    return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, filled(value, exchange, callNumber, answers)]));
  return node;
}

function word(text: string, exchange: Exchange, callNumber: number, answers: readonly SubAnswer[]): unknown {
  const { candidate } = exchange;
  if (text === '$answers') return answers.map((one) => one.data);
  if (text.startsWith(ANSWER)) return answers[Number(text.slice(ANSWER.length)) - 1]?.data ?? null;
  if (text === '$payload') return payloadOf(exchange);
  if (text === '$agent') return candidate.provider.agentId;
  if (text === '$capability') return candidate.version.capability.name;
  if (text === '$version') return candidate.version.text;
  if (text === '$call') return callNumber;
  if (text.startsWith(HEADER)) return headerOf(exchange, text.slice(HEADER.length).toLowerCase());
  return text;
}

/** The request's, parsed when it is JSON. */
export function payloadOf(exchange: Exchange): unknown {
  if (exchange.json !== undefined) return exchange.json;
  if (exchange.body.length === 0) return null;
  const text = exchange.body.toString('utf8');
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** As the provider sees it. */
export function headerOf(exchange: Exchange, name: string): unknown {
  const own = exchange.own;
  for (let i = 0; i + 1 < own.length; i += 2) if (own[i] === name) return own[i + 1];
  return exchange.incoming[name] ?? null;
}
