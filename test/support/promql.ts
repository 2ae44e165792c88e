/**
 * Reads PromQL with Prometheus's own grammar, and works out which labels an expression's result has: by that, a metric or a label that
 * is nowhere declared, a `by` over a label that is gone already, and a rate of what is no counter are found without a Prometheus.
 */
import { parser } from '@prometheus-io/lezer-promql';

type SyntaxNode = ReturnType<typeof parser.parse>['topNode'];

export interface KnownMetric {
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly labels: ReadonlySet<string>;
}

export interface Matcher {
  readonly metric: string;
  readonly label: string;
  readonly op: string;
  readonly value: string;
}

export interface Reading {
  /** Of the result; null = it is a number, or nobody can know. */
  readonly labels: ReadonlySet<string> | null;
  readonly metrics: readonly string[];
  readonly matchers: readonly Matcher[];
  readonly problems: readonly string[];
}

const NEED_COUNTER: ReadonlySet<string> = new Set(['rate', 'irate', 'increase']);
/** Of operators that keep the labels of the left side. */
const SET_OPS: ReadonlySet<string> = new Set(['and', 'or', 'unless']);

export function readPromql(text: string, known: ReadonlyMap<string, KnownMetric>): Reading {
  const reader = new Reader(text, known);
  const root = parser.parse(text).topNode;
  const labels = reader.read(root);
  return { labels, metrics: [...reader.metrics], matchers: reader.matchers, problems: reader.problems };
}

class Reader {
  readonly metrics = new Set<string>();
  readonly matchers: Matcher[] = [];
  readonly problems: string[] = [];
  readonly #text: string;
  readonly #known: ReadonlyMap<string, KnownMetric>;

  constructor(text: string, known: ReadonlyMap<string, KnownMetric>) {
    this.#text = text;
    this.#known = known;
  }

  read(node: SyntaxNode): ReadonlySet<string> | null {
    if (node.type.isError) this.#problem(node, 'cannot be read');
    switch (node.name) {
      case 'VectorSelector':
        return this.#selector(node);
      case 'AggregateExpr':
        return this.#aggregate(node);
      case 'BinaryExpr':
        return this.#binary(node);
      case 'FunctionCall':
        return this.#function(node);
      default: {
        let labels: ReadonlySet<string> | null = null;
        for (const child of children(node)) labels = this.read(child) ?? labels;
        return labels;
      }
    }
  }

  #selector(node: SyntaxNode): ReadonlySet<string> | null {
    const name = this.#of(node.getChild('Identifier'));
    const metric = this.#known.get(name);
    this.metrics.add(name);
    if (metric === undefined) this.#problem(node, `${name === '' ? 'a selector without a name' : `there is no metric ${name}`}`);
    for (const matcher of node.getChild('LabelMatchers')?.getChildren('UnquotedLabelMatcher') ?? []) {
      const label = this.#of(matcher.getChild('LabelName'));
      const value = this.#of(matcher.getChild('StringLiteral')).slice(1, -1);
      this.matchers.push({ metric: name, label, op: this.#of(matcher.getChild('MatchOp')), value });
      if (metric !== undefined && !metric.labels.has(label)) this.#problem(matcher, `${name} has no label ${label}`);
    }
    this.#errorsIn(node);
    return metric?.labels ?? null;
  }

  #aggregate(node: SyntaxNode): ReadonlySet<string> | null {
    const modifier = node.getChild('AggregateModifier');
    const of = node.getChild('FunctionCallBody');
    const labels = of === null ? null : this.read(of);
    const op = this.#of(node.getChild('AggregateOp'));
    if (op === 'topk' || op === 'bottomk') return labels;
    const named = modifier === null ? [] : this.#grouping(modifier);
    for (const label of named)
      if (labels !== null && !labels.has(label)) this.#problem(node, `${op} by ${label}, which is not there any more, or never was`);
    if (modifier?.getChild('Without') != null)
      return labels === null ? null : new Set([...labels].filter((label) => !named.includes(label)));
    return new Set(named);
  }

  #binary(node: SyntaxNode): ReadonlySet<string> | null {
    const [left, right] = [node.firstChild, node.lastChild] as [SyntaxNode, SyntaxNode];
    const [a, b] = [this.read(left), this.read(right)];
    const clause = node.getChild('MatchingModifierClause');
    const op = this.#text.slice(left.to, right.from).trim().split(/[\s(]/)[0] ?? '';
    if (a === null || b === null) return a ?? b;
    const named = clause === null ? [] : this.#grouping(clause);
    for (const label of named) if (!a.has(label) && !b.has(label)) this.#problem(node, `matched by ${label}, which is on neither side`);
    const [ours, theirs] =
      clause?.getChild('On') != null
        ? [named, named]
        : [[...a], [...b]].map((side) => side.filter((label) => !named.includes(label)).sort());
    if (String(ours) !== String(theirs) && op !== 'or')
      this.#problem(node, `the sides have other labels (${String(ours)} and ${String(theirs)}): nothing will match`);
    if (SET_OPS.has(op) && op === 'or' && String(ours) !== String(theirs)) this.#problem(node, 'or of other labels: both sides will show');
    return a;
  }

  #function(node: SyntaxNode): ReadonlySet<string> | null {
    const name = this.#of(node.getChild('FunctionIdentifier'));
    const body = node.getChild('FunctionCallBody');
    const labels = body === null ? null : this.read(body);
    if (name === 'vector') return new Set();
    if (name === 'histogram_quantile') {
      if (labels !== null && !labels.has('le')) this.#problem(node, 'histogram_quantile of something without le');
      return labels === null ? null : new Set([...labels].filter((label) => label !== 'le'));
    }
    if (NEED_COUNTER.has(name)) {
      const metric = this.#of(deep(node, 'VectorSelector')?.getChild('Identifier') ?? null);
      if (this.#known.get(metric)?.type === 'gauge') this.#problem(node, `${name} of ${metric}, which is a gauge`);
    }
    return labels;
  }

  #grouping(node: SyntaxNode): string[] {
    return node.getChildren('GroupingLabels').flatMap((list) => list.getChildren('LabelName').map((label) => this.#of(label)));
  }

  /** Of what is not walked any further. */
  #errorsIn(node: SyntaxNode): void {
    node.cursor().iterate((each) => {
      if (each.type.isError) this.#problem(each.node, 'cannot be read');
    });
  }

  #of(node: SyntaxNode | null): string {
    return node === null ? '' : this.#text.slice(node.from, node.to);
  }

  #problem(node: SyntaxNode, words: string): void {
    this.problems.push(`${words}: ${this.#text.slice(Math.max(0, node.from - 20), node.to + 20)}`);
  }
}

function children(node: SyntaxNode): SyntaxNode[] {
  const all: SyntaxNode[] = [];
  for (let child = node.firstChild; child !== null; child = child.nextSibling) all.push(child);
  return all;
}

function deep(node: SyntaxNode, name: string): SyntaxNode | null {
  for (const child of children(node)) {
    const found = child.name === name ? child : deep(child, name);
    if (found !== null) return found;
  }
  return null;
}
