/**
 * Every subject and stream that Agent-Reach uses on NATS, in one place. A subject token is made only from names that have
 * been validated (capability names, sidecar names: lower-case letters, digits, `_` and `-`), so that nothing a person
 * writes can become a wildcard, a second subject or a line of the protocol.
 *
 * Whoever says something that counts for more than itself says its own name in the subject: NATS permissions bind a token of a
 * subject to a user (permissions.ts), and nothing in a message. The version before this one left the name out of what is asked
 * of the control plane, of calling off, and of what is put into inboxes; `speech` says what is spoken at present.
 */
const TOKEN = /^[a-zA-Z0-9_-]{1,64}$/;

export const CONFIG_STREAM = 'AR_CFG';
export const OPERATIONS_STREAM = 'AR_OPS';
export const CONTROL_STREAM = 'AR_CP';
/** Durable messages: tasks that wait (work queue), inboxes, claims, what is kept for people. */
export const TASK_STREAM = 'AR_TASKS';
export const INBOX_STREAM = 'AR_INBOX';
export const LEDGER_STREAM = 'AR_IDEM';
export const KEPT_STREAM = 'AR_DLQ';
/** The audit log: what operators did; and what was refused, which anybody can bring about. */
export const AUDIT_STREAM = 'AR_AUDIT';
export const REFUSED_STREAM = 'AR_REFUSED';
/** The operators' emergency overrides: one message, the whole list. */
export const OVERRIDE_STREAM = 'AR_OVR';

/** How the control plane signs what it puts into inboxes: no sidecar can be called so. */
export const CONTROL = '_control';
/** Who answers what all were asked: no sidecar can be called so, either. */
export const ANYBODY = '_any';

/**
 * What is spoken: `named` = with the own name in all that counts; `asks` = only in what is asked of the control plane, since a
 * sidecar of the version before is there and reads inboxes; `plain` = nowhere, since such a control plane leads.
 */
export type Speech = 'named' | 'asks' | 'plain';

/** An entry of an inbox, by its subject. */
export interface InboxPlace {
  readonly home: string;
  readonly agent: string;
  /** The sidecar that put it there, or CONTROL; null = it was put there without a name. */
  readonly writer: string | null;
}

export class Subjects {
  /** As the control plane's beacon has it; what a process begins with is what a whole new fleet speaks. */
  speech: Speech = 'named';
  readonly #root: string;
  readonly #self: string | null;

  /**
   * @param env name of the environment, so that several can share one NATS. Throws when it is not one plain token.
   * @param self the sidecar that speaks, or CONTROL; null = it only reads
   */
  constructor(env: string, self: string | null = null) {
    if (!TOKEN.test(env)) throw new Error(`the environment ${JSON.stringify(env.slice(0, 80))} must be 1 to 64 of a-z, A-Z, 0-9, _ and -`);
    this.#root = `ar.${env}`;
    this.#self = self === null ? null : token(self);
  }

