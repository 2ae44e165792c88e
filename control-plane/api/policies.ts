/** The operators' document: apply, diff, history, rollback, staged roll-out. A document with any mistake in it changes nothing. */
import { parseRatio } from '../../base/duration.ts';
import type { Problem } from '../../proto/language/types.ts';
import type { PolicyOutcome } from '../registry/registry.ts';
import type { PolicyEntry } from '../push/journal.ts';
import type { Leading } from '../push/leading.ts';
import { MAX_DOCUMENT_BYTES } from '../rules/document.ts';
import { carryOut } from './orders.ts';
import type { Plane } from './plane.ts';
import { absent, conflict, invalid, Refused, unavailable } from './problem.ts';
import { type Asked, bodyMap, json, type Reply, type Route, strayKey } from './route.ts';
import { type HistoryAnswer, type PoliciesAnswer, type PolicyChangeAnswer, snake } from './shapes.ts';

const YAML = {
  contentType: 'application/yaml',
  doc: 'The document: contracts and policies, YAML or JSON.',
  schema: { type: 'string' },
  maxBytes: MAX_DOCUMENT_BYTES,
} as const;
const FILE = { name: 'file', doc: 'Name of the file, for the places of mistakes.', example: 'policies.yaml' };
const NOTE = { name: 'note', doc: 'Why; stands in the history.' };

export function policyRoutes(plane: Plane): readonly Route[] {
  return [
    {
      method: 'GET',
      path: '/v1/policies',
      role: 'viewer',
      onLeader: false,
      summary: 'The document in force, and the roll-out under way.',
      answer: { status: 200, doc: 'Version 0: none has been applied yet.' },
      handle: () => json(active(plane)),
    },
    {
      method: 'GET',
      path: '/v1/policies/history',
      role: 'viewer',
      onLeader: false,
      summary: 'Every version that was applied, newest first.',
      answer: { status: 200, doc: 'Without their texts.' },
      handle: () => history(plane),
    },
    {
      method: 'GET',
      path: '/v1/policies/history/:version',
      role: 'viewer',
      onLeader: false,
      summary: 'One version with its text.',
      params: [{ name: 'version', doc: 'Its number.', example: '3' }],
      answer: { status: 200, doc: 'The version.' },
      handle: async ({ params }) => {
        const entry = await versionOf(plane, params['version']);
        return entry instanceof Refused ? entry : json(snake(entry));
      },
    },
    {
      method: 'GET',
      path: '/v1/policies/diff',
      role: 'viewer',
      onLeader: false,
      isDear: true,
      summary: 'What going back to a version of the history would change.',
      query: [{ name: 'version', doc: 'Its number.', example: '3' }],
      answer: { status: 200, doc: 'The difference to what is in force.' },
      handle: async ({ query }) => {
        const entry = await versionOf(plane, query['version']);
        return entry instanceof Refused ? entry : preview(plane, entry.text, `version ${entry.version}`);
      },
    },
    {
      method: 'POST',
      path: '/v1/policies/diff',
      role: 'viewer',
      onLeader: false,
      isDear: true,
      summary: 'What applying this document would change. Nothing is changed.',
      query: [FILE],
      body: YAML,
      answer: { status: 200, doc: 'The difference to what is in force.' },
      handle: ({ body, query }) => preview(plane, body, query['file']),
    },
    {
      method: 'POST',
      path: '/v1/policies',
      role: 'operator',
      onLeader: true,
      summary: 'Applies a document: whole, or not at all.',
      query: [
        FILE,
        NOTE,
        { name: 'dry_run', doc: '`true`: judge it and say what it would change.' },
        { name: 'share', doc: 'A staged roll-out: only this share of the sidecars uses it at first.', example: '10%' },
      ],
      body: YAML,
      answer: { status: 200, doc: 'The version, what it changes, what looks like a slip.' },
      handle: (asked) => apply(plane, asked),
    },
    {
      method: 'POST',
      path: '/v1/policies/rollback',
      role: 'operator',
      onLeader: true,
      summary: 'Applies an old version as a new one.',
      body: {
        contentType: 'application/json',
        doc: 'Which.',
        schema: { type: 'object', properties: { version: { type: 'integer', minimum: 1 } }, required: ['version'] },
      },
      answer: { status: 200, doc: 'The new version.' },
      handle: (asked) => rollback(plane, asked),
    },
    {
      method: 'POST',
      path: '/v1/policies/promote',
      role: 'operator',
      onLeader: true,
      summary: 'The staged document becomes the one in force for everybody.',
      body: {
        contentType: 'application/json',
        doc: '`force`: although some of its sidecars have not said yet that they use it.',
        schema: { type: 'object', properties: { force: { type: 'boolean' } } },
      },
      answer: { status: 200, doc: 'In force at this sequence.' },
      handle: (asked) =>
        step(plane, asked, 'policies.promote', ['force'], (leading, map) => leading.registry.promote({ force: map['force'] === true })),
    },
    {
      method: 'POST',
      path: '/v1/policies/halt',
      role: 'operator',
      onLeader: true,
      summary: 'Ends a staged roll-out: everybody uses the document in force again.',
      answer: { status: 200, doc: 'In force at this sequence.' },
      handle: (asked) => step(plane, asked, 'policies.halt', [], (leading) => leading.registry.abort()),
    },
    {
      method: 'POST',
      path: '/v1/policies/widen',
      role: 'operator',
      onLeader: true,
      summary: 'Gives a staged roll-out a larger share.',
      body: {
        contentType: 'application/json',
        doc: 'The new share.',
        schema: { type: 'object', properties: { share: { type: ['string', 'number'] } }, required: ['share'] },
      },
      answer: { status: 200, doc: 'In force at this sequence.' },
      handle: (asked) =>
        step(plane, asked, 'policies.widen', ['share'], (leading, map) => {
          const share = parseRatio(map['share']);
          return typeof share === 'string' ? invalid(`share: ${share}`) : leading.registry.widen(share);
        }),
    },
  ];
}

