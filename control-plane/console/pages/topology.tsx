/** Who calls whom: as a picture (teams, or agents where there is room) and as a table; around one of them only its neighbours. */
import { useState } from 'preact/hooks';
import { pageAddress } from '../address.ts';
import { useApi, useConsole } from '../context.tsx';
import { duration, listed, many, percent, rate, short } from '../format.ts';
import { edgesOf, type Graph, type GraphNode, layout, NOBODY, NODE_HEIGHT, NODE_WIDTH, wantsGroups } from '../graph.ts';
import { EdgeTable } from '../parts/edges.tsx';
import { Empty, Shown } from '../parts/states.tsx';
import { AgentLink } from '../parts/words.tsx';
import type { Topology } from '../shapes.ts';
import { TOPICS } from '../topics.ts';

const WINDOWS = ['1m', '5m', '15m', '60m'] as const;

export function TopologyPage() {
  const { address } = useConsole();
  const { window = '5m', find = '', focus = '', as = 'picture', group = '' } = address.query;
  const asked = useApi<Topology>(`/v1/topology?window=${encodeURIComponent(window)}&limit=2000`, TOPICS.topology, { gapMs: 5_000 });
  const go = (change: Readonly<Record<string, string>>): string => pageAddress('topology', { ...address.query, ...change });
  return (
    <>
      <h1>Who calls whom</h1>
      <div class="tools">
        <input
          type="search"
          data-search
          data-test="search"
          aria-label="Filter calls"
          placeholder="Filter callers, capabilities, providers ( / )"
          value={find}
          onInput={(event) => {
            history.replaceState(null, '', go({ find: event.currentTarget.value }));
            // Typing makes no steps to go back to, and tells nobody by itself.
            dispatchEvent(new HashChangeEvent('hashchange'));
          }}
        />
        <nav class="tabs" aria-label="Over which time">
          {WINDOWS.map((each) => (
            <a key={each} href={go({ window: each })} aria-current={each === window ? 'page' : undefined}>
              {each}
            </a>
          ))}
        </nav>
        <nav class="tabs" aria-label="As what">
          {['picture', 'table'].map((each) => (
            <a key={each} href={go({ as: each })} aria-current={each === as ? 'page' : undefined} data-test={`topology-${each}`}>
              {each}
            </a>
          ))}
        </nav>
        {focus !== '' && (
          <span class="chip">
            around {focus.endsWith('.*') || focus === NOBODY ? <strong>{focus}</strong> : <AgentLink name={focus} />} ·{' '}
            <a href={go({ focus: '' })}>show all</a>
          </span>
        )}
      </div>
      <Shown asked={asked} what="calls">
        {(topology) => {
          const edges = edgesOf(topology.edges, { text: find, focus });
          const isGrouped = group === '' ? wantsGroups(edges) : group === 'team';
          return (
            <>
              {topology.cycles.length > 0 && <Cycles cycles={topology.cycles} go={(agent) => go({ focus: agent })} />}
              {topology.cut && (
                <p class="muted small">
                  There are more calls than are told apart here: those that are used least are left out, or stand together as “other”.
                </p>
              )}
              {topology.edges.length === 0 ? (
                <Empty>Nobody has called anybody in the last {window}.</Empty>
              ) : as === 'table' ? (
                <EdgeTable edges={edges} empty="No call has these words." find={find} />
              ) : (
                <>
                  <nav class="tabs" aria-label="Grouping">
                    <a href={go({ group: 'team' })} aria-current={isGrouped ? 'page' : undefined}>
                      by team
                    </a>
                    <a href={go({ group: 'agent' })} aria-current={isGrouped ? undefined : 'page'}>
                      each agent
                    </a>
                    <span class="muted small">{many(edges.length, 'edge')} · red: 5 % of calls fail or more · dashed: part of a cycle</span>
                  </nav>
                  <Picture graph={layout(topology.edges, topology.cycles, { text: find, focus, isGrouped })} go={go} focus={focus} />
                  {focus !== '' && <EdgeTable edges={edges} empty="No call has these words." find={find} />}
                </>
              )}
            </>
          );
        }}
      </Shown>
    </>
  );
}

function Cycles({ cycles, go }: { readonly cycles: Topology['cycles']; readonly go: (agent: string) => string }) {
  return (
    <div class="box warn" data-test="cycles">
      <strong>{many(cycles.length, 'cycle')} observed:</strong>
      <ul class="plain">
        {cycles.slice(0, 5).map((cycle) => (
          <li key={cycle.join(' ')}>
            {[...cycle, cycle[0] as string].map((agent, i) => (
              <span key={i}>
                {i > 0 && ' → '}
                <a href={go(agent)} class="name">
                  {agent}
                </a>
              </span>
            ))}
          </li>
        ))}
      </ul>
      {cycles.length > 5 && <span class="muted">and {cycles.length - 5} more</span>}
    </div>
  );
}

