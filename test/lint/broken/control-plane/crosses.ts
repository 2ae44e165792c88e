import { choose } from '../sidecar/choose/choose.ts';

export const borrowed = choose;
