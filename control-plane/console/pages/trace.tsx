/** One trace: what happened in sentences, the tree of its spans with bars, and of each span what was decided and why. */
import { useState } from 'preact/hooks';
import { pageAddress } from '../address.ts';
import { useApi } from '../context.tsx';
import { absolute, count, duration, many } from '../format.ts';
import { Shown } from '../parts/states.tsx';
import { AgentLink, Badge, CapabilityLink, CodeWord, Facts, SidecarLink, Time } from '../parts/words.tsx';
import type { TraceShown, TraceSpan } from '../shapes.ts';
import { type Line, ticks, timeline, unfolded } from '../timeline.ts';
import { TOPICS } from '../topics.ts';

export function TracePage({ id }: { readonly id: string }) {
  const asked = useApi<TraceShown>(`/v1/traces/${encodeURIComponent(id)}`, TOPICS.traces);
  return (
    <>
      <p class="crumbs">
        <a href={pageAddress('traces')}>Traces</a>
      </p>
      <h1 class="mono trace-id">{id}</h1>
      <Shown asked={asked} what="trace">
        {(trace) => <Trace trace={trace} />}
      </Shown>
    </>
  );
}

const MAX_SHOWN = 400;

function Trace({ trace }: { readonly trace: TraceShown }) {
  const [folded, setFolded] = useState<ReadonlySet<string>>(new Set());
  const [open, setOpen] = useState<string | null>(null);
  const [shownCount, setShownCount] = useState(MAX_SHOWN);
  const { lines, wholeMs } = timeline(trace.spans, trace.start_ms, trace.elapsed_ms);
  const shown = unfolded(lines, folded);
  const failed = trace.spans.filter(({ code, stage }) => code !== 0 && stage === 'attempt').length;
  const sidecars = new Set(trace.spans.map(({ sidecar }) => sidecar));
  const fold = (spanId: string): void => {
    const next = new Set(folded);
    if (!next.delete(spanId)) next.add(spanId);
    setFolded(next);
  };
  return (
    <>
      <Facts
        facts={[
          ['Began', <Time key="t" ms={trace.start_ms} />],
          ['Took', duration(trace.elapsed_ms)],
          ['Spans', `${count(trace.spans.length)} at ${many(sidecars.size, 'sidecar')}`],
          ['Failed attempts', count(failed)],
          ['Result', <CodeWord key="c" code={trace.spans[0]?.code ?? 0} />],
        ]}
      />
      {trace.complete ? (
        <p data-test="trace-complete" class="small">
          <Badge tone="good">complete</Badge> no gap, no span without its parent.
        </p>
      ) : (
        <div class="box warn" data-test="trace-incomplete">
          <strong>Not complete.</strong>{' '}
          {trace.orphans > 0 && `${many(trace.orphans, 'span has', 'spans have')} lost the span above (marked). `}
          <ul>
            {trace.gaps.map((gap) => (
              <li key={gap} data-test="trace-gap">
                {gap}
              </li>
            ))}
            {trace.under_way.map((each) => (
              <li key={each}>Under way: {each}</li>
            ))}
          </ul>
        </div>
      )}
      {trace.notes.map((note) => (
        <p key={note} class="muted small">
          {note}
        </p>
      ))}
      {trace.why.length > 0 && (
        <section aria-labelledby="why-head">
          <h2 id="why-head">Why it went where it went</h2>
          <ol class="why" data-test="trace-why">
            {trace.why.map((sentence, i) => (
              <li key={i}>{sentence}</li>
            ))}
          </ol>
        </section>
      )}
      <section aria-labelledby="timeline-head">
        <h2 id="timeline-head">Timeline</h2>
        <Scale wholeMs={wholeMs} />
        <ol class="timeline" data-test="timeline">
          {shown.slice(0, shownCount).map((line) => (
            <Row
              key={line.span.span_id}
              line={line}
              isFolded={folded.has(line.span.span_id)}
              isOpen={open === line.span.span_id}
              onFold={() => fold(line.span.span_id)}
              onOpen={() => setOpen(open === line.span.span_id ? null : line.span.span_id)}
            />
          ))}
        </ol>
        {shown.length > shownCount && (
          <button onClick={() => setShownCount(shownCount + MAX_SHOWN)}>
            Show {count(Math.min(MAX_SHOWN, shown.length - shownCount))} more of {count(shown.length - shownCount)}
          </button>
        )}
      </section>
    </>
  );
}

function Scale({ wholeMs }: { readonly wholeMs: number }) {
  return (
    <div class="scale" aria-hidden="true">
      <div>
        {ticks(wholeMs).map((ms) => (
          <span key={ms} style={{ left: `${(100 * ms) / (wholeMs > 0 ? wholeMs : 1)}%` }}>
            {duration(ms)}
          </span>
        ))}
      </div>
    </div>
  );
}

interface RowProps {
  readonly line: Line;
  readonly isFolded: boolean;
  readonly isOpen: boolean;
  readonly onFold: () => void;
  readonly onOpen: () => void;
}

