/**
 * Who may publish and hear what on NATS: the one list, line by line, out of which the permissions of each user of the server
 * are made. Nothing that is not named here is allowed, and `$JS.>` to nobody. A server can tell users apart by whole tokens
 * of a subject only; so where a name counts for something, it has a token of its own (`{name}`), and its owner alone may
 * publish there.
 *
 * A subject that is missing here shows as a permission violation in the server's log: the end-to-end test of permissions fails.
 */
import { TOLD } from '../../base/subject.ts';
import { MESSAGE_CAPABILITY } from './envelope.ts';
import {
  ANYBODY,
  AUDIT_STREAM,
  CONFIG_STREAM,
  CONTROL,
  CONTROL_STREAM,
  INBOX_STREAM,
  KEPT_STREAM,
  LEDGER_STREAM,
  OPERATIONS_STREAM,
  OVERRIDE_STREAM,
  REFUSED_STREAM,
  Subjects,
  TASK_STREAM,
} from './subjects.ts';

/** `control`: the replicas of the control plane. `operator`: `reachctl` with NATS alone, in an emergency. `monitor`: looks, and changes nothing. */
export type Kind = 'sidecar' | 'control' | 'operator' | 'monitor';

/** What a sidecar is for; everything, when it is not said. */
export interface Scope {
  /** Capabilities whose configuration it may read, as patterns (`crm.order.query`, `crm.order.*`, `crm.*`, `*`). */
  readonly reads: readonly string[];
  /** Its agents work: it may take tasks out of the queue. */
  readonly works: boolean;
}

export interface Permissions {
  readonly publish: readonly string[];
  readonly hear: readonly string[];
}

/** `own`: with the user's name in the place of `{name}`; `any`: whatever stands there. */
type Reach = 'own' | 'any';

interface Line {
  /** `{root}` is `ar.<env>`. */
  readonly subjects: readonly string[];
  readonly publish?: Partial<Readonly<Record<Kind, Reach>>>;
  readonly hear?: Partial<Readonly<Record<Kind, Reach>>>;
  /** Of sidecars, only for those that work. */
  readonly forWork?: true;
}

export const EVERYTHING: Scope = Object.freeze({ reads: Object.freeze(['*']), works: true });

/** A capability that every sidecar knows, whatever it is for: messages to agents. */
const COMMON_READS: readonly string[] = [MESSAGE_CAPABILITY];
/** `{reads}` stands for these and for what the sidecar's scope names. */
const TAILS: readonly string[] = ['epoch', 'rules', 'trust', 'quotas', 'shifts', 'scope.{name}', 'work.{name}', '{reads}'];
const STREAMS: readonly string[] = [
  CONFIG_STREAM,
  OPERATIONS_STREAM,
  CONTROL_STREAM,
  TASK_STREAM,
  INBOX_STREAM,
  LEDGER_STREAM,
  KEPT_STREAM,
  OVERRIDE_STREAM,
  AUDIT_STREAM,
  REFUSED_STREAM,
];
/** Nothing is taken out of these, by anybody. */
const APPEND_ONLY: ReadonlySet<string> = new Set([AUDIT_STREAM, REFUSED_STREAM]);
/** Both forms that a server gives to the address of an acknowledgement. */
const acksOf = (stream: string, consumer: string): readonly string[] => [
  `$JS.ACK.${stream}.${consumer}.>`,
  `$JS.ACK.*.*.${stream}.${consumer}.>`,
];

