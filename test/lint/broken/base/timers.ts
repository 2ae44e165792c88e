import { setTimeout as sleep } from 'node:timers/promises';

export async function nap(): Promise<void> {
  await sleep(1);
}
