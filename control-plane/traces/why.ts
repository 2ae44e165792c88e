/**
 * Why the calls of a trace went where they went, in sentences: of each hop the rule, the override, the choice, who was left out and
 * why, what was tried and failed, the retry, the fallback and what it was for, the time it was given; and in the end where the time
 * went. All of it is what the stages wrote down while they decided (`decision`), and what the attempts came to; of who was left out
 * they say nothing, so the moves of breakers before the call are asked too. Nothing is guessed.
 */
import { codeEntry } from '../../proto/wire/codes.ts';
import type { TraceLine } from '../../proto/wire/trace-line.ts';
import { silentTries } from './message-gaps.ts';
import type { Node, Tree } from './tree.ts';

/** A breaker that was open at a sidecar when the call was made. */
export interface OpenBreaker {
  readonly provider: string;
  readonly why: string;
  /** Before the call. */
  readonly openedAgoMs: number;
}

export interface Surroundings {
  openBreakers(sidecar: string, capability: string, wallMs: number): readonly OpenBreaker[];
}

const MAX_SENTENCES = 60;
const LONGEST = 3;
/** A self time below this share of the whole is not worth a line. */
const SMALL_SHARE = 0.02;
/** Of the time a hop was given; above it one wants to know that. */
const TIGHT_SHARE = 0.5;

export function whyOf(tree: Tree, wholeMs: number, around: Surroundings): readonly string[] {
  const hops = tree.nodes.filter(({ span }) => span.stage === 'outbound' || span.stage === 'send');
  const told = hops.map((node, i) => ({
    isNotable: isNotable(node),
    words: node.span.stage === 'send' ? messageWords(node, label(i, hops.length)) : callWords(node, label(i, hops.length), around),
  }));
  const some = told.length <= MAX_SENTENCES ? told : told.filter(({ isNotable: notable }) => notable);
  const sentences = some.slice(0, MAX_SENTENCES).flatMap(({ words }) => words);
  if (told.length > some.length) sentences.push(`${told.length - some.length} further steps went as usual`);
  return [...sentences, ...timeWords(tree, wholeMs)];
}

const label = (index: number, of: number): string => (of === 1 ? '' : `step ${index + 1}: `);

function isNotable({ span, children }: Node): boolean {
  return span.code !== 0 || span.degraded === true || children.some((child) => child.span.code !== 0 && child.span.stage !== 'outbound');
}

// ---- one call

function callWords(node: Node, step: string, around: Surroundings): readonly string[] {
  const { span } = node;
  const lines = span.decision ?? [];
  const sentences: string[] = [`${step}${span.caller ?? 'somebody'} asked for ${span.capability}: ${outcomeOf(node)}`];
  const add = (words: string | null): void => void (words !== null && sentences.push(`${step}${words}`));
  for (const line of lines) add(steeredBy(line));
  add(chosenBy(lines));
  add(leftOut(node, around));
  add(triedWords(node));
  for (const line of lines) if (line.stage === 'retry') add(`${line.reason === 'elsewhere' ? '' : 'no further retry: '}${line.words}`);
  add(fallbackWords(node, lines));
  add(deadlineWords(node, lines));
  return sentences;
}

function outcomeOf({ span }: Node): string {
  const took = seconds(span.elapsed_ms);
  if (span.replay === true) return `answered with what ${span.provider ?? 'a provider'} had answered before to the same key, after ${took}`;
  if (span.code === 0)
    return span.provider === undefined
      ? `answered without a provider after ${took}`
      : `${span.provider}${versioned(span.version)} served it in ${took}${span.degraded === true ? ', as its fallback' : ''}${span.sandbox === true ? ', by a mock of the sandbox' : ''}`;
  return `failed with ${codeWords(span.code)} after ${took}${span.detail === undefined ? '' : `: ${span.detail}`}`;
}

/** What moved the call before anybody was chosen. */
function steeredBy({ stage, reason, words, code }: TraceLine): string | null {
  if (stage === 'name') return reason === 'alias' ? words : null;
  if (stage === 'overrides') return reason === 'none' ? null : words;
  if (stage === 'claim') return reason === 'replayed' || code !== 0 ? words : null;
  if (
    stage === 'acl' ||
    stage === 'limits' ||
    stage === 'quotas' ||
    stage === 'slots' ||
    stage === 'contract' ||
    stage === 'loops' ||
    stage === 'identify'
  )
    return code === 0 ? null : `refused by ${stage}: ${words}`;
  return null;
}

