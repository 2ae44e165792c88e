/** Every replica hears the digests of all sidecars; one that says another's name is not believed. */
import type { Bus } from '../../base/nats.ts';
import type { Subjects } from '../../proto/wire/subjects.ts';
import { parse } from '../push/json.ts';
import { readDigest } from './reading.ts';
import type { Traffic } from './traffic.ts';

export function hearDigests(inbound: Pick<Bus, 'subscribe'>, subjects: Subjects, traffic: Traffic): void {
  inbound.subscribe(subjects.digest('*'), (message) => {
    const digest = readDigest(parse(message.data));
    if (digest === null || message.subject !== subjects.digest(digest.sidecar)) traffic.refuse();
    else traffic.take(digest);
  });
}
