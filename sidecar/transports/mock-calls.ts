/**
 * Agents that call on: what one asks of others before it answers. The mock knows only when; who makes the calls, through the whole
 * pipeline, is passed in (the lab has one).
 */
import type { Exchange } from './transport.ts';

/** The calls that an agent makes for one call to it. */
export interface SubCalls {
  readonly steps: readonly SubCall[];
  /** All at once; else one after the other. */
  readonly isParallel: boolean;
  /** Time left, budget, path and trace are handed on, and a caller that leaves ends them; false = an agent that knows of none of it. */
  readonly passesOn: boolean;
}

export interface SubCall {
  /** A capability with or without a range. */
  readonly asked: string;
  /** `Reach-Step`; '' = none. */
  readonly step: string;
  /** With the words of `mock-template.ts`. */
  readonly payload: unknown;
  readonly headers: Readonly<Record<string, string>>;
  /** The agent's own limit, instead of what was handed to it; null = none. */
  readonly deadlineMs: number | null;
  /** Tries of the agent itself, beyond what its sidecar does; 1 = it asks once. */
  readonly tries: number;
  /** What becomes of the answer when this fails: the agent fails too, or goes on without. */
  readonly onError: 'fail' | 'go_on';
}

/** What a call that an agent made of others came to. */
export interface SubAnswer {
  readonly code: number;
  readonly data: unknown;
}

/** Makes the calls of one agent for the exchange that it serves since `receivedAt`. Its `stop` ends what is under way. */
export type CallOn = (exchange: Exchange, calls: SubCalls, receivedAt: number) => { readonly done: Promise<SubEnding>; stop(): void };

export interface SubEnding {
  readonly answers: readonly SubAnswer[];
  /** Why the agent fails with them; null = it goes on. */
  readonly failed: string | null;
}