function chosenBy(lines: readonly TraceLine[]): string | null {
  const resolved = lines.find(({ stage, code }) => stage === 'resolve' && code === 0);
  const chosen = lines.filter(({ stage, code }) => stage === 'choose' && code === 0);
  const refused = lines.filter(({ stage, code }) => (stage === 'choose' || stage === 'resolve') && code !== 0);
  const words: string[] = [];
  if (resolved !== undefined) words.push(`version: ${resolved.words}`);
  if (chosen.length > 0) words.push(`chosen: ${chosen.map((line) => line.words).join(', then ')}`);
  for (const line of refused) words.push(`not to be had: ${line.words}`);
  return words.length === 0 ? null : words.join('; ');
}

function leftOut({ span, children }: Node, around: Surroundings): string | null {
  const asked = new Set([span.provider, ...children.map((child) => child.span.provider)]);
  const open = around.openBreakers(span.sidecar, span.capability, span.start_ms).filter(({ provider }) => !asked.has(provider));
  if (open.length === 0) return null;
  return `left out: ${open.map(({ provider, why, openedAgoMs }) => `${provider}, whose breaker had opened ${seconds(openedAgoMs)} before (${why})`).join('; ')}`;
}

function triedWords({ children }: Node): string | null {
  const attempts = children.filter(({ span }) => span.stage === 'attempt');
  const failed = attempts.filter(({ span }) => span.code !== 0);
  if (failed.length === 0 || attempts.length === 0) return null;
  return `tried: ${attempts.map(attemptWords).join('; then ')}`;
}

function attemptWords({ span }: Node): string {
  const who = `${span.provider ?? 'a provider'}${versioned(span.version)}`;
  if (span.code === 0) return `${who} answered after ${seconds(span.elapsed_ms)}`;
  const got = span.started === 'not_started' ? ', which it never saw' : '';
  return `${who} failed with ${codeWords(span.code)} after ${seconds(span.elapsed_ms)}${got}${span.detail === undefined ? '' : ` (${span.detail})`}`;
}

/** The words of a breaker in a refusal: `kb.a1: breaker open for another 9 s (4 of 12 calls took longer than 3 s in the last 60 s (limit 30 %))`. */
const BREAKER =
  /([\w.-]+)(?: \(([^()]*)\))?: breaker open(?: for another [^()]*?)? \((\d+ of \d+ calls) ((?:failed|took longer than [\d.]+ m?s)[^()]*?)(?: \(limit [^()]*\))?\)/g;

function fallbackWords(node: Node, lines: readonly TraceLine[]): string | null {
  const at = lines.findIndex(
    ({ stage, reason }) => stage === 'fallback' && (reason === 'capability' || reason === 'provider' || reason === 'static'),
  );
  if (at < 0) {
    const none = lines.find(({ stage }) => stage === 'fallback');
    return none === undefined || node.span.code === 0 ? null : `no fallback: ${none.words}`;
  }
  const line = lines[at] as TraceLine;
  const to =
    line.reason === 'static' ? 'the static answer of its contract' : (/falling back to (.+)$/.exec(line.words)?.[1] ?? 'the fallback');
  return `went to the fallback, ${to}, because ${causeOf(node, lines.slice(0, at)) ?? line.words}`;
}

function causeOf({ children }: Node, before: readonly TraceLine[]): string | null {
  const refusal = before.findLast(({ stage, code }) => code !== 0 && stage !== 'retry' && stage !== 'attempt');
  const failed = children.filter(({ span }) => span.stage === 'attempt' && span.code !== 0);
  if (refusal !== undefined) {
    const breakers = [...refusal.words.matchAll(BREAKER)].map(
      ([, provider, version, calls, words]) => `${calls} to ${provider}${version === undefined ? '' : ` (${version})`} ${words}`,
    );
    if (breakers.length > 0) return breakers.join(', and ');
    if (failed.length === 0) return refusal.words;
  }
  const last = failed.at(-1);
  return last === undefined ? (refusal?.words ?? null) : attemptWords(last);
}

function deadlineWords({ span }: Node, lines: readonly TraceLine[]): string | null {
  const given = lines.filter(({ stage }) => stage === 'deadline');
  const last = given.at(-1);
  if (last === undefined) return null;
  const allowed = Number(/may use ([\d.]+) of/.exec(last.words)?.[1] ?? /^([\d.]+) ms/.exec(last.words)?.[1] ?? Number.NaN);
  const isTight = allowed > 0 && span.elapsed_ms >= allowed * TIGHT_SHARE;
  if (last.code === 0 && !isTight && !(span.code >= 5000 && span.code < 6000)) return null;
  return `time: ${given.map(({ words }) => words).join(', ')}; it took ${seconds(span.elapsed_ms)}`;
}

// ---- one message

