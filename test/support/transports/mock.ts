/** Scripted providers: no peer at all, but the same codes and words as the real ones. */
import { BROKEN, type Behaviour, LARGE, REFUSED, VALUE } from './behaviour.ts';
import type { TransportFixture } from './fixture.ts';

const SCRIPT = 'a script has no peer that could see it';
const SCRIPTED_STREAM = 'a scripted body is one JSON value, cut into pieces';

const OPTIONS: Readonly<Partial<Record<Behaviour | 'gone', Readonly<Record<string, unknown>>>>> = {
  echo: { latency: '5ms', body: '$payload' },
  value: { body: VALUE },
  nothing: { body: null },
  empty: { status: 204 },
  refuses: { status: 422, body: REFUSED },
  breaks: { status: 500, body: BROKEN },
  sure: { body: [], headers: { 'reach-definitely-success': 'true' } },
  slow: { latency: '3s' },
  hangs: { hang: true },
  dies: { reset: true },
  halves: { reset: 'mid_body' },
  large: { body: JSON.parse(LARGE) as unknown },
  malformed: { status: 302 },
  gone: { refuse_connect: true },
};

export const mockFixture: TransportFixture = {
  type: 'mock',
  errorStatus: { theirs: 422, ours: 500 },
  cannot: {
    exact: 'a scripted body is parsed and written anew',
    timeout_told: SCRIPT,
    cancel_told: SCRIPT,
    hears_deadline: SCRIPT,
    hears_trace: SCRIPT,
    hears_path: SCRIPT,
    hears_key: SCRIPT,
    hears_headers: SCRIPT,
    stream: SCRIPTED_STREAM,
    stream_steps: SCRIPTED_STREAM,
    stream_empty: SCRIPTED_STREAM,
    stream_pace: SCRIPTED_STREAM,
    stream_cut: SCRIPTED_STREAM,
    stream_deadline: SCRIPTED_STREAM,
    stream_cancel: SCRIPT,
  },
  start: () =>
    Promise.resolve({
      provider: (behaviour) => [
        `endpoint: {type: mock, ${Object.entries(OPTIONS[behaviour] ?? {})
          .map(([key, value]) => `${key}: ${JSON.stringify(value)}`)
          .join(', ')}}`,
      ],
      open: () => 0,
      close: () => Promise.resolve(),
    }),
};
