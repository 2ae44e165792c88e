/** The registry's answer to a word of this sidecar, judged before it is believed. */
import { isCode } from '../../proto/wire/codes.ts';
import { type Answer, REGISTRY_WIRE, type Refusal } from '../../proto/wire/registry.ts';
import { readsWire, wireProblem } from '../../proto/wire/version.ts';

/** Or why it cannot be used. */
export function readAnswer(data: Uint8Array): Answer | string {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('utf8'));
  } catch {
    return 'it is not JSON';
  }
  if (typeof value !== 'object' || value === null) return 'it is not a JSON object';
  const answer = value as Partial<Answer>;
  if (!readsWire(answer.wire, REGISTRY_WIRE)) return wireProblem(answer.wire, REGISTRY_WIRE, "the registry's wire");
  if (typeof answer.ok !== 'boolean' || typeof answer.epoch !== 'string' || !Array.isArray(answer.refused))
    return 'ok, epoch or refused is missing';
  if (typeof answer.seq !== 'number' || !Number.isSafeInteger(answer.seq) || answer.seq < 0) return 'it names no sequence';
  if (!answer.refused.every(isRefusal)) return 'a refusal in it cannot be read';
  if (answer.warned !== undefined && !(Array.isArray(answer.warned) && answer.warned.every(isRefusal)))
    return 'a warning in it cannot be read';
  if (answer.again !== undefined && answer.again !== 'hello' && answer.again !== 'later') return 'when to ask again cannot be read';
  if (answer.states !== undefined && !areStates(answer.states)) return 'a sequence in it cannot be read';
  return answer as Answer;
}

function isRefusal(value: unknown): value is Refusal {
  if (typeof value !== 'object' || value === null) return false;
  const { agent, code, problems } = value as Partial<Refusal>;
  return (
    typeof agent === 'string' &&
    typeof code === 'number' &&
    isCode(code) &&
    Array.isArray(problems) &&
    problems.every((each) => typeof each === 'string')
  );
}

function areStates(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return Object.values(value).every((seq) => typeof seq === 'number' && Number.isSafeInteger(seq) && seq >= 0);
}