const LIST: readonly Line[] = [
  // ---- sidecars and the control plane
  {
    subjects: ['hello', 'register', 'leave', 'pool', 'task', 'home'].map((verb) => `{root}.ctl.${verb}.{name}`),
    publish: { sidecar: 'own' },
    hear: { control: 'any' },
  },
  // without a name, by the version before: no generated permission lets anybody say it
  { subjects: ['hello', 'register', 'leave', 'pool', 'task', 'home'].map((verb) => `{root}.ctl.${verb}`), hear: { control: 'any' } },
  { subjects: ['{root}.hb.{name}', '{root}.report.{name}'], publish: { sidecar: 'own' }, hear: { control: 'any', monitor: 'any' } },
  { subjects: ['{root}.ask.{name}'], publish: { control: 'any' }, hear: { sidecar: 'own' } },
  { subjects: ['{root}.beacon', '{root}.shares'], publish: { control: 'any' }, hear: { sidecar: 'any', control: 'any', monitor: 'any' } },

  // ---- what is seen of traffic
  { subjects: ['{root}.spans.{name}', '{root}.digest.{name}'], publish: { sidecar: 'own' }, hear: { control: 'any', monitor: 'any' } },
  { subjects: ['{root}.keep.{name}'], publish: { sidecar: 'own', control: 'own' } },
  { subjects: ['{root}.keep.*'], hear: { sidecar: 'any', control: 'any' } },
  { subjects: ['{root}.traces.ask', '{root}.traces.told'], publish: { control: 'any' }, hear: { control: 'any' } },

  // ---- configuration: written by the leader, republished by the server, read subject by subject
  { subjects: ['{root}.cfg.>', '{root}.ops.>'], publish: { control: 'any' } },
  { subjects: ['{root}.cp.>'], publish: { control: 'any' }, hear: { control: 'any' } },
  { subjects: TAILS.map((tail) => `{root}.push.${tail}`), hear: { sidecar: 'own' } },
  { subjects: ['{root}.push.>'], hear: { control: 'any' } },
  { subjects: TAILS.map((tail) => `$JS.API.DIRECT.GET.${CONFIG_STREAM}.{root}.cfg.${tail}`), publish: { sidecar: 'own' } },

  // ---- overrides: no leader, and an operator when no control plane is left
  {
    subjects: ['{root}.ovr.state'],
    publish: { control: 'any', operator: 'any' },
  },
  { subjects: ['{root}.ovrpush.state'], hear: { sidecar: 'any', control: 'any', operator: 'any', monitor: 'any' } },
  {
    subjects: ['{root}.ovrbeacon'],
    publish: { control: 'any', operator: 'any' },
    hear: { sidecar: 'any', control: 'any', operator: 'any', monitor: 'any' },
  },
  {
    subjects: ['{root}.inforce.{name}'],
    publish: { sidecar: 'own' },
    hear: { control: 'any', operator: 'any', monitor: 'any' },
  },
  { subjects: [`$JS.API.DIRECT.GET.${OVERRIDE_STREAM}.{root}.ovr.state`], publish: { sidecar: 'any', control: 'any', operator: 'any' } },
  {
    // Should the stream be lost with everything else, it is made anew; and of the registry's the operator sees the names of subjects.
    subjects: [
      ...['STREAM.INFO', 'STREAM.CREATE', 'STREAM.MSG.GET'].map((verb) => `$JS.API.${verb}.${OVERRIDE_STREAM}`),
      `$JS.API.STREAM.INFO.${CONFIG_STREAM}`,
    ],
    publish: { operator: 'any' },
  },
  // whom to expect: the names of the sidecars are subjects of the registry
  { subjects: [`$JS.API.STREAM.INFO.${CONFIG_STREAM}`], publish: { operator: 'any' } },

  // ---- messages
  { subjects: ['{root}.task.*.*.*.{name}'], publish: { sidecar: 'own', control: 'any' } },
  {
    subjects: [`$JS.API.CONSUMER.MSG.NEXT.${TASK_STREAM}.*`, `$JS.API.CONSUMER.INFO.${TASK_STREAM}.*`, ...acksOf(TASK_STREAM, '*')],
    publish: { sidecar: 'any' },
    forWork: true,
  },
  { subjects: ['{root}.inbox.*.*.*.*.{name}'], publish: { sidecar: 'own' } },
  { subjects: ['{root}.inbox.>'], publish: { control: 'any' } },
  {
    subjects: [
      `$JS.API.CONSUMER.MSG.NEXT.${INBOX_STREAM}.inbox_{name}`,
      `$JS.API.CONSUMER.INFO.${INBOX_STREAM}.inbox_{name}`,
      ...acksOf(INBOX_STREAM, 'inbox_{name}'),
    ],
    publish: { sidecar: 'own' },
  },
  { subjects: ['{root}.note.{name}'], publish: { sidecar: 'any', control: 'any' }, hear: { sidecar: 'own', control: 'any' } },
  { subjects: ['{root}.cancel.{name}'], publish: { sidecar: 'own' } },
  { subjects: ['{root}.cancel', '{root}.cancel.*'], hear: { sidecar: 'any' } },
  // Keys belong to tasks and not to sidecars: whoever works on one claims it. A sidecar cannot list them.
  { subjects: ['{root}.idem.*', `$JS.API.DIRECT.GET.${LEDGER_STREAM}.{root}.idem.*`], publish: { sidecar: 'any' } },
  { subjects: ['{root}.idem.>'], publish: { control: 'any' } },
  { subjects: ['dead', 'in_doubt', 'review'].map((kind) => `{root}.kept.${kind}.*`), publish: { sidecar: 'any' } },
  { subjects: ['{root}.kept.>'], publish: { control: 'any' } },

  // ---- the audit log
  {
    subjects: ['{root}.audit.{name}.refused', `$JS.API.DIRECT.GET.${REFUSED_STREAM}.{root}.audit.{name}.refused`],
    publish: { sidecar: 'own' },
  },
  {
    subjects: ['{root}.audit.{name}.act', `$JS.API.DIRECT.GET.${AUDIT_STREAM}.{root}.audit.{name}.act`],
    publish: { operator: 'own' },
  },
  { subjects: ['{root}.audit.*.act', '{root}.audit.*.asked'], publish: { control: 'any' } },

  // ---- streams and consumers: made and looked after by the control plane alone
  { subjects: ['$JS.API.INFO'], publish: { control: 'any', monitor: 'any', operator: 'any' } },
  {
    subjects: STREAMS.flatMap((stream) => [
      ...['STREAM.CREATE', 'STREAM.UPDATE', 'STREAM.MSG.GET', 'DIRECT.GET'].map((verb) => `$JS.API.${verb}.${stream}`),
      `$JS.API.DIRECT.GET.${stream}.>`,
      ...(APPEND_ONLY.has(stream) ? [] : [`$JS.API.STREAM.MSG.DELETE.${stream}`]),
    ]),
    publish: { control: 'any' },
  },
  {
    subjects: [TASK_STREAM, INBOX_STREAM].flatMap((stream) => [
      ...['CREATE', 'DURABLE.CREATE', 'DELETE', 'MSG.NEXT'].map((verb) => `$JS.API.CONSUMER.${verb}.${stream}.>`),
      ...acksOf(stream, '*'),
    ]),
    publish: { control: 'any' },
  },
  {
    subjects: STREAMS.flatMap((stream) => [
      `$JS.API.STREAM.INFO.${stream}`,
      `$JS.API.CONSUMER.LIST.${stream}`,
      `$JS.API.CONSUMER.NAMES.${stream}`,
      `$JS.API.CONSUMER.INFO.${stream}.*`,
    ]),
    publish: { control: 'any', monitor: 'any' },
  },
  { subjects: ['$JS.EVENT.ADVISORY.>'], hear: { monitor: 'any' } },

  // ---- answers
  { subjects: ['_INBOX.{name}.>'], hear: { sidecar: 'own', control: 'own', operator: 'own', monitor: 'own' } },
  { subjects: ['_INBOX.>'], publish: { control: 'any' } },
  // A sidecar answers a question of the control plane and a calling off, at addresses that nobody guesses. The server's `allow_responses`
  // would open every subject: one sends something to oneself and names it as the place for the answer.
  { subjects: [`_INBOX.*.${TOLD}.{name}.*`, `_INBOX.*.${TOLD}.${ANYBODY}.*`], publish: { sidecar: 'own' } },
];