  /** What AR_CFG stores. */
  get config(): string {
    return `${this.#root}.cfg.>`;
  }
  /** Where the server republishes what AR_CFG stores: the same tail after `push`. */
  get push(): string {
    return `${this.#root}.push.>`;
  }
  /** Stored subject of a tail such as `cap.crm.order.query` or `reg.order-a`. */
  cfg(tail: string): string {
    return `${this.#root}.cfg.${tail}`;
  }
  pushed(tail: string): string {
    return `${this.#root}.push.${tail}`;
  }
  /** The tail of a stored or republished subject; null when it is neither. */
  tailOf(subject: string): string | null {
    for (const kind of ['.cfg.', '.push.'])
      if (subject.startsWith(this.#root + kind)) return subject.slice(this.#root.length + kind.length);
    return null;
  }

  get operations(): string {
    return `${this.#root}.ops.>`;
  }
  ops(tail: string): string {
    return `${this.#root}.ops.${tail}`;
  }
  get control(): string {
    return `${this.#root}.cp.>`;
  }
  get leader(): string {
    return `${this.#root}.cp.leader`;
  }
  /** Sessions of operators that were ended early; written by any replica. */
  get sessions(): string {
    return `${this.#root}.cp.sessions`;
  }

  // Core NATS: nothing of this is stored.
  get beacon(): string {
    return `${this.#root}.beacon`;
  }
  /** A request to the leader, as it is spoken here. */
  ctl(verb: Verb): string {
    const subject = `${this.#root}.ctl.${verb}`;
    return this.#self === null || this.speech === 'plain' ? subject : `${subject}.${this.#self}`;
  }
  /** Where the leader hears them: with and without the name of who asks. */
  asked(verb: Verb): readonly string[] {
    return [`${this.#root}.ctl.${verb}`, `${this.#root}.ctl.${verb}.*`];
  }
  /** Who said it, of a request to the leader or a calling off; null = it was said without a name. */
  speakerOf(subject: string): string | null {
    for (const kind of ['.ctl.', '.cancel.']) {
      const start = this.#root.length + kind.length;
      if (!subject.startsWith(this.#root + kind)) continue;
      const dot = kind === '.ctl.' ? subject.indexOf('.', start) : start - 1;
      return dot < 0 ? null : subject.slice(dot + 1);
    }
    return null;
  }
  heartbeat(sidecar: string): string {
    return `${this.#root}.hb.${token(sidecar)}`;
  }
  /** The leader to every sidecar: how the quotas are shared out that are counted at several of them. */
  get shares(): string {
    return `${this.#root}.shares`;
  }
  report(sidecar: string): string {
    return `${this.#root}.report.${token(sidecar)}`;
  }
  /** Those of all sidecars. */
  get heartbeats(): string {
    return `${this.#root}.hb.*`;
  }
  get reports(): string {
    return `${this.#root}.report.*`;
  }
  /** Requests of the control plane to one sidecar. */
  ask(sidecar: string): string {
    return `${this.#root}.ask.${token(sidecar)}`;
  }

  // What is seen: core NATS, of each sidecar about itself; nothing of it is stored.
  /** Spans of traces, to the control plane. `*`: those of all sidecars. */
  spans(sidecar: string): string {
    return `${this.#root}.spans.${sidecar === '*' ? sidecar : token(sidecar)}`;
  }
  /** Traces that something failed in: to every sidecar, which sends after what it still holds of them. */
  keep(sidecar: string): string {
    return `${this.#root}.keep.${sidecar === '*' ? sidecar : token(sidecar)}`;
  }
  /** Counts and durations of a period, to every replica of the control plane. */
  digest(sidecar: string): string {
    return `${this.#root}.digest.${sidecar === '*' ? sidecar : token(sidecar)}`;
  }

  /** The replicas of the control plane among themselves: who holds spans of a trace, and which. */
  traces(verb: 'ask' | 'told'): string {
    return `${this.#root}.traces.${verb}`;
  }

  // Durable messages.
  /** What AR_TASKS stores. */
  get tasks(): string {
    return `${this.#root}.task.>`;
  }
  /** @param partition number of the partition of a sticky pool, 0 otherwise. */
  task(pool: string, lane: string, partition: number, sender: string): string {
    return `${this.#root}.task.${token(pool)}.${lane}.${partition}.${token(sender)}`;
  }
  /** Who has sent a task, by its subject. */
  senderOf(subject: string): string {
    return subject.slice(subject.lastIndexOf('.') + 1);
  }
  /** What one consumer takes: a lane of a pool, or (lane `*`) a partition of it. */
  taskFilter(pool: string, lane: string, partition: number | '*'): string {
    return `${this.#root}.task.${token(pool)}.${lane}.${partition}.*`;
  }
  get inboxes(): string {
    return `${this.#root}.inbox.>`;
  }
  /** Where this process puts something into an agent's inbox; `writer`: in whose name, where the control plane moves what others wrote. */
  inbox(home: string, agent: string, writer: string | null = this.speech === 'named' ? this.#self : null): string {
    const subject = `${this.#root}.inbox.${token(home)}.${agentTokens(agent)}`;
    return writer === null ? subject : `${subject}.${token(writer)}`;
  }
  /** What the inboxes at one sidecar hold. */
  inboxesAt(home: string): string {
    return `${this.#root}.inbox.${token(home)}.>`;
  }
  /** What one agent's inboxes hold, wherever they are: without and with the writer's name. */
  inboxesOf(agent: string): readonly string[] {
    const subject = `${this.#root}.inbox.*.${agentTokens(agent)}`;
    return [subject, `${subject}.*`];
  }
  /** Null when it is no entry of an inbox. */
  inboxPlace(subject: string): InboxPlace | null {
    const prefix = `${this.#root}.inbox.`;
    if (!subject.startsWith(prefix)) return null;
    const [home, team, role, id, writer, ...more] = subject.slice(prefix.length).split('.');
    if (home === undefined || id === undefined || more.length > 0) return null;
    return { home, agent: `${team}.${role}.${id}`, writer: writer ?? null };
  }
  get ledger(): string {
    return `${this.#root}.idem.>`;
  }
  idem(id: string): string {
    return `${this.#root}.idem.${token(id)}`;
  }
  /**
   * The audit log. `act`: what operators did (AR_AUDIT); `asked`: what they were refused, `refused`: what a sidecar refused
   * by policy (both AR_REFUSED). A sidecar publishes `refused` as itself, and reads the last one of its own; nothing else.
   *
   * @param who the replica or sidecar that writes, or `*`
   */
  audit(who: string, kind: 'act' | 'asked' | 'refused' | '*'): string {
    return `${this.#root}.audit.${who === '*' ? who : token(who)}.${kind}`;
  }
  // Emergency overrides. Only operators (each replica, and `reachctl` with their credential) publish `ovr.state` and the beacon; a
  // sidecar hears `ovrpush.state` and `ovrbeacon`, reads `ovr.state` by the subject form of direct get, and publishes `inforce` as itself.
  get allOverrides(): string {
    return `${this.#root}.ovr.>`;
  }
  get overrides(): string {
    return `${this.#root}.ovr.state`;
  }
  /** Where the server republishes what AR_OVR stores. */
  get allPushedOverrides(): string {
    return `${this.#root}.ovrpush.>`;
  }
  get pushedOverrides(): string {
    return `${this.#root}.ovrpush.state`;
  }
  /** Core NATS: which state is the newest, each second of each replica. */
  get overrideBeacon(): string {
    return `${this.#root}.ovrbeacon`;
  }
  /** Core NATS: which state is in force at one sidecar. */
  inForce(sidecar: string): string {
    return `${this.#root}.inforce.${sidecar === '*' ? sidecar : token(sidecar)}`;
  }
  get allKept(): string {
    return `${this.#root}.kept.>`;
  }
  kept(kind: 'dead' | 'in_doubt' | 'review' | '*', task: string): string {
    return `${this.#root}.kept.${kind}.${task === '*' ? task : token(task)}`;
  }
  /** Beside the kept entry of a task: what somebody is doing with it. */
  order(task: string): string {
    return `${this.#root}.kept.order.${token(task)}`;
  }
  /** Core NATS: states of tasks that are not final, to the sender's home. */
  note(home: string): string {
    return `${this.#root}.note.${home === '*' ? home : token(home)}`;
  }
  /** Core NATS: a task is to be stopped; every worker hears it. As it is spoken here. */
  get cancel(): string {
    const subject = `${this.#root}.cancel`;
    return this.#self === null || this.speech !== 'named' ? subject : `${subject}.${this.#self}`;
  }
  /** Where workers hear it: without and with the name of who says so. */
  get cancels(): readonly string[] {
    return [`${this.#root}.cancel`, `${this.#root}.cancel.*`];
  }
}

/** What a sidecar asks of the leader. */
export type Verb = 'hello' | 'register' | 'leave' | 'pool' | 'task' | 'home';

/** Tails of AR_CFG. */
export const Tail = {
  epoch: 'epoch',
  capability: (name: string): string => `cap.${name}`,
  /** Above 64 providers the rest stand in shards 1, 2, … */
  shard: (name: string, shard: number): string => (shard === 0 ? `cap.${name}` : `cap.${name}.${shard}`),
  scope: (sidecar: string): string => `scope.${token(sidecar)}`,
  registration: (sidecar: string): string => `reg.${token(sidecar)}`,
  policies: 'op.policies',
  providers: 'op.providers',
  canary: 'op.canary',
  /** Quotas as operators set them, and the same in force, for every sidecar. */
  storedQuotas: 'op.quotas',
  quotas: 'quotas',
  /** Shifts of traffic, those that are over too, and what sidecars are to measure for those that run. */
  storedShifts: 'op.shifts',
  shifts: 'shifts',
  /** Alerts that fire, and which of them are silenced. */
  alerts: 'op.alerts',
  /** Up to where operators have been told of what is kept for them. */
  notices: 'op.notices',
  /** Rules for messages, in force. */
  rules: 'rules',
  pool: (id: string): string => `pool.${token(id)}`,
  /** Keys whose signatures count, and what has been taken back. */
  trust: 'trust',
  /** What has been issued to one agent or sidecar. */
  identity: (kind: 'agent' | 'sidecar', name: string): string => `ident.${kind}.${kind === 'agent' ? agentTokens(name) : token(name)}`,
  /** On which pools a sidecar's agents work. */
  work: (sidecar: string): string => `work.${token(sidecar)}`,
} as const;

/** Providers in one message of a capability. */
export const PROVIDERS_PER_SHARD = 64;

/** A validated name as one token; throws for anything that would change the subject's meaning. */
function token(name: string): string {
  if (!TOKEN.test(name))
    throw new Error(`${JSON.stringify(name.slice(0, 80))} cannot stand in a subject: 1 to 64 of a-z, A-Z, 0-9, _ and - are allowed`);
  return name;
}

/** `team.role.id` as the tokens it is made of; what a name may not hold cannot get through. */
function agentTokens(agent: string): string {
  const parts = agent.split('.');
  if (parts.length !== 3) throw new Error(`${JSON.stringify(agent.slice(0, 80))} is not team.role.id`);
  return parts.map(token).join('.');
}