function active(plane: Plane): PoliciesAnswer {
  const registry = plane.registry();
  const document = registry.operators().policies.active;
  const rollout = registry.rollout();
  return {
    version: document?.version ?? 0,
    author: document?.author ?? '',
    at_ms: document?.atMs ?? 0,
    note: document?.note ?? '',
    text: document?.text ?? '',
    rollout: rollout === null ? null : snake(rollout),
  };
}

async function history(plane: Plane): Promise<Reply> {
  const versions = await plane.journal.versions();
  if ('failed' in versions) return unavailable(`the history cannot be read: ${versions.failed}`);
  const answer: HistoryAnswer = {
    active: plane.registry().operators().policies.active?.version ?? 0,
    versions: versions.reverse().map(({ version, author, atMs, note, action }) => ({ version, author, at_ms: atMs, note, action })),
  };
  return json(answer);
}

async function versionOf(plane: Plane, text: string | undefined): Promise<PolicyEntry | Refused> {
  const version = Number(text);
  if (text === undefined || !Number.isInteger(version) || version < 1) return invalid('name a version of the history, such as 3');
  const versions = await plane.journal.versions();
  if ('failed' in versions) return unavailable(`the history cannot be read: ${versions.failed}`);
  const found = versions.findLast((entry) => entry.version === version);
  if (found !== undefined) return found;
  const known = versions.map((entry) => entry.version);
  return absent(
    `there is no version ${version}; ${known.length === 0 ? 'none has been applied yet' : `there are ${Math.min(...known)} to ${Math.max(...known)}`}`,
  );
}

function preview(plane: Plane, text: string, file: string | undefined): Reply {
  const outcome = plane.registry().previewPolicies(text, file ?? 'policies');
  return outcome.ok ? json(changeOf(plane, outcome, true, 0)) : refused(outcome.problems);
}

function refused(problems: readonly Problem[]): Refused {
  const count = problems.length === 1 ? 'there is a mistake' : `there are ${problems.length} mistakes`;
  return invalid(`nothing was changed: ${count} in the document`, problems);
}

function changeOf(plane: Plane, outcome: PolicyOutcome, isDryRun: boolean, seq: number): PolicyChangeAnswer {
  const rollout = plane.registry().rollout();
  return {
    version: outcome.entry?.version ?? null,
    dry_run: isDryRun,
    diff: outcome.diff.lines,
    warnings: outcome.warnings,
    rollout: rollout === null ? null : snake(rollout),
    seq,
  };
}

