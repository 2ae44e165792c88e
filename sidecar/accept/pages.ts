/** What can be read of a sidecar without calling anybody: who would serve, what may be called, how it is doing. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { metricsContentType, metricsFormatOf } from '../../base/metric.ts';
import { Code, codeEntry } from '../../proto/wire/codes.ts';
import { isInForce } from '../../proto/language/override-words.ts';
import type { Override, ProviderRecord } from '../../proto/language/types.ts';
import type { Call } from '../call/call.ts';
import type { Principal } from '../call/principal.ts';
import type { SeenReading } from '../observe/scrape.ts';
import type { RecordingStatus } from '../record/recorder.ts';
import { isOpenTo, type Capability, type Version } from '../table/snapshot.ts';
import { JSON_TYPE, refuse } from './answer.ts';
import type { Front, Pipeline } from './front.ts';
import { readinessOf, statusOf } from './readiness.ts';
import { callFrom } from './request.ts';

const MAX_SHOWN_PROBLEMS = 20;

/** Who would serve this, and why everybody else was left out. Nothing is sent. */
export function explain(front: Front, request: IncomingMessage, response: ServerResponse, asked: string, body: unknown): void {
  const call = callFrom(front, request, 'http', asked, body, false);
  const explanation = explained(front, call);
  const { refusal } = explanation;
  // Who may not call it may not look behind it either; every other refusal is what was asked about.
  if (refusal !== null && (refusal.code === Code.unauthenticated || refusal.code === Code.forbidden)) {
    refuse(response, refusal.code, codeEntry(refusal.code).http, refusal.detail, 'keep');
    return;
  }
  json(response, 200, explanation);
}

/** The explanation with what is known of the table that it was made from. */
export function explained(front: Front, call: Call): ReturnType<Pipeline['explain']> & TableFreshness {
  return { ...front.pipeline.explain(front.engine, call, call.body.length > 0), ...freshnessOf(front) };
}

interface TableFreshness {
  readonly table_source: string;
  /** null = it is the newest that there is, as far as anybody knows. */
  readonly table_stale_because: string | null;
  readonly table_stale_for_ms: number;
}

function freshnessOf({ table, registry }: Front): TableFreshness {
  return {
    table_source: table.source,
    table_stale_because: table.staleBecause === '' ? null : table.staleBecause,
    table_stale_for_ms: registry?.client.status().stale_for_ms ?? 0,
  };
}

/** What the caller may call. */
export function capabilities(front: Front, request: IncomingMessage, response: ServerResponse): void {
  const principal = front.engine.identities.caller(request.headers.authorization);
  if (principal === null) {
    refuse(response, Code.unauthenticated, 401, 'no known credential: send Authorization: Bearer <token>', 'keep');
    return;
  }
  const table = front.table.current();
  const now = front.engine.clock.now();
  const shown: unknown[] = [];
  for (const capability of table.capabilities.values()) {
    const versions = capability.versions.filter((version) => mayCall(version, principal)).map((version) => versionView(version, now));
    if (versions.length > 0)
      shown.push({ name: capability.name, aliases: aliasesOf(capability), default_range: capability.defaultRange, versions });
  }
  const serves = servesOf(table.providers.get(principal.agent)?.record);
  json(response, 200, { caller: principal.agent, table_version: table.version, serves, capabilities: shown });
}

/** What the table has the caller itself for: an agent can see that it is called for what it serves. null = for nothing. */
function servesOf(record: ProviderRecord | undefined): object | null {
  if (record === undefined) return null;
  return { endpoint: record.endpoint.type, offers: record.offers.map(({ name, version }) => `${name}@${version}`) };
}

function mayCall(version: Version, principal: Principal): boolean {
  return isOpenTo(version, principal.team, principal.role, principal.id);
}

function aliasesOf(capability: Capability): string[] {
  return [...new Set(capability.versions.flatMap((version) => version.contract.aliases))];
}

function versionView(version: Version, now: number): unknown {
  const { contract } = version;
  let usable = 0;
  for (const candidate of version.candidates) {
    const state = candidate.health.usable(now);
    if ((state === 'yes' || state === 'probe') && candidate.weight > 0 && !candidate.drain) usable++;
  }
  return {
    version: version.text,
    description: contract.description,
    execution: contract.execution,
    streaming: contract.streaming !== null,
    tags: contract.tags,
    examples: contract.examples,
    input: contract.input,
    output: contract.output,
    timeout_ms: version.settings.timeoutMs,
    deadline_ms: version.settings.deadlineMs,
    providers: { known: version.candidates.length, usable },
  };
}

/** Alive, and in what condition. */
export function health(front: Front, response: ServerResponse): void {
  json(response, 200, healthOf(front));
}

