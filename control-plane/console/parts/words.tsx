/** Small things in lines of text: times, shares, names that lead to their pages, badges, sparklines. */
import type { ComponentChildren } from 'preact';
import { codeEntry, isCode } from '../../../proto/wire/codes.ts';
import { OTHER, UNKNOWN } from '../../../proto/wire/digests.ts';
import { itemAddress, pageAddress } from '../address.ts';
import { useNow } from '../context.tsx';
import { absolute, percent, relative } from '../format.ts';
import { sparkPoints } from '../spark.ts';

export function Time({ ms }: { readonly ms: number }) {
  const now = useNow();
  return (
    <time dateTime={isoOf(ms)} title={absolute(ms)} class="nowrap">
      {relative(ms, now)}
    </time>
  );
}

function isoOf(ms: number): string {
  return Number.isFinite(ms) && Math.abs(ms) < 8.64e15 ? new Date(ms).toISOString() : '';
}

/** What traffic is counted under that has no name of its own, or none that anybody has: there is no page to lead to. */
function Nameless({ name, words, test }: { readonly name: string; readonly words: string; readonly test: string | undefined }) {
  return (
    <span class="muted" title={name === OTHER ? 'There was no room to tell them apart' : words} data-test={test}>
      {name}
    </span>
  );
}

const isNameless = (name: string): boolean => name === OTHER || name === UNKNOWN;

export function CapabilityLink({ name, test, row }: { readonly name: string; readonly test?: string; readonly row?: boolean }) {
  if (isNameless(name)) return <Nameless name={name} words="A name that nobody has was asked for" test={test} />;
  return (
    <a href={itemAddress('capability', name)} class="name" data-test={test} data-row={row}>
      {name}
    </a>
  );
}

export function AgentLink({ name, test, row }: { readonly name: string; readonly test?: string; readonly row?: boolean }) {
  if (name === '') return <span class="muted">nobody</span>;
  if (isNameless(name)) return <Nameless name={name} words="Nobody known" test={test} />;
  return (
    <a href={itemAddress('agent', name)} class="name" data-test={test} data-row={row}>
      {name}
    </a>
  );
}

export function SidecarLink({ name, test }: { readonly name: string; readonly test?: string }) {
  return (
    <a href={pageAddress('fleet', { find: name })} class="name" data-test={test}>
      {name}
    </a>
  );
}

export function TraceLink({
  id,
  test,
  row,
  children,
}: {
  readonly id: string;
  readonly test?: string;
  readonly row?: boolean;
  readonly children?: ComponentChildren;
}) {
  return (
    <a href={itemAddress('trace', id)} class="mono" title={`trace ${id}`} data-test={test} data-row={row}>
      {children ?? id.slice(0, 8)}
    </a>
  );
}

export type Tone = 'good' | 'warn' | 'bad' | 'plain' | 'accent';

export function Badge({ tone, children, title }: { readonly tone: Tone; readonly children: ComponentChildren; readonly title?: string }) {
  return (
    <span class={`badge ${tone}`} title={title}>
      {children}
    </span>
  );
}

/** A code with its name; what it means stands in the title. */
export function CodeWord({ code }: { readonly code: number }) {
  if (code === 0) return <span class="good-text">ok</span>;
  const entry = isCode(code) ? codeEntry(code) : null;
  return (
    <span class="bad-text nowrap" title={entry === null ? '' : `${entry.meaning} ${entry.advice}`}>
      {code} <span class="code-name">{entry?.name ?? ''}</span>
    </span>
  );
}

/** Red from 5 %, amber from 1 %. */
export function ErrorShare({ share }: { readonly share: number }) {
  return <span class={share >= 0.05 ? 'bad-text' : share >= 0.01 ? 'warn-text' : share > 0 ? '' : 'muted'}>{percent(share)}</span>;
}

export function Spark({ values, label }: { readonly values: readonly number[]; readonly label: string }) {
  const points = sparkPoints(values, 96, 18);
  return (
    <svg class="spark" width="96" height="20" viewBox="0 -1 96 20" role="img" aria-label={label}>
      {points !== '' && (
        <polyline points={points} fill="none" stroke="currentColor" stroke-width="1.25" vector-effect="non-scaling-stroke" />
      )}
    </svg>
  );
}

export function Facts({ facts }: { readonly facts: readonly (readonly [string, ComponentChildren] | null)[] }) {
  return (
    <dl class="facts">
      {facts.map(
        (fact) =>
          fact !== null && (
            <div key={fact[0]}>
              <dt>{fact[0]}</dt>
              <dd>{fact[1]}</dd>
            </div>
          ),
      )}
    </dl>
  );
}
