/**
 * What the registry's client needs of the bus. Said apart from the bus itself, so that a test can play it by script; all
 * that can fail is a value.
 */
import type { Bus } from '../../base/nats.ts';

export type RegistryBus = Pick<Bus, 'connected' | 'onState' | 'publish' | 'subscribe' | 'serve' | 'request' | 'last'>;

export function bytesOf(message: object): Uint8Array {
  return Buffer.from(JSON.stringify(message), 'utf8');
}
