/**
 * The rules of the house that no linter we use can express: layers, no re-exports of our own files (a barrel hides who needs what),
 * relative imports with their `.ts`, and no reading of the wall clock by `new Date()` in product code.
 */
import { posix } from 'node:path';
import ts from 'typescript';
import { layerOf, layerProblem } from './layers.ts';

export interface Finding {
  readonly file: string;
  readonly line: number;
  readonly what: string;
}

/** Where time and chance may come from. */
const AMBIENT_ALLOWED: ReadonlySet<string> = new Set(['base/clock.ts', 'base/virtual-clock.ts', 'base/random.ts']);
const PRODUCT: readonly string[] = ['base/', 'proto/', 'sidecar/', 'control-plane/', 'sdk/'];
/** Where a package names what it offers to those outside: they have one address, and inside nobody imports it. */
const ENTRIES: ReadonlySet<string> = new Set(['sdk/typescript/index.ts', 'sidecar/library.ts']);
const TIMER_MODULES: ReadonlySet<string> = new Set(['node:timers', 'node:timers/promises', 'timers', 'timers/promises', 'node:perf_hooks']);

/** `file` is named from the top of the tree; `text` is what is in it. */
export function findingsIn(file: string, text: string): Finding[] {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  const findings: Finding[] = [];
  const report = (at: ts.Node, what: string): void => {
    findings.push({ file, line: source.getLineAndCharacterOfPosition(at.getStart(source)).line + 1, what });
  };
  const isProduct = PRODUCT.some((folder) => file.startsWith(folder)) && !AMBIENT_ALLOWED.has(file);
  if (layerOf(file) === null) report(source, 'belongs to no layer; give it one in test/lint/layers.ts');

  const imported = (specifier: ts.Expression): void => {
    if (!ts.isStringLiteralLike(specifier)) return;
    if (!specifier.text.startsWith('.')) {
      if (isProduct && TIMER_MODULES.has(specifier.text)) report(specifier, `imports ${specifier.text}: time is passed in as a Clock`);
      return;
    }
    const target = posix.join(posix.dirname(file), specifier.text);
    if (!/\.tsx?$/.test(target)) report(specifier, `imports ${specifier.text} without its .ts`);
    else {
      const problem = layerProblem(file, target);
      if (problem !== null) report(specifier, problem);
    }
  };

  const visit = (node: ts.Node): void => {
    if (ts.isImportDeclaration(node)) imported(node.moduleSpecifier);
    else if (ts.isExportDeclaration(node) && node.moduleSpecifier !== undefined) {
      imported(node.moduleSpecifier);
      if (isRelative(node.moduleSpecifier) && !ENTRIES.has(file)) report(node, 're-exports: import it from where it is defined');
    } else if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) imported(node.argument.literal);
    else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword && node.arguments[0] !== undefined) {
      imported(node.arguments[0]);
    } else if (isProduct && isBareDate(node)) report(node, 'new Date() reads the wall clock: use Clock.wallMs');
    ts.forEachChild(node, visit);
  };
  visit(source);
  return findings;
}

function isRelative(specifier: ts.Expression): boolean {
  return ts.isStringLiteralLike(specifier) && specifier.text.startsWith('.');
}

function isBareDate(node: ts.Node): boolean {
  if (!ts.isNewExpression(node) && !ts.isCallExpression(node)) return false;
  return ts.isIdentifier(node.expression) && node.expression.text === 'Date' && (node.arguments?.length ?? 0) === 0;
}
