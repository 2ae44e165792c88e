import { now } from './clock';

export const at: number = now();
