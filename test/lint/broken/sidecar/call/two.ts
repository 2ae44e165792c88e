import { one } from './one.ts';

export function two(): number {
  return one();
}