async function apply(plane: Plane, asked: Asked): Promise<Reply> {
  const { file, note, dry_run: dryRun, share: shareText } = asked.query;
  if (dryRun !== undefined && dryRun !== 'true' && dryRun !== 'false') return invalid('dry_run must be true or false');
  const share = shareText === undefined ? null : parseRatio(/^[\d.]+$/.test(shareText) ? Number(shareText) : shareText);
  if (typeof share === 'string') return invalid(`share: ${share}`);
  if (share === 0) return invalid('share: a roll-out to nobody is none; use dry_run=true to see what it would change');
  if (note !== undefined && note.length > 500) return invalid('note must have at most 500 characters');
  if (dryRun === 'true') return preview(plane, asked.body, file);
  const { registry } = plane.leading as Leading;
  const author = asked.operator?.name ?? '';
  const before = registry.operators().policies.active?.version ?? 0;
  const outcome = registry.applyPolicies(asked.body, {
    author,
    note: note ?? '',
    share,
    lastSeq: plane.mirror.lastSeq,
    file: file ?? 'policies',
  });
  return settle(plane, asked, outcome, share === null || share >= 1 ? 'apply' : 'stage', before, note ?? '');
}

async function rollback(plane: Plane, asked: Asked): Promise<Reply> {
  const map = bodyMap(asked);
  if (typeof map === 'string') return invalid(map);
  const stray = strayKey(map, ['version']);
  if (stray !== null) return invalid(stray);
  const entry = await versionOf(plane, String(map['version']));
  if (entry instanceof Refused) return entry;
  const leading = plane.leading;
  if (leading === null) return unavailable('this replica has just stopped leading; ask again');
  const before = leading.registry.operators().policies.active?.version ?? 0;
  const outcome = leading.registry.rollback(entry, asked.operator?.name ?? '');
  return settle(plane, asked, outcome, 'rollback', before, `back to version ${entry.version}`);
}

async function settle(
  plane: Plane,
  asked: Asked,
  outcome: PolicyOutcome,
  action: PolicyEntry['action'],
  before: number,
  reason: string,
): Promise<Reply> {
  if (!outcome.ok) return refused(outcome.problems);
  if (outcome.entry === null) return json(changeOf(plane, outcome, false, 0));
  const unkept = await plane.journal.policies({ ...outcome.entry, action });
  const order = { what: `policies.${action}`, target: String(outcome.entry.version), reason, before };
  const seq = await carryOut(plane, asked, order, { problem: null, change: outcome.change }, () => ({
    version: outcome.entry?.version,
    diff: outcome.diff.lines,
  }));
  if (seq instanceof Refused) return seq;
  const answer = changeOf(plane, outcome, false, seq);
  if (unkept === null) return json(answer);
  const warning = {
    file: '',
    line: 0,
    column: 0,
    path: '',
    message: `the version is in force but could not be kept in the history: ${unkept}`,
  };
  return json({ ...answer, warnings: [...answer.warnings, warning] });
}

async function step(
  plane: Plane,
  asked: Asked,
  what: string,
  keys: readonly string[],
  act: (leading: Leading, map: Readonly<Record<string, unknown>>) => ReturnType<Leading['registry']['abort']> | Refused,
): Promise<Reply> {
  const map = bodyMap(asked);
  if (typeof map === 'string') return invalid(map);
  const stray = strayKey(map, keys);
  if (stray !== null) return invalid(stray);
  const leading = plane.leading as Leading;
  const before = leading.registry.rollout();
  if (before === null) return conflict('no roll-out is under way');
  const outcome = act(leading, map);
  if (outcome instanceof Refused) return outcome;
  const order = {
    what,
    target: String(before.version),
    reason: '',
    before: { version: before.version, share: before.share, halted: before.halted },
  };
  const seq = await carryOut(plane, asked, order, outcome, () => {
    const now = leading.registry.rollout();
    return now === null ? null : { version: now.version, share: now.share };
  });
  return seq instanceof Refused ? seq : json({ ...active(plane), seq });
}
