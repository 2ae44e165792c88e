/**
 * Text that people write, YAML or JSON, to plain data with a place for every value. YAML 1.2 core, minus what has hurt
 * others: anchors, aliases and merge keys (they expand without end), tags and directives, several documents, duplicate
 * keys, tabs as white space, and plain words that YAML 1.1 tools read differently (`yes`, `010`, `1:30`). Refused
 * things are found on the stream of tokens, before anything is composed. The data has no prototypes and is frozen.
 */
import { CST, isMap, isScalar, isSeq, Lexer, LineCounter, type Node, type Pair, parseDocument, Scalar } from 'yaml';
import { quote } from './duration.ts';

export interface Position {
  /** 1-based. */
  readonly line: number;
  readonly column: number;
}

export type Path = readonly (string | number)[];

export interface YamlProblem extends Position {
  readonly file: string;
  /** JSON pointer of the value at fault; '' when the text could not be read that far. */
  readonly path: string;
  readonly message: string;
}

export interface ParsedYaml {
  /** Undefined when the text could not be read at all; with problems of single values it is there, so that the rest can be judged too. */
  readonly value: unknown;
  /** Where the value at `path` stands, or the nearest thing around it that exists. */
  locate(path: Path): Position;
  /** Where the key of the value at `path` stands. */
  locateKey(path: Path): Position;
  readonly problems: readonly YamlProblem[];
}

export const MAX_BYTES = 4 * 1024 * 1024;
const MAX_DEPTH = 64;
const MAX_PROBLEMS = 50;

const WORDS_OF_1_1 = /^(?:y|n|yes|no|on|off)$/i;
const SEXAGESIMAL = /^[-+]?\d+(?::[0-5]?\d)+(?:\.\d*)?$/;
const OLD_OCTAL = /^[-+]?0\d+$/;
const WHOLE_NUMBER = /^[-+]?(?:\d+|0x[\da-fA-F]+|0o[0-7]+)$/;
const DANGEROUS_KEYS: ReadonlySet<string> = new Set(['__proto__', 'constructor', 'prototype']);

/** What a text may cost at most. Parsing costs by tokens (words, marks, white space in between), not by bytes. */
export interface YamlLimits {
  readonly bytes: number;
  readonly tokens: number;
}

/** Parses one document. Never throws for what the text holds. */
export function parseYaml(text: string, fileName: string, limits: YamlLimits | null = null): ParsedYaml {
  const lines = new LineCounter();
  const reading = new Reading(fileName, lines);
  const maxBytes = limits?.bytes ?? MAX_BYTES;
  if (Buffer.byteLength(text) > maxBytes) {
    reading.refuse(0, [], `the file is larger than ${limits === null ? '4 MiB' : `${maxBytes} bytes`}`);
    return reading.result(null, undefined);
  }
  lines.addNewLine(0);
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) lines.addNewLine(at + 1);
  scan(text, reading, limits?.tokens ?? Number.POSITIVE_INFINITY);
  if (reading.problems.length > 0) return reading.result(null, undefined);
  try {
    const document = parseDocument(text, {
      version: '1.2',
      schema: 'core',
      merge: false,
      uniqueKeys: false,
      prettyErrors: false,
      logLevel: 'error',
    });
    for (const error of [...document.errors, ...document.warnings]) {
      if (reading.problems.length >= MAX_PROBLEMS) break;
      reading.refuse(error.pos[0], [], sentence(error.message));
    }
    if (reading.problems.length > 0) return reading.result(null, undefined);
    const root = document.contents as Node | null;
    const value = reading.build(root, []);
    return reading.result(root, value);
  } catch (error) {
    // the composer recurses: a text that is deep beyond the stack ends here
    if (!(error instanceof RangeError)) throw error;
    reading.refuse(0, [], `nested more than ${MAX_DEPTH} levels deep`);
    return reading.result(null, undefined);
  }
}

const REFUSED_TOKENS: Readonly<Record<string, string>> = Object.freeze({
  anchor: 'anchors (&name) are not used here: write the value out',
  alias: 'aliases (*name) are not used here: write the value out; if it is text, quote it',
  tag: 'tags (!name) are not used here; if it is text, quote it',
  'directive-line': 'directives (%) are not used here',
});

/**
 * Looks at the tokens alone: linear, nothing is expanded. It also bounds the depth before the composer sees the text: the
 * composer recurses, and a regular expression that is compiled near the end of the stack takes the whole process down.
 */
