/** Whether an outcome is one of the sandbox: a call that was made there, or one that a mock served. It is marked so wherever it is told. */
import type { Candidate } from '../table/snapshot.ts';
import type { Call } from './call.ts';

export function isSandbox(call: Call): boolean {
  if (call.way === 'sandbox') return true;
  const last = call.attempts[call.attempts.length - 1];
  return last !== undefined && isMock(last.candidate);
}

export function isMock({ provider }: Candidate): boolean {
  return provider.record.endpoint.type === 'mock';
}
