/** What may be written for a NATS endpoint, and what its parts mean together. Pure. */
import { quote } from '../../base/duration.ts';
import { subjectProblem } from '../../base/subject.ts';
import { natsUrl } from '../../proto/language/process-shapes.ts';
import { optional, type ReadFields, required } from '../../proto/language/reader.ts';
import { flag, oneOf, text } from '../../proto/language/shapes.ts';
import type { Endpoint } from '../../proto/language/types.ts';
import { isProblems, readOptions } from './options.ts';

const CAPABILITY = '{capability}';
const SERVICE_NAME = /^[A-Za-z0-9_-]{1,128}$/;

export const natsFields = {
  subject: optional(
    text('a subject', subjectTemplateProblem),
    'Where requests are sent; `{capability}` is filled, so that one provider can take several.',
    null,
    CAPABILITY,
  ),
  mode: optional(
    oneOf(['request', 'publish', 'service']),
    '`request` waits for an answer; `publish` hands the payload to NATS and waits for nobody; `service` finds the subject by the micro convention.',
    null,
    'request, or service where a service is named',
  ),
  service: optional(text('the name of a service', nameProblem), 'The name under which the service answers $SRV.INFO.', null),
  endpoint: optional(
    text('the name of an endpoint', (name) => (name.length > 128 ? 'the name of an endpoint has at most 128 characters' : null)),
    'Which endpoint of the service. Absent: the one whose subject or name fits the capability, or its only one.',
    null,
  ),
  stream: optional(
    flag,
    'The answer comes in several messages, and an empty one is its end. Each message is one line (application/x-ndjson).',
    false,
    'false',
  ),
  login: optional(
    oneOf(['token', 'password', 'creds', 'nkey']),
    'What the secret under `credential` is: a token, the password of `user`, the text of a .creds file, the seed of an nkey.',
    null,
    'password where a user is named, else token',
  ),
  user: optional(
    text('a user name', (name) => (name.length > 256 ? 'a user name has at most 256 characters' : null)),
    'The user whose password the secret is.',
    null,
  ),
};

const addressField = { address: required(natsUrl, 'the address of NATS, such as nats://127.0.0.1:4222') };

export type NatsLogin = 'token' | 'password' | 'creds' | 'nkey';

export interface NatsOptions {
  readonly servers: readonly string[];
  readonly mode: 'request' | 'publish' | 'service';
  /** With `{capability}` perhaps. */
  readonly subject: string;
  /** '' unless the mode is `service`. */
  readonly service: string;
  readonly endpoint: string | null;
  readonly isStream: boolean;
  readonly login: NatsLogin;
  readonly user: string;
}

/** The options in force, or every problem. */
export function readNats(endpoint: Endpoint): NatsOptions | readonly string[] {
  const address = readOptions(addressField, endpoint.address === '' ? {} : { address: endpoint.address });
  const read = readOptions(natsFields, endpoint.options);
  if (isProblems(read)) return [...(isProblems(address) ? address : []), ...read];
  const mode = read.mode ?? (read.service === null ? 'request' : 'service');
  const problems = [...(isProblems(address) ? address : []), ...togetherProblems(read, mode), ...credentialProblems(endpoint, read)];
  if (problems.length > 0 || isProblems(address)) return problems;
  return {
    servers: address.address.split(',').map((each) => each.trim()),
    mode,
    subject: read.subject ?? CAPABILITY,
    service: read.service ?? '',
    endpoint: read.endpoint,
    isStream: read.stream,
    login: read.login ?? (read.user === null ? 'token' : 'password'),
    user: read.user ?? '',
  };
}

export function subjectOf(template: string, capability: string): string {
  return template.replaceAll(CAPABILITY, capability);
}

function togetherProblems(read: ReadFields<typeof natsFields>, mode: NatsOptions['mode']): string[] {
  const problems: string[] = [];
  if (mode === 'service' && read.service === null) problems.push('service is missing: the name under which the service answers $SRV.INFO');
  if (mode !== 'service' && read.service !== null)
    problems.push(`/service: it has a meaning for the mode service only, and mode is ${mode}`);
  if (mode !== 'service' && read.endpoint !== null)
    problems.push(`/endpoint: it has a meaning for the mode service only, and mode is ${mode}`);
  if (mode === 'service' && read.subject !== null) problems.push('/subject: a service says itself which subject it has: leave it out');
  if (mode === 'publish' && read.stream) problems.push('/stream: to what is published nobody answers');
  return problems;
}

function credentialProblems({ credential }: Endpoint, { login, user }: ReadFields<typeof natsFields>): string[] {
  const problems: string[] = [];
  if (credential !== null && (credential.header !== 'authorization' || credential.prefix !== ''))
    problems.push('/credential: header and prefix have no meaning for NATS: give the secret alone');
  if (credential === null && (login !== null || user !== null))
    problems.push(`/${login === null ? 'user' : 'login'}: credential is missing, which names the secret that belongs to it`);
  if (user !== null && login !== null && login !== 'password') problems.push(`/user: a user goes with a password, and login is ${login}`);
  if (user === null && login === 'password') problems.push('/login: user is missing, whose password the secret is');
  return problems;
}

function subjectTemplateProblem(template: string): string | null {
  const subject = subjectOf(template, 'crm.order.query');
  if (/[{}]/.test(subject)) return `${quote(template)}: only {capability} can be filled`;
  const problem = subjectProblem(subject);
  return problem === null ? null : `${quote(template)} cannot be a subject: it ${problem}`;
}

function nameProblem(name: string): string | null {
  return SERVICE_NAME.test(name) ? null : `${quote(name)} is not the name of a service: letters, digits, _ and -`;
}
