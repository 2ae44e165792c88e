import { two } from './two.ts';

export function one(): number {
  return two();
}
