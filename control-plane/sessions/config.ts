/** Settings of the console: whether this control plane serves one, and how long a person who has signed in stays so. */
import { mapped, object, optional, type Shape } from '../../proto/language/reader.ts';
import { defaultsOf } from '../../proto/language/process-shapes.ts';
import { duration, flag } from '../../proto/language/shapes.ts';

export interface ConsoleConfig {
  readonly isServed: boolean;
  readonly sessionMs: number;
}

const HOUR_MS = 3_600_000;

export const consoleShape: Shape<ConsoleConfig> = mapped(
  object('map', {
    enabled: optional(flag, 'Serve the console (`/console/`). Without it, nobody can sign in either; the API goes on.', true, 'true'),
    session: optional(
      duration(60_000, 7 * 24 * HOUR_MS),
      'How long a person who has signed in stays so, whether active or not. Afterwards the token is asked for again.',
      12 * HOUR_MS,
      '12h',
    ),
  }),
  (read): ConsoleConfig => ({ isServed: read.enabled, sessionMs: read.session }),
);

export const DEFAULT_CONSOLE: ConsoleConfig = defaultsOf(consoleShape);
