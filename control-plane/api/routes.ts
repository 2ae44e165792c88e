/** Every route of the API, in the order of the document; and the few that say how this replica is doing. */
import { capabilityViewRoutes } from './capability-view.ts';
import { metricsText, type RequestCounts } from './metrics.ts';
import { aclRoutes } from './acl.ts';
import { alertRoutes } from './alerts.ts';
import { auditRoutes } from './audit.ts';
import { identityRoutes } from './identities.ts';
import { liveRoutes } from './live.ts';
import { openApi } from './openapi.ts';
import { orderRoutes } from './orders.ts';
import { overrideRoutes } from './overrides.ts';
import type { Overview } from '../overview/overview.ts';
import { overviewRoutes } from './overview.ts';
import type { Plane } from './plane.ts';
import { policyRoutes } from './policies.ts';
import { unavailable } from './problem.ts';
import { readRoutes } from './reads.ts';
import { json, type Route } from './route.ts';
import { quotaRoutes } from './quotas.ts';
import { ruleRoutes } from './rules.ts';
import { shiftRoutes } from './shifts.ts';
import type { LeaderAnswer } from './shapes.ts';
import { stateRoutes } from './state.ts';
import { parkedRoutes } from './parked.ts';
import { taskRoutes } from './tasks.ts';
import { traceRoutes } from './traces.ts';

/** @param sessions those for browsers that sign in; none where there is no console */
export function allRoutes(
  plane: Plane & { readonly counts: RequestCounts },
  overview: Overview,
  sessions: readonly Route[],
): readonly Route[] {
  const routes: Route[] = [
    ...[
      ...readRoutes(plane),
      ...overviewRoutes(plane, overview),
      ...capabilityViewRoutes(plane),
      ...orderRoutes(plane),
      ...policyRoutes(plane),
      ...ruleRoutes(plane),
      ...stateRoutes(plane),
      ...taskRoutes(plane),
      ...parkedRoutes(plane),
      ...identityRoutes(plane),
      ...quotaRoutes(plane),
      ...shiftRoutes(plane),
      ...auditRoutes(plane),
      ...aclRoutes(plane),
      ...alertRoutes(plane),
      ...traceRoutes(plane),
    ].map((route) => onceRead(plane, route)),
    // The red button works also where the registry has not been read.
    ...overrideRoutes(plane),
    ...sessions,
    ...liveRoutes(plane),
    {
      method: 'GET',
      path: '/v1/leader',
      role: 'viewer',
      onLeader: false,
      summary: 'Which replica leads.',
      answer: { status: 200, doc: '`leader` is null while nobody does.' },
      handle: () => json(leader(plane)),
    },
    {
      method: 'GET',
      path: '/v1/health',
      role: 'open',
      onLeader: false,
      summary: 'Alive, and in what condition.',
      answer: { status: 200, doc: 'Says in `warnings` what an operator should know.' },
      handle: () => {
        const warnings = plane.warnings();
        return json({
          status: plane.status,
          replica: plane.name,
          env: plane.env,
          version: plane.version,
          nats: plane.natsConnected ? 'connected' : 'away',
          epoch: plane.epoch,
          last_seq: plane.mirror.lastSeq,
          pending_writes: plane.leading?.writer.pending ?? 0,
          warnings,
        });
      },
    },
    {
      method: 'GET',
      path: '/v1/ready',
      role: 'open',
      onLeader: false,
      summary: '200 exactly when this replica can answer: it has read the stream, and some replica leads; otherwise why not.',
      answer: { status: 200, doc: 'Ready; 503 when it is not.' },
      handle: () => {
        const why = whyNotReady(plane);
        return json({ ready: why === null, status: plane.status, why }, why === null ? 200 : 503);
      },
    },
    {
      method: 'GET',
      path: '/metrics',
      role: 'open',
      onLeader: false,
      summary: 'Prometheus metrics.',
      answer: { status: 200, doc: 'Text.', contentType: 'text/plain' },
      handle: async () => {
        const { text, contentType } = await metricsText(plane, plane.counts);
        return { status: 200, text, contentType };
      },
    },
    {
      method: 'GET',
      path: '/v1/openapi.json',
      role: 'open',
      onLeader: false,
      summary: 'This document.',
      answer: { status: 200, doc: 'OpenAPI 3.1.' },
      handle: () => json(openApi(routes, plane.version)),
    },
  ];
  return routes;
}

/** Until the stream has been read, an empty registry would be no answer: "everybody is current" is true of nobody. */
function onceRead(plane: Plane, route: Route): Route {
  const handle: Route['handle'] = (asked) => (plane.status === 'starting' ? unavailable(UNREAD) : route.handle(asked));
  return { ...route, handle };
}

const UNREAD = 'this replica has not read the registry yet: it has just started, or NATS is away; ask again in a few seconds';

function leader(plane: Plane): LeaderAnswer {
  const facts = plane.leader();
  return {
    replica: plane.name,
    env: plane.env,
    status: plane.status,
    leader: facts === null ? null : { holder: facts.holder, term: facts.term, url: facts.url },
    nats: plane.natsConnected ? 'connected' : 'away',
    epoch: plane.epoch,
    last_seq: plane.mirror.lastSeq,
  };
}

/** Null = it is ready. Alive is another question, which `/v1/health` answers. */
function whyNotReady(plane: Plane): string | null {
  if (plane.status === 'stopping') return 'it stops';
  if (!plane.natsConnected) return 'waits for NATS';
  if (plane.status === 'starting') return plane.warnings()[0] ?? 'reads the stream';
  return plane.leader() === null ? 'no replica leads at present' : null;
}
