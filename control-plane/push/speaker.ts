/**
 * Who a request to the leader comes from. Its subject says so where NATS permissions are generated, and only there can nobody
 * say another's name; so what the request says of itself must be the same, and its answer must go to that sidecar's own inbox. A
 * request without a name in its subject is of the version before: whoever may publish it is trusted, and generated permissions
 * let nobody.
 */
import type { BusMessage } from '../../base/bus-message.ts';
import type { Subjects } from '../../proto/wire/subjects.ts';

/** Null when it may be taken as said by that sidecar, else a sentence. */
export function speakerProblem(subjects: Subjects, { subject, reply }: BusMessage, sidecar: string): string | null {
  const speaker = subjects.speakerOf(subject);
  if (speaker === null) return null;
  if (speaker !== sidecar) return `${speaker} cannot speak for ${sidecar}: the name in the subject and the one in the message differ`;
  return reply.startsWith(`_INBOX.${sidecar}.`) ? null : `the answer would not go to an inbox of ${sidecar}`;
}