function messageWords(node: Node, step: string): readonly string[] {
  const { span } = node;
  const task = span.task_id === undefined ? '' : ` (task ${span.task_id})`;
  const where = [span.pool === undefined ? '' : `pool ${span.pool}`, span.lane === undefined ? '' : `lane ${span.lane}`]
    .filter((each) => each !== '')
    .join(', ');
  const rule = span.rule === undefined ? '' : ` by the rule ${span.rule}`;
  const sent =
    span.code === 0
      ? `sent a message to ${span.capability}${task}${where === '' ? '' : `: it went to ${where}`}${rule}`
      : `could not send a message to ${span.capability}: ${codeWords(span.code)}${span.detail === undefined ? '' : `, ${span.detail}`}`;
  const sentences = [`${step}${span.caller ?? 'somebody'} ${sent}`];
  const of = (stage: string): Node[] => node.children.filter((child) => child.span.stage === stage);
  const tries = of('deliver');
  const waited = of('queue').reduce((sum, child) => sum + child.span.elapsed_ms, 0);
  if (of('outbox').length > 0)
    sentences.push(
      `${step}it lay on the disk of the sender's machine for ${seconds(of('outbox').reduce((sum, child) => sum + child.span.elapsed_ms, 0))}, since the stream could not be had`,
    );
  if (tries.length > 0) {
    const silent = silentTries(tries).map((number) => `try ${number} ended without a word`);
    const words = [...silent, ...tries.map(tryWords)];
    sentences.push(
      `${step}it waited ${seconds(waited)}, and was worked on ${words.length === 1 ? 'once' : `${words.length} times`}: ${words.join('; then ')}`,
    );
  }
  const [result] = of('result');
  if (result !== undefined)
    sentences.push(
      `${step}${result.span.code === 0 ? `its result was in the inbox of ${span.caller ?? 'the sender'}` : `it ended with ${codeWords(result.span.code)}, which was told to ${span.caller ?? 'the sender'}`} ${seconds(result.endMs - node.startMs)} after it was sent`,
    );
  return sentences;
}

function tryWords({ span }: Node): string {
  const who = `${span.provider ?? 'a worker'}${versioned(span.version)}`;
  return span.code === 0
    ? `${who} did it in ${seconds(span.elapsed_ms)}`
    : `${who} failed with ${codeWords(span.code)} after ${seconds(span.elapsed_ms)}${span.detail === undefined ? '' : ` (${span.detail})`}`;
}

// ---- the time

function timeWords({ nodes }: Tree, wholeMs: number): readonly string[] {
  if (!(wholeMs > 0)) return [];
  return [...nodes]
    .filter(({ selfMs, span }) => selfMs / wholeMs >= SMALL_SHARE && span.stage !== 'inbox')
    .sort((a, b) => b.selfMs - a.selfMs)
    .slice(0, LONGEST)
    .map(
      (node, i) =>
        `${i === 0 ? 'where the time went: ' : ''}${seconds(node.selfMs)} of ${seconds(wholeMs)} (${Math.round((node.selfMs / wholeMs) * 100)} %) ${placeOf(node)}`,
    );
}

function placeOf({ span, children }: Node): string {
  const { capability, provider, sidecar } = span;
  switch (span.stage) {
    case 'attempt':
      if (children.some((child) => child.span.stage === 'inbound'))
        return `between the sidecars, on the way to ${provider ?? 'the provider'} (${capability})`;
      return `at ${provider ?? 'the provider'}, working on ${capability}`;
    case 'outbound':
      return `in the sidecar ${sidecar}, deciding and waiting between the attempts at ${capability}`;
    case 'inbound':
      return `in the sidecar ${sidecar}, before ${provider ?? 'its agent'} was asked (${capability})`;
    case 'send':
      return `until the message to ${capability} was stored`;
    case 'outbox':
      return `on the disk of the sender's machine (message to ${capability})`;
    case 'queue':
      return `in the queue (message to ${capability})`;
    case 'deliver':
      return `handing the message to ${provider ?? 'a worker'} (${capability})`;
    case 'result':
      return `until the result of ${capability} was in the inbox`;
    case 'inbox':
      return `until the agent took it out of its inbox`;
  }
}

function codeWords(code: number): string {
  const entry = codeEntry(code);
  return entry.code === code ? `${code} ${entry.name}` : String(code);
}

function versioned(version: string | undefined): string {
  return version === undefined ? '' : ` (${version})`;
}

/** `12 ms`, `3.02 s`. */
export function seconds(ms: number): string {
  if (ms < 10) return `${Number(ms.toFixed(1))} ms`;
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  return ms < 600_000 ? `${Number((ms / 1_000).toFixed(ms < 100_000 ? 2 : 0))} s` : `${Math.round(ms / 60_000)} min`;
}
