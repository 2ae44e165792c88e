import type { Grant } from '../proto/grant.ts';

export type Climbs = Grant;