/**
 * What one user of the server may.
 *
 * @param name the sidecar's or person's name; the replicas of the control plane share CONTROL
 */
export function permissionsOf(env: string, kind: Kind, name: string, scope: Scope = EVERYTHING): Permissions {
  const subjects = new Subjects(env, kind === 'control' ? CONTROL : name);
  const root = subjects.config.slice(0, -'.cfg.>'.length);
  const self = kind === 'control' ? CONTROL : name;
  const reads = [...new Set([...COMMON_READS, ...scope.reads].flatMap(tailsOf))];
  const written = (which: 'publish' | 'hear'): string[] => {
    const all = new Set<string>();
    for (const line of LIST) {
      const reach = line[which]?.[kind];
      if (reach === undefined || (line.forWork === true && kind === 'sidecar' && !scope.works)) continue;
      for (const subject of line.subjects) {
        const said = subject.replace('{root}', root).replace('{name}', reach === 'own' ? self : '*');
        if (said.includes('{reads}')) for (const tail of reads) all.add(said.replace('{reads}', tail));
        else all.add(said);
      }
    }
    return [...all];
  };
  return { publish: written('publish'), hear: written('hear') };
}

/** What AR_CFG holds of the capabilities that a pattern covers; above 64 providers there are shards. */
function tailsOf(pattern: string): string[] {
  if (pattern === '*') return ['cap.>'];
  const segments = pattern.split('.');
  if (segments.length === 2) return [`cap.${segments[0]}.>`];
  return [`cap.${pattern}`, `cap.${pattern}.*`];
}
