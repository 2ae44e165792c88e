/** What NATS allows one sidecar (NATS.md, Permissions), in the words of a server's configuration; and who else there is. */
import { CONFIG_STREAM, INBOX_STREAM, LEDGER_STREAM, Subjects, TASK_STREAM } from '../../proto/wire/subjects.ts';

/** Where a sidecar may publish. */
export function mayPublish(env: string, sidecar: string): string[] {
  const root = `ar.${env}`;
  const subjects = new Subjects(env);
  return [
    // To the control plane, and about itself.
    ...(['hello', 'register', 'leave', 'pool', 'task'] as const).map((verb) => subjects.ctl(verb)),
    subjects.heartbeat(sidecar),
    subjects.report(sidecar),
    // Its own configuration, subject by subject.
    `$JS.API.DIRECT.GET.${CONFIG_STREAM}.${root}.cfg.>`,
    // Tasks, under its own name only; pools are made by the control plane, and every sidecar may be given work in any.
    `${root}.task.*.*.*.${sidecar}`,
    `$JS.API.CONSUMER.MSG.NEXT.${TASK_STREAM}.*`,
    `$JS.API.CONSUMER.INFO.${TASK_STREAM}.*`,
    `$JS.ACK.${TASK_STREAM}.>`,
    `$JS.ACK.*.*.${TASK_STREAM}.>`,
    // Its own inboxes; results go to any.
    `${root}.inbox.*.*.*.*`,
    `$JS.API.CONSUMER.MSG.NEXT.${INBOX_STREAM}.inbox_${sidecar}`,
    `$JS.API.CONSUMER.INFO.${INBOX_STREAM}.inbox_${sidecar}`,
    `$JS.ACK.${INBOX_STREAM}.inbox_${sidecar}.>`,
    `$JS.ACK.*.*.${INBOX_STREAM}.inbox_${sidecar}.>`,
    // Claims, by key; what needs a person; news of tasks; calling off.
    `${root}.idem.*`,
    `$JS.API.DIRECT.GET.${LEDGER_STREAM}.${root}.idem.*`,
    ...(['dead', 'in_doubt', 'review'] as const).map((kind) => subjects.kept(kind, '*')),
    `${root}.note.*`,
    subjects.cancel,
  ];
}

/** What it may hear. */
export function mayHear(env: string, sidecar: string): string[] {
  const subjects = new Subjects(env);
  return [`_INBOX.${sidecar}.>`, subjects.push, subjects.beacon, subjects.ask(sidecar), subjects.note(sidecar), subjects.cancel];
}

/** Users of a server: the control plane, which may everything, and sidecars, which may only what is theirs. Passwords are `secret-of-<name>`. */
export function usersOf(env: string, sidecars: readonly string[]): string {
  const list = (subjects: readonly string[]): string => `[${subjects.map((subject) => JSON.stringify(subject)).join(', ')}]`;
  const users = sidecars.map(
    (name) =>
      `{user: ${JSON.stringify(name)}, password: ${JSON.stringify(`secret-of-${name}`)}, permissions: {publish: {allow: ${list(mayPublish(env, name))}}, subscribe: {allow: ${list(mayHear(env, name))}}, allow_responses: true}}`,
  );
  return `authorization: {users: [{user: control, password: secret-of-control}, ${users.join(', ')}]}`;
}
