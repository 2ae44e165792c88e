import { choose } from '../choose/choose.ts';

export const call = choose;
