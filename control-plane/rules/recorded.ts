/**
 * Messages of a recording, as rules see them. A recording is a file of JSON objects, one a line: what `reachctl rules record`
 * writes, envelopes as they lie in a stream, or messages as they are sent. Of each one only what rules ask for is looked at.
 */
import { describe, quote } from '../../base/duration.ts';
import { isAgentId, parseTarget } from '../../proto/language/names.ts';
import type { RuleSubject } from '../../proto/language/rule.ts';

type Loose = Readonly<Record<string, unknown>>;
const isMap = (value: unknown): value is Loose => typeof value === 'object' && value !== null && !Array.isArray(value);

export const MAX_RECORDED = 100_000;
const TASK_REQUEST = 'task_request';

/** All of them, or the first line that is none, in words. */
export function readRecording(text: string): readonly RuleSubject[] | string {
  const subjects: RuleSubject[] = [];
  for (const [i, line] of text.split('\n').entries()) {
    if (line.trim() === '') continue;
    if (subjects.length >= MAX_RECORDED) return `it holds more than ${MAX_RECORDED} messages`;
    let value: unknown;
    try {
      value = JSON.parse(line) as unknown;
    } catch {
      return `line ${i + 1} is not JSON`;
    }
    const subject = readRecorded(value);
    if (typeof subject === 'string') return `line ${i + 1}: ${subject}`;
    subjects.push(subject);
  }
  return subjects;
}

/** One message; a sentence when it cannot be read. */
export function readRecorded(value: unknown): RuleSubject | string {
  if (!isMap(value)) return `a message is an object, not ${describe(value)}`;
  const target = isMap(value['target']) ? value['target'] : typeof value['target'] === 'string' ? { capability: value['target'] } : {};
  const agent = textOf(value['target_agent'] ?? target['agent']);
  if (agent !== null && !isAgentId(agent)) return `${quote(agent)} is not an agent id`;
  const role = textOf(value['target_role'] ?? target['role']) ?? (agent === null ? null : (agent.split('.')[1] as string));
  const capability = capabilityOf(value, target);
  if (capability !== null && typeof capability !== 'string') return capability.problem;
  if (role === null && capability === null) return 'it names nobody: it needs a capability, a target_role or a target_agent';
  const source = textOf(value['source']);
  const tags = value['tags'] ?? value['custom_tags'] ?? {};
  if (!isMap(tags) || !Object.values(tags).every((each) => typeof each === 'string')) return 'tags must be an object of texts';
  return {
    messageType: textOf(value['message_type']) ?? TASK_REQUEST,
    sourceRole: textOf(value['source_role']) ?? (source === null ? '' : (source.split('.')[1] ?? '')),
    targetRole: role,
    capability,
    tags: tags as Readonly<Record<string, string>>,
  };
}

/** An envelope names the capability that serves a message to a role too: what the sender addressed counts. */
function capabilityOf(value: Loose, target: Loose): string | null | { readonly problem: string } {
  const text = textOf(isMap(value['target']) ? target['capability'] : (target['capability'] ?? value['capability']));
  if (text === null) return null;
  const parsed = parseTarget(text);
  return 'problem' in parsed ? parsed : parsed.name;
}

function textOf(value: unknown): string | null {
  return typeof value === 'string' && value !== '' ? value : null;
}
