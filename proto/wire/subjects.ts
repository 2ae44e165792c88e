/**
 * Every subject and stream that Agent-Reach uses on NATS, in one place. A subject token is made only from names that have
 * been validated (capability names, sidecar names: lower-case letters, digits, `_` and `-`), so that nothing a person
 * writes can become a wildcard, a second subject or a line of the protocol.
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

export class Subjects {
  readonly #root: string;

  /** @param env name of the environment, so that several can share one NATS. Throws when it is not one plain token. */
  constructor(env: string) {
    if (!TOKEN.test(env)) throw new Error(`the environment ${JSON.stringify(env.slice(0, 80))} must be 1 to 64 of a-z, A-Z, 0-9, _ and -`);
    this.#root = `ar.${env}`;
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

  // Core NATS: nothing of this is stored.
  get beacon(): string {
    return `${this.#root}.beacon`;
  }
  /** Requests of sidecars to the leader. */
  ctl(verb: 'hello' | 'register' | 'leave' | 'pool' | 'task' | 'home'): string {
    return `${this.#root}.ctl.${verb}`;
  }
  heartbeat(sidecar: string): string {
    return `${this.#root}.hb.${token(sidecar)}`;
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

  // Durable messages.
  /** What AR_TASKS stores. */
  get tasks(): string {
    return `${this.#root}.task.>`;
  }
  /** @param partition number of the partition of a sticky pool, 0 otherwise. */
  task(pool: string, lane: string, partition: number, sender: string): string {
    return `${this.#root}.task.${token(pool)}.${lane}.${partition}.${token(sender)}`;
  }
  /** What one consumer takes: a lane of a pool, or (lane `*`) a partition of it. */
  taskFilter(pool: string, lane: string, partition: number | '*'): string {
    return `${this.#root}.task.${token(pool)}.${lane}.${partition}.*`;
  }
  get inboxes(): string {
    return `${this.#root}.inbox.>`;
  }
  /** @param agent `team.role.id` or `*.*.*`; home a sidecar or `*`. */
  inbox(home: string, agent: string): string {
    return `${this.#root}.inbox.${home === '*' ? home : token(home)}.${agent === '*' ? '*.*.*' : agentTokens(agent)}`;
  }
  get ledger(): string {
    return `${this.#root}.idem.>`;
  }
  idem(id: string): string {
    return `${this.#root}.idem.${token(id)}`;
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
    return `${this.#root}.note.${token(home)}`;
  }
  /** Core NATS: a task is to be stopped; every worker hears it. */
  get cancel(): string {
    return `${this.#root}.cancel`;
  }
}

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
