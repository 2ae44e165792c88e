/**
 * The part of a nats-server's configuration that says who its users are and what each may: an `authorization` block to be
 * included at the top, or the bare list of users to be included within an account of one's own. The same users always give
 * the same text, so that a change shows in a comparison.
 */
import { permissionsOf } from '../../proto/wire/permissions.ts';
import type { NatsUser, NatsUsers } from './users.ts';

/** `authorization`: the whole block; `users`: to be included between the braces of an account or of `authorization`. */
export type Form = 'authorization' | 'users';

export const FORMS: readonly Form[] = ['authorization', 'users'];

const HEAD = [
  '# Made by `reachctl nats`: changes by hand are lost the next time. It has no secrets: keys are public halves.',
  '# In the configuration of nats-server: include "./nats-users.conf"  Into force: nats-server --signal reload',
];

export function serverConfig(book: NatsUsers, form: Form): string {
  const pad = form === 'authorization' ? '    ' : '  ';
  const users = book.users.flatMap((user) => user.keys.map((key) => entry(book.env, user, key, pad)));
  const list = form === 'authorization' ? ['authorization {', '  users: [', ...users, '  ]', '}'] : ['users: [', ...users, ']'];
  return `${[...HEAD, ...list].join('\n')}\n`;
}

function entry(env: string, { name, kind, scope }: NatsUser, key: string, pad: string): string {
  const { publish, hear } = permissionsOf(env, kind, name, scope);
  return [
    `${pad}{`,
    `${pad}  # ${kind} ${name}`,
    `${pad}  nkey: ${key}`,
    `${pad}  permissions: {`,
    ...block('publish', publish, `${pad}    `),
    ...block('subscribe', hear, `${pad}    `),
    `${pad}  }`,
    `${pad}}`,
  ].join('\n');
}

/** Subjects are made of validated names, so that no quoting can end early. */
function block(what: string, subjects: readonly string[], pad: string): string[] {
  return [`${pad}${what}: {allow: [`, ...subjects.map((subject) => `${pad}  ${JSON.stringify(subject)}`), `${pad}]}`];
}
