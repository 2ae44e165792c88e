/** The page of the codes, from the table in `proto/wire/codes.ts`, which is the only place where they are written. */
import { CODES, type CodeEntry } from '../proto/wire/codes.ts';
import { GRPC_STATUS_NAMES } from '../proto/wire/grpc-status.ts';

interface Family {
  readonly first: number;
  readonly title: string;
  readonly about: string;
}

const FAMILIES: readonly Family[] = [
  { first: 0, title: 'Success', about: 'A degraded success says so with `degraded: true`.' },
  { first: 1000, title: '1xxx: transport', about: 'The way to the provider failed, or its answer could not be used.' },
  { first: 2000, title: '2xxx: routing', about: 'No provider was found that may serve this call now.' },
  { first: 3000, title: '3xxx: protection', about: 'The call was held back to protect the provider, the others, or all.' },
  {
    first: 4000,
    title: '4xxx: caller',
    about: 'The request itself is at fault. Repeating it unchanged fails again, except where marked retryable.',
  },
  { first: 5000, title: '5xxx: time', about: 'The time of the task was over, or the caller left.' },
  { first: 6000, title: '6xxx: provider', about: 'The agent answered, and its answer is an error of its own.' },
  { first: 7000, title: '7xxx: delivery', about: 'What can become of a message. Calls never give these.' },
  { first: 9000, title: '9xxx: Agent-Reach', about: 'A fault of ours.' },
];

const HEAD = `# Codes

<!-- Generated from proto/wire/codes.ts by \`make docs\`. Edit the table there, not this page. -->

Every call ends with one of these codes, whatever the way in. \`code\` and \`name\` stand in the Result, in \`Reach-Code\` in
raw mode, and in the problem document (RFC 9457) of an HTTP error. Codes are stable: one is never reused for another meaning.

* **HTTP**, **JSON-RPC**, **gRPC**: what the caller sees on each way in. JSON-RPC carries our own code in \`error.data.code\`.
* **Retryable**: the same request may succeed later or elsewhere. Never so, whatever this table says, where work that
  runs at most \`once\` may have been done.
`;

const COLUMNS = '| code | name | HTTP | JSON-RPC | gRPC | retryable | meaning | what to do |\n|---|---|---|---|---|---|---|---|\n';

export function errorsPage(): string {
  let page = HEAD;
  FAMILIES.forEach((family, index) => {
    const end = FAMILIES[index + 1]?.first ?? Number.POSITIVE_INFINITY;
    const rows = CODES.filter((entry) => entry.code >= family.first && entry.code < end);
    page += `\n## ${family.title}\n\n${family.about}\n\n${COLUMNS}${rows.map(line).join('')}`;
  });
  return page;
}

function line(entry: CodeEntry): string {
  const cells = [
    String(entry.code),
    `\`${entry.name}\``,
    String(entry.http),
    String(entry.jsonRpc),
    `${entry.grpc} ${GRPC_STATUS_NAMES[entry.grpc] ?? ''}`.trim(),
    entry.retryable ? 'yes' : 'no',
    entry.meaning,
    entry.advice,
  ];
  return `| ${cells.map(escapeCell).join(' | ')} |\n`;
}

function escapeCell(text: string): string {
  return text.replaceAll('|', '\\|');
}