function scan(text: string, reading: Reading, maxTokens: number): void {
  const blocks = new BlockDepth();
  let offset = 0;
  let tokens = 0;
  let flowDepth = 0;
  let isScalarNext = false;
  for (const lexeme of new Lexer().lex(text)) {
    const at = offset;
    if (++tokens > maxTokens) {
      reading.refuse(at, [], `the file has more than ${maxTokens} words, marks and gaps: split it, or say less in it`);
      return;
    }
    const type: string | null = isScalarNext ? 'scalar-text' : CST.tokenType(lexeme);
    if (type === 'doc-mode' || type === 'scalar' || type === 'flow-error-end') {
      // control characters that the lexer adds, not part of the text
      isScalarNext = type === 'scalar';
      continue;
    }
    isScalarNext = false;
    offset += lexeme.length;
    const message = type === null ? undefined : REFUSED_TOKENS[type];
    if (message !== undefined) reading.refuse(at, [], message);
    else if (type === 'flow-map-start' || type === 'flow-seq-start') flowDepth++;
    else if (type === 'flow-map-end' || type === 'flow-seq-end') flowDepth = Math.max(0, flowDepth - 1);
    else if (type === 'space' && flowDepth === 0 && lexeme.includes('\t')) {
      reading.refuse(at + lexeme.indexOf('\t'), [], 'a tab is used as white space: use spaces');
    }
    if (flowDepth === 0) blocks.see(type, lexeme, at);
    if (flowDepth > MAX_DEPTH || blocks.depth > 2 * MAX_DEPTH) {
      reading.refuse(at, [], `nested more than ${MAX_DEPTH} levels deep`);
      return;
    }
    if (reading.problems.length >= MAX_PROBLEMS) return;
  }
}

const OPENS_COMPACT: ReadonlySet<string | null> = new Set(['seq-item-ind', 'explicit-key-ind', 'map-value-ind']);

/** How many block collections may be open at most, from the columns in which things begin. */
class BlockDepth {
  readonly #columns: number[] = [];
  #lineStart = 0;
  #isAtBegin = true;

  get depth(): number {
    return this.#columns.length;
  }

  see(type: string | null, lexeme: string, at: number): void {
    if (type === 'space' || type === 'comment') return;
    if (type !== 'newline' && this.#isAtBegin) {
      const column = at - this.#lineStart;
      while (this.#columns.length > 0 && (this.#columns.at(-1) as number) >= column) this.#columns.pop();
      this.#columns.push(column);
    }
    const lastLine = lexeme.lastIndexOf('\n');
    if (lastLine >= 0) this.#lineStart = at + lastLine + 1;
    this.#isAtBegin = lastLine >= 0 || OPENS_COMPACT.has(type);
  }
}

/** One parse: collects problems and builds the data. */
class Reading {
  readonly problems: YamlProblem[] = [];
  readonly #file: string;
  readonly #lines: LineCounter;

  constructor(file: string, lines: LineCounter) {
    this.#file = file;
    this.#lines = lines;
  }

