/**
 * What the server has refused to store for want of a permission, on this connection. Permissions may be on their way, so a refusal
 * counts when it has been said some times over some seconds. A permission is for a kind of subject: what waits for people has a subject
 * of its own for each task, and would cost those seconds one after another. Where permissions are narrower than that, a subject is known by itself.
 * Nothing is given up unasked: each record has been refused itself.
 */
const TRIES = 3;
const FOR_MS = 10_000;
/** Subjects, and kinds of them, that are remembered. */
const MAX_KNOWN = 1_000;

interface Denied {
  readonly since: number;
  tries: number;
}

export class Denials {
  readonly #kinds = new Map<string, Denied>();
  readonly #subjects = new Map<string, Denied>();

  /** It was refused. True = so often, and for so long, that this sidecar may not publish there. */
  refused(subject: string, now: number): boolean {
    return isLasting(this.#kinds, kindOf(subject), now) || isLasting(this.#subjects, subject, now);
  }

  /** It was stored. */
  stored(subject: string): void {
    if (this.#kinds.size !== 0) this.#kinds.delete(kindOf(subject));
    if (this.#subjects.size !== 0) this.#subjects.delete(subject);
  }

  /** Another connection may have other permissions. */
  clear(): void {
    this.#kinds.clear();
    this.#subjects.clear();
  }
}

function isLasting(known: Map<string, Denied>, key: string, now: number): boolean {
  let denied = known.get(key);
  if (denied === undefined) {
    if (known.size >= MAX_KNOWN) known.clear();
    denied = { since: now, tries: 0 };
    known.set(key, denied);
  }
  denied.tries++;
  return denied.tries >= TRIES && now - denied.since >= FOR_MS;
}

/** As permissions have it (proto/wire/permissions.ts): tasks by who sends them, what is kept for people by what it is. */
export function kindOf(subject: string): string {
  const [root, env, what, first, , , sender = ''] = subject.split('.');
  if (what === 'task') return `${root}.${env}.task.*.*.*.${sender}`;
  if (what === 'kept') return `${root}.${env}.kept.${first}.*`;
  return subject;
}
