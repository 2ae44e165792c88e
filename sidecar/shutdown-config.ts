/** The sidecar's settings for its own end (`sidecar.shutdown`): how long it takes, and for whose calls it stays until then. */
import { mapped, object, optional, type Shape } from '../proto/language/reader.ts';
import { duration, oneOf } from '../proto/language/shapes.ts';

export interface ShutdownSettings {
  /** From the signal until what is under way is given up. */
  readonly graceMs: number;
  /** An agent that has called nobody for so long has finished. */
  readonly quietMs: number;
  readonly ownCalls: 'finishing' | 'all' | 'none';
}

export const shutdownShape: Shape<ShutdownSettings> = mapped(
  object('map', {
    grace: optional(
      duration(0, 3_600_000),
      'From the signal to stop until what is under way is given up; the process has gone a second later at the latest. As long as the longest usual call. Whatever runs the sidecar has to wait longer before it kills it: systemd TimeoutStopSec, Compose stop_grace_period.',
      10_000,
      '10s',
    ),
    quiet: optional(
      duration(0, 600_000),
      'An agent beside this sidecar that has called nobody for so long has finished its work, and is waited for no more. Longer than an agent takes between two calls of one piece of work; each stop takes at least so long after the last call.',
      1_500,
      '1.5s',
    ),
    own_calls: optional(
      oneOf(['finishing', 'all', 'none']),
      'Which calls of the agents beside it a stopping sidecar takes. `finishing`: those of agents that serve here, those in the trace of a call under way, and the next step of an agent that calls one after the other; what is begun beside calls under way is new and is refused. `all`: every one, until it is quiet. `none`: nothing from the signal on.',
      'finishing' as const,
      'finishing',
    ),
  }),
  (read): ShutdownSettings => ({ graceMs: read.grace, quietMs: read.quiet, ownCalls: read.own_calls }),
);