  refuse(offset: number, path: Path, message: string): void {
    if (this.problems.length >= MAX_PROBLEMS) return;
    this.problems.push({ file: this.#file, ...this.position(offset), path: pointerOf(path), message });
  }

  position(offset: number): Position {
    const { line, col } = this.#lines.linePos(offset);
    return { line: Math.max(1, line), column: Math.max(1, col) };
  }

  result(root: Node | null, value: unknown): ParsedYaml {
    return {
      value,
      locate: (path) => this.position(offsetOf(root, path, false)),
      locateKey: (path) => this.position(offsetOf(root, path, true)),
      problems: this.problems,
    };
  }

  build(node: Node | null, path: Path): unknown {
    if (node === null) return null;
    if (path.length > MAX_DEPTH) {
      this.refuse(startOf(node), path, `nested more than ${MAX_DEPTH} levels deep`);
      return null;
    }
    if (isSeq(node)) return Object.freeze(node.items.map((item, i) => this.build(item as Node | null, [...path, i])));
    if (isMap(node)) return this.#buildMap(node.items as Pair<Node, Node | null>[], path);
    return isScalar(node) ? this.#buildScalar(node, path) : null;
  }

  #buildMap(pairs: Pair<Node, Node | null>[], path: Path): unknown {
    const map: Record<string, unknown> = Object.create(null) as Record<string, unknown>;
    const seen = new Map<string, number>();
    for (const pair of pairs) {
      const key = keyText(pair.key);
      const offset = startOf(pair.key);
      if (key === null) {
        this.refuse(offset, path, 'a key must be a word, not a list, a map or nothing');
        continue;
      }
      if (key === '<<' && (pair.key as Scalar).type === Scalar.PLAIN)
        this.refuse(offset, [...path, key], 'merge keys (<<) are not used here: write the values out');
      if (DANGEROUS_KEYS.has(key)) this.refuse(offset, [...path, key], `"${key}" is not allowed as a key`);
      const before = seen.get(key);
      if (before !== undefined)
        this.refuse(offset, [...path, key], `the key ${quote(key)} stands here twice (first at line ${this.position(before).line})`);
      seen.set(key, offset);
      map[key] = this.build(pair.value, [...path, key]);
    }
    return Object.freeze(map);
  }

  #buildScalar(node: Scalar, path: Path): unknown {
    const value = node.value;
    const source = node.source ?? '';
    if (node.type !== Scalar.PLAIN) return value;
    if (typeof value === 'string') {
      if (WORDS_OF_1_1.test(value))
        this.refuse(
          startOf(node),
          path,
          `the unquoted word ${value} is a boolean to some tools and a text to others: write true or false, or quote it: "${value}"`,
        );
      else if (SEXAGESIMAL.test(value))
        this.refuse(
          startOf(node),
          path,
          'an unquoted text of this form (1:30) is a number in base 60 to some tools: quote it, or write a duration with its unit',
        );
      return value;
    }
    if (typeof value === 'number') {
      if (OLD_OCTAL.test(source))
        this.refuse(
          startOf(node),
          path,
          'a number with a leading zero is octal to some tools and decimal to others: drop the zero, or quote it if it is text',
        );
      else if (WHOLE_NUMBER.test(source) && !Number.isSafeInteger(value))
        this.refuse(startOf(node), path, 'this number is too large to be held exactly: quote it');
      else if (source.length > 1 && Object.is(value, -0) && WHOLE_NUMBER.test(source)) return 0;
    }
    return value;
  }
}

function keyText(key: Node | null): string | null {
  if (key === null || !isScalar(key)) return null;
  if (key.type === Scalar.PLAIN) return key.source === undefined || key.source === '' ? null : key.source;
  return typeof key.value === 'string' ? key.value : null;
}

function startOf(node: Node | null): number {
  return node?.range?.[0] ?? 0;
}

/** Walks down `path` as far as it exists. */
function offsetOf(root: Node | null, path: Path, ofKey: boolean): number {
  let node = root;
  let offset = startOf(root);
  for (const [depth, step] of path.entries()) {
    if (isSeq(node)) {
      const item = node.items[Number(step)];
      if (item === undefined) return offset;
      node = item as Node;
      offset = startOf(node);
    } else if (isMap(node)) {
      const pair = (node.items as Pair<Node, Node | null>[]).find((each) => keyText(each.key) === String(step));
      if (pair === undefined) return offset;
      const isLast = depth === path.length - 1;
      offset = (ofKey && isLast) || pair.value === null || isEmptyPlain(pair.value) ? startOf(pair.key) : startOf(pair.value);
      node = pair.value;
    } else return offset;
  }
  return offset;
}

function isEmptyPlain(node: Node): boolean {
  return isScalar(node) && node.type === Scalar.PLAIN && (node.source ?? '') === '';
}

/** Longest pointer that is shown. */
const POINTER_MAX = 512;

/** JSON pointer (RFC 6901) of a path, for people: cut, control characters written out. '' for the whole document. */
export function pointerOf(path: Path): string {
  let pointer = '';
  for (const step of path) pointer += `/${String(step).replaceAll('~', '~0').replaceAll('/', '~1')}`;
  return quote(pointer, POINTER_MAX).slice(1, -1);
}

/** The parser's own message, first line only, as a sentence of ours. */
function sentence(message: string): string {
  const line = (message.split('\n')[0] as string).replace(/ at line \d+, column \d+:?$/, '').replace(/\.$/, '');
  if (line.includes('multiple documents')) return 'the file holds several documents (---): one is read, so write one';
  const hint = HINTS.find(([words]) => line.includes(words));
  return quote(line, 300).slice(1, -1) + (hint === undefined ? '' : `: ${hint[1]}`);
}

/** What most often stands behind the parser's words. */
const HINTS: readonly (readonly [words: string, hint: string])[] = [
  ['Nested mappings are not allowed', 'text that holds ": " must be quoted'],
  ['Sequence item without - indicator', 'this line is indented less than the keys before it, or more than its list'],
  ['cannot start with reserved character', 'quote the text'],
];