interface PictureProps {
  readonly graph: Graph;
  readonly go: (change: Readonly<Record<string, string>>) => string;
  readonly focus: string;
}

function Picture({ graph, go, focus }: PictureProps) {
  const [lit, setLit] = useState<string | null>(null);
  if (graph.nodes.length === 0) return <Empty>No call has these words.</Empty>;
  const tone = (share: number): string => (share >= 0.05 ? 'bad' : share >= 0.01 ? 'warn' : 'plain');
  const isLoose = graph.links.length > 40;
  return (
    <>
      {graph.hidden + graph.hiddenLinks > 0 && (
        <p class="muted small">
          Left out as used least:{' '}
          {listed([
            ...(graph.hidden > 0 ? [many(graph.hidden, 'box', 'boxes')] : []),
            ...(graph.hiddenLinks > 0 ? [many(graph.hiddenLinks, 'line')] : []),
          ])}
          . Filter, focus on one, or see the table.
        </p>
      )}
      <div class="picture" tabIndex={0} role="group" aria-label="Picture of who calls whom; the table has the same">
        <svg width={graph.width} height={graph.height} viewBox={`0 0 ${graph.width} ${graph.height}`} data-test="topology">
          <defs>
            {['plain', 'warn', 'bad'].map((each) => (
              <marker
                key={each}
                id={`arrow-${each}`}
                viewBox="0 0 8 8"
                refX="7"
                refY="4"
                markerWidth="7"
                markerHeight="7"
                orient="auto"
                markerUnits="userSpaceOnUse"
              >
                <path d="M0 0 8 4 0 8z" class={`arrow-${each}`} />
              </marker>
            ))}
          </defs>
          {graph.links.map((link) => (
            <path
              key={`${link.from} ${link.to}`}
              d={link.path}
              class={`link ${tone(link.errorShare)}${link.isCycle ? ' cycle' : ''}${isLoose ? ' loose' : ''}${lit === null ? '' : lit === link.from || lit === link.to ? ' lit' : ' dim'}`}
              stroke-width={link.thickness}
              marker-end={`url(#arrow-${tone(link.errorShare)})`}
            >
              <title>
                {`${link.from} → ${link.to}\n${rate(link.callsPerS)}, ${percent(link.errorShare)} fail, P95 up to ${duration(link.p95Ms)}\n${listed(link.capabilities, 6)}${link.isCycle ? '\npart of a cycle' : ''}`}
              </title>
            </path>
          ))}
          {graph.nodes.map((node) => (
            <Node
              key={node.id}
              node={node}
              href={go({ focus: node.id === focus ? '' : node.id })}
              isFocus={node.id === focus}
              onLit={setLit}
            />
          ))}
        </svg>
      </div>
    </>
  );
}

interface NodeProps {
  readonly node: GraphNode;
  readonly href: string;
  readonly isFocus: boolean;
  /** Its lines stand out while somebody points at it. */
  readonly onLit: (id: string | null) => void;
}

function Node({ node, href, isFocus, onLit }: NodeProps) {
  const label = node.isTeam ? `${node.label.slice(0, -2)} (${many(node.agents, 'agent')})` : node.label;
  const said = node.callsPerS > 0 ? `${rate(node.callsPerS)} · ${percent(node.errorShare)} · ${duration(node.p95Ms)}` : 'only calls';
  return (
    <a
      href={href}
      class={`node${isFocus ? ' focus' : ''}${node.isInCycle ? ' cycle' : ''}`}
      data-row
      aria-label={`${label}: ${said}`}
      data-test="topology-node"
      onPointerEnter={() => onLit(node.id)}
      onPointerLeave={() => onLit(null)}
      onFocus={() => onLit(node.id)}
      onBlur={() => onLit(null)}
    >
      <rect
        x={node.x}
        y={node.y}
        width={NODE_WIDTH}
        height={NODE_HEIGHT}
        rx="5"
        class={node.errorShare >= 0.05 ? 'bad' : node.errorShare >= 0.01 ? 'warn' : ''}
      />
      <text x={node.x + 10} y={node.y + 17} class="node-label">
        {short(label, 24)}
      </text>
      <text x={node.x + 10} y={node.y + 32} class="node-said">
        {said}
      </text>
      <title>{`${label}\n${said}${node.isInCycle ? '\npart of a cycle' : ''}`}</title>
    </a>
  );
}
