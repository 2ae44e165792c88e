import { choose } from '../choose/choose.ts';

export function acl(): number {
  return choose();
}
