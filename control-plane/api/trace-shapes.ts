/** What the API answers about traces, in the words of its JSON; `_ms` as in `shapes.ts`. */
import type { ToldSpan } from '../traces/read-batch.ts';
import type { Timeline } from '../traces/timeline.ts';

export interface TraceLineView {
  readonly trace_id: string;
  readonly start_ms: number;
  readonly elapsed_ms: number;
  /** Of the hop that it begins with. */
  readonly capability: string;
  readonly caller: string;
  readonly code: number;
  readonly spans: number;
  /** Some hop in it failed, whatever the first one got. */
  readonly failed: boolean;
}

export interface TracesAnswer {
  /** Newest first. */
  readonly traces: readonly TraceLineView[];
  /** That fit, beyond `limit`. */
  readonly more: number;
}

export type TraceAnswer = Timeline;

/** An ended hop, as `/v1/tail` tells it: the span without its decision. */
export type TailLine = Omit<ToldSpan, 'decision'>;
