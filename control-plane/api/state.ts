/** The whole of what is known as one document, out and in again; what is happening, as it happens; what operators did. */
import { repeatedName } from '../../base/json-repeats.ts';
import { REGISTRY_WIRE, type RegistrationState } from '../../proto/wire/registry.ts';
import { Tail } from '../../proto/wire/subjects.ts';
import type { StoredAlerts } from '../alerts/alert.ts';
import { readStored } from '../alerts/stored.ts';
import { type IdentityState, readIdentity } from '../identity/book.ts';
import { noCanary, noPolicies, noProviderSettings, noQuotas, type OperatorsState } from '../registry/operators.ts';
import { noShifts } from '../shifts/shift.ts';
import { readRegistration } from '../registry/requests.ts';
import type { Leading } from '../push/leading.ts';
import type { PolicyEntry } from '../push/journal.ts';
import type { Plane } from './plane.ts';
import { conflict, invalid, unavailable } from './problem.ts';
import { recordOrder } from './audited.ts';
import { type Asked, json, type Reply, type Route } from './route.ts';

const KIND = 'agent-reach-export';

/** What `export` writes and `import` reads. In the wire's own form: it goes from machine to machine. */
export interface ExportDocument {
  readonly kind: typeof KIND;
  readonly wire: number;
  readonly env: string;
  readonly epoch: string;
  readonly at: string;
  readonly lastSeq: number;
  readonly registrations: readonly RegistrationState[];
  readonly operators: OperatorsState;
  /** To whom tokens were issued and what was taken back; no token itself. */
  readonly identities: readonly IdentityState[];
  /** Alerts and silences; null = none was ever raised. */
  readonly alerts: StoredAlerts | null;
  /** Oldest first. */
  readonly history: readonly PolicyEntry[];
}

const MAX_SHOWN_PROBLEMS = 10;

export function stateRoutes(plane: Plane): readonly Route[] {
  return [
    {
      method: 'GET',
      path: '/v1/export',
      action: 'state.export',
      role: 'operator',
      onLeader: false,
      summary: "The whole registry and the operators' state as one document, for the day the stream is lost.",
      answer: { status: 200, doc: 'What `import` takes.' },
      handle: () => exported(plane),
    },
    {
      method: 'POST',
      path: '/v1/import',
      role: 'operator',
      onLeader: true,
      summary: "Takes an export in: sidecars that are not registered, and the operators' state in place of the one there is.",
      body: {
        contentType: 'application/json',
        doc: 'An export.',
        schema: { type: 'object', required: ['kind', 'wire', 'registrations', 'operators'] },
      },
      answer: { status: 200, doc: 'What was taken in.' },
      handle: (asked) => imported(plane, asked),
    },
    {
      method: 'GET',
      path: '/v1/watch',
      role: 'viewer',
      onLeader: true,
      summary: 'Changes as they happen, as server-sent events: `event` (of the registry) and `stored` (a message of the stream).',
      answer: { status: 200, doc: 'Goes on until the asker leaves or the replica stops leading.', contentType: 'text/event-stream' },
      handle: () => watch(plane),
    },
  ];
}

async function exported(plane: Plane): Promise<Reply> {
  const registry = plane.registry();
  const history = await plane.journal.versions();
  if ('failed' in history) return unavailable(`the history cannot be read: ${history.failed}`);
  const document: ExportDocument = {
    kind: KIND,
    wire: REGISTRY_WIRE,
    env: plane.env,
    epoch: plane.epoch,
    at: new Date(plane.clock.wallMs()).toISOString(),
    lastSeq: plane.mirror.lastSeq,
    registrations: registry.sidecarNames().map((name) => registry.registration(name)),
    operators: registry.operators(),
    identities: plane.mirror.tails('ident.').flatMap((tail) => plane.mirror.state<IdentityState>(tail) ?? []),
    alerts: readStored(plane.mirror.state(Tail.alerts)),
    history,
  };
  return json(document);
}