function Row({ line, isFolded, isOpen, onFold, onOpen }: RowProps) {
  const { span } = line;
  const who = span.provider ?? span.caller ?? span.sidecar;
  return (
    <li
      class={`span ${span.code === 0 ? '' : 'failed'}`}
      data-test="span-row"
      data-stage={span.stage}
      data-depth={span.depth}
      data-code={span.code}
      data-orphan={span.orphan === true}
    >
      <div class="span-line">
        <div class="span-name" style={{ paddingLeft: `${Math.min(span.depth, 14) * 14}px` }}>
          {line.below > 0 ? (
            <button
              class="fold"
              onClick={onFold}
              aria-expanded={!isFolded}
              aria-label={`${isFolded ? 'Show' : 'Hide'} the ${line.below} below`}
            >
              {isFolded ? '▸' : '▾'}
            </button>
          ) : (
            <span class="fold" />
          )}
          <button class="span-open" data-row onClick={onOpen} aria-expanded={isOpen}>
            <span class={`stage stage-${span.stage}`}>{span.stage}</span> <span class="mono">{span.capability}</span>{' '}
            <span class="muted">{span.stage === 'attempt' || span.stage === 'deliver' ? `→ ${who}` : who}</span>
            {span.orphan === true && <Badge tone="warn">parent missing</Badge>}
            {span.inferred_parent !== undefined && (
              <Badge
                tone="plain"
                title="Its parent is a span of its agent's own, told elsewhere: it is shown below the work that it was made for."
              >
                below by time
              </Badge>
            )}
            {span.remote_parent === true && <Badge tone="plain">began outside</Badge>}
            {span.degraded === true && <Badge tone="warn">degraded</Badge>}
            {span.replay === true && <Badge tone="accent">replayed answer</Badge>}
            {span.sandbox === true && (
              <Badge tone="accent" title="A mock answered, and no agent.">
                sandbox
              </Badge>
            )}
            {span.sandbox === true && <Badge tone="accent">answered by a mock</Badge>}
            {isFolded && <span class="muted"> +{line.below}</span>}
          </button>
        </div>
        <div class="span-bar" aria-hidden="true">
          <div
            class={`bar bar-${span.code === 0 ? span.stage : 'failed'}`}
            style={{ left: `${100 * line.left}%`, width: `max(2px, ${100 * line.width}%)` }}
          />
        </div>
        <div class="span-took">
          {duration(span.elapsed_ms)} {span.code !== 0 && <CodeWord code={span.code} />}
        </div>
      </div>
      {isOpen && <Details line={line} />}
    </li>
  );
}

function Details({ line }: { readonly line: Line }) {
  const { span } = line;
  return (
    <div class="span-details">
      {span.detail !== undefined && <p class="bad-text">{span.detail}</p>}
      <Facts facts={factsOf(span, line)} />
      {span.decision !== undefined && span.decision.length > 0 && (
        <div class="table-scroll">
          <table aria-label="What was decided">
            <thead>
              <tr>
                <th scope="col" class="number">
                  At
                </th>
                <th scope="col">Stage</th>
                <th scope="col">What was decided, and why</th>
              </tr>
            </thead>
            <tbody>
              {span.decision.map((each, i) => (
                <tr key={i} class={each.code === 0 ? '' : 'tone-bad'}>
                  <td class="number">{duration(each.at_ms)}</td>
                  <td class="nowrap">{each.stage}</td>
                  <td>
                    {each.words} {each.code !== 0 && <CodeWord code={each.code} />}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </div>
  );
}

function factsOf(span: TraceSpan, line: Line): Parameters<typeof Facts>[0]['facts'] {
  const text = (label: string, value: string | number | undefined): readonly [string, string] | null =>
    value === undefined || value === '' ? null : [label, String(value)];
  return [
    ['Capability', <CapabilityLink key="c" name={span.capability} />],
    text('Version', span.version),
    span.caller === undefined ? null : ['Caller', <AgentLink key="a" name={span.caller} />],
    span.provider === undefined ? null : ['Provider', <AgentLink key="p" name={span.provider} />],
    ['Sidecar', <SidecarLink key="s" name={span.sidecar} />],
    ['Result', <CodeWord key="r" code={span.code} />],
    text('Status', span.status),
    text('By', span.way),
    text('Got as far as', span.started?.replace('_', ' ')),
    ['Begins', `${duration(line.startsAfterMs)} after the beginning (${absolute(span.start_ms)})`],
    ['Itself', `${duration(span.self_ms)} of ${duration(span.elapsed_ms)}`],
    text('Task', span.task_id),
    text('Lane', span.lane),
    text('Pool', span.pool),
    text('Rule', span.rule),
    text('Try', span.tries),
    ['Span', span.span_id],
    span.parent_span_id === '' ? null : ['Parent', `${span.parent_span_id}${span.orphan === true ? ' (missing)' : ''}`],
  ];
}