export function healthOf(front: Front): object {
  const { table, observation, engine } = front;
  return {
    status: statusOf(front),
    sidecar: engine.config.name,
    table: {
      version: table.current().version,
      age_ms: Math.round(tableAgeMs(front)),
      source: table.source,
      stale_because: table.staleBecause === '' ? null : table.staleBecause,
      refusals: table.refusals,
      problems: table.problems.slice(0, MAX_SHOWN_PROBLEMS),
    },
    // The one flag for machines: whether a change could be missing here.
    config_stale: table.staleBecause !== '' || !table.ready,
    registry: front.registry?.client.status() ?? null,
    ...securityOf(front),
    ...(isSandbox(table.current().providers) ? { sandbox: true } : {}),
    calls: { started: observation.started(), ended: observation.ended(), in_flight: observation.inFlight() },
  };
}

/** All that it serves are mocks: whatever is sent to it reaches no agent. */
function isSandbox(providers: ReadonlyMap<string, { readonly record: ProviderRecord; readonly reach: string }>): boolean {
  for (const { record, reach } of providers.values()) if (record.endpoint.type !== 'mock' || reach === 'mesh') return false;
  return providers.size > 0;
}

function securityOf({ security }: Front): object {
  if (security === null) return {};
  const { identity, certificate } = security;
  return {
    security: {
      identity:
        identity === null
          ? null
          : {
              mode: identity.mode,
              trusted_keys: identity.trustedKeys,
              verified: identity.counts.verified,
              refused: identity.counts.refused,
              homes_refused: identity.counts.homesRefused,
              audited: identity.counts.audited,
            },
      mesh_certificate:
        certificate === null
          ? null
          : {
              ends_at: new Date(certificate.endsAtSec * 1_000).toISOString(),
              trouble: certificate.trouble === '' ? null : certificate.trouble,
            },
    },
  };
}

/** 200 exactly when a call can succeed. */
export function ready(front: Front, response: ServerResponse): void {
  const readiness = readinessOf(front);
  json(response, readiness.ready ? 200 : 503, readiness, readiness.ready ? 0 : 1);
}

export async function metrics(front: Front, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { health: view, clock } = front.engine;
  const format = metricsFormatOf(request.headers.accept);
  try {
    const sources = {
      table: {
        version: front.table.current().version,
        ageMs: tableAgeMs(front),
        rejected: front.table.refusals,
        isStale: front.table.staleBecause !== '' || !front.table.ready,
      },
      channels: front.channels,
      work: front.work,
      outbox: front.outbox,
      rules: front.registry?.client.ruling ?? null,
      quotas: front.engine.quotas.tallies,
      registry: front.registry?.client.status() ?? null,
      security: front.security,
      overrides: overridesOf(front),
      policy: front.observation.refusals.counts,
      breakers: view.cells(),
      providers: view.providers(),
      seen: seenOf(front),
      isKnown: (agentId: string) => view.known(agentId) !== null,
    };
    const text = await front.observation.metrics.render(sources, format, clock.wallMs() - clock.now());
    send(response, 200, metricsContentType(format), text, 0);
  } catch (error) {
    front.observation.fault(error);
    refuse(response, Code.internal, 500, 'the metrics could not be written', 'close');
  }
}

function seenOf({ digests, tracing, recorder, observation }: Front): SeenReading {
  return {
    digests: digests?.figures ?? null,
    spans: tracing?.figures ?? null,
    recorded: recorder === null ? null : recordedOf(recorder.status()),
    accessLines: observation.accessRecords(),
  };
}

function recordedOf({ recorded, disk, cpu, rotated, fault }: RecordingStatus): Readonly<Record<string, number>> {
  return { recorded, disk, cpu, rotated, fault };
}

function overridesOf({ table, engine, cutter }: Front): { inForce: readonly Override[]; cut: number } {
  const wallMs = engine.clock.wallMs();
  return { inForce: table.current().overrides.filter((rule) => isInForce(rule, wallMs)), cut: cutter?.cut ?? 0 };
}

/** Since the table was last known to be the newest, as far as its source can tell. */
function tableAgeMs(front: Front): number {
  if (front.registry !== null) return front.registry.client.status().stale_for_ms;
  return front.table.ready ? front.engine.clock.now() - front.table.installedAt : 0;
}

export function json(response: ServerResponse, status: number, value: unknown, retryAfterSec = 0): void {
  send(response, status, JSON_TYPE, JSON.stringify(value), retryAfterSec);
}

function send(response: ServerResponse, status: number, contentType: string, text: string, retryAfterSec: number): void {
  const head = ['content-type', contentType, 'content-length', String(Buffer.byteLength(text)), 'cache-control', 'no-store'];
  if (retryAfterSec > 0) head.push('retry-after', String(retryAfterSec));
  response.writeHead(status, head);
  response.end(text);
}