/** An export as text, or what is wrong with it. */
export function readExport(text: string): ExportDocument | string {
  let value: unknown;
  try {
    value = JSON.parse(text) as unknown;
  } catch {
    return 'this is not JSON';
  }
  const twice = repeatedName(text);
  if (twice !== null) return `${JSON.stringify(twice.slice(0, 80))} stands twice in one of its maps`;
  if (typeof value !== 'object' || value === null || (value as ExportDocument).kind !== KIND)
    return `this is not an export: its kind is not ${KIND}`;
  const document = value as Partial<ExportDocument>;
  if (document.wire !== REGISTRY_WIRE)
    return `this export is of version ${String(document.wire)}, and this control plane reads version ${REGISTRY_WIRE}`;
  if (!Array.isArray(document.registrations)) return 'registrations must be a list of what sidecars registered';
  const registrations = readRegistrations(document.registrations);
  if (typeof registrations === 'string') return registrations;
  const identities = readIdentities(document.identities ?? []);
  if (identities === null) return 'identities must be a list of what was issued';
  const { operators } = document;
  if (typeof operators !== 'object' || operators === null) return 'operators is missing';
  return {
    kind: KIND,
    wire: REGISTRY_WIRE,
    env: String(document.env ?? ''),
    epoch: String(document.epoch ?? ''),
    at: String(document.at ?? ''),
    lastSeq: Number(document.lastSeq ?? 0),
    registrations,
    operators: {
      policies: { ...noPolicies(''), ...operators.policies },
      providers: { ...noProviderSettings(''), ...operators.providers },
      canary: { ...noCanary(''), ...operators.canary },
      quotas: { ...noQuotas(''), ...operators.quotas },
      shifts: { ...noShifts(''), ...operators.shifts },
    },
    identities,
    alerts: readStored(document.alerts),
    history: Array.isArray(document.history) ? document.history : [],
  };
}

function readIdentities(list: unknown): readonly IdentityState[] | null {
  if (!Array.isArray(list)) return null;
  const read = list.map(readIdentity);
  return read.includes(null) ? null : (read as readonly IdentityState[]);
}

/** All of them, or what is wrong: an export that somebody has spoiled is not taken in by halves. */
function readRegistrations(list: readonly unknown[]): RegistrationState[] | string {
  const states: RegistrationState[] = [];
  const problems: string[] = [];
  const seen = new Set<string>();
  for (const [i, each] of list.entries()) {
    const read = readRegistration(each);
    const name = read.state?.hello.sidecar ?? '';
    problems.push(...read.problems.map((problem) => `registrations/${i}${name === '' ? '' : ` (${name})`}: ${problem}`));
    if (read.state === null) continue;
    if (seen.has(name)) problems.push(`registrations/${i}: the sidecar ${name} is listed twice`);
    seen.add(name);
    states.push(read.state);
  }
  if (problems.length === 0) return states;
  const more = problems.length - MAX_SHOWN_PROBLEMS;
  return `${problems.slice(0, MAX_SHOWN_PROBLEMS).join('; ')}${more > 0 ? `; and ${more} more` : ''}`;
}

async function imported(plane: Plane, asked: Asked): Promise<Reply> {
  const document = readExport(asked.body);
  if (typeof document === 'string') return invalid(document);
  if (document.env !== plane.env)
    return conflict(`this is an export of the environment ${JSON.stringify(document.env)}, and this one is ${JSON.stringify(plane.env)}`);
  const leading = plane.leading as Leading;
  const kept = await plane.journal.versions();
  const before = { sidecars: leading.registry.sidecarNames().length, version: leading.registry.operators().policies.active?.version ?? 0 };
  const written = await leading.inTime(leading.import(document.registrations, document.operators, document.identities, document.alerts));
  if (!written.ok) return invalid(`nothing was taken in: ${written.why}`);
  const known = new Set('failed' in kept ? [] : kept.map(({ version }) => version));
  for (const entry of document.history) if (!known.has(entry.version)) await plane.journal.policies(entry);
  const after = { sidecars: leading.registry.sidecarNames().length, version: leading.registry.operators().policies.active?.version ?? 0 };
  recordOrder(plane, asked, {
    what: 'import',
    target: document.epoch,
    before,
    after,
    reason: `export of ${document.at}`,
  });
  return json({ sidecars: after.sidecars - before.sidecars, version: after.version, history: document.history.length, seq: written.seq });
}

function watch(plane: Plane): Reply {
  return {
    start: (out) => {
      out.event('hello', { replica: plane.name, epoch: plane.epoch, last_seq: plane.mirror.lastSeq });
      const events = plane.watch(
        ({ kind, agent, sidecar, why, words, atMs }) => void out.event('event', { kind, agent, sidecar, why, words, at_ms: atMs }),
      );
      const stored = plane.mirror.listen((tail, seq) => {
        out.event('stored', { tail, seq, at_ms: plane.clock.wallMs() });
      });
      return () => {
        events();
        stored();
      };
    },
  };
}
