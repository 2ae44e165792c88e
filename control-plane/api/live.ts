/**
 * That something has changed, and nothing of what: a page asks again for what it shows of it. At most one event a second, whatever
 * happens; so a thousand changes in a second cost each page one look. The ear is shared by all who listen, and open only as long as
 * somebody does.
 */
import type { Timer } from '../../base/clock.ts';
import { Tail } from '../../proto/wire/subjects.ts';
import type { Plane } from './plane.ts';
import type { Route, Streaming } from './route.ts';

export const TOPICS = [
  'traffic',
  'registry',
  'fleet',
  'overrides',
  'policies',
  'quotas',
  'shifts',
  'tasks',
  'alerts',
  'traces',
  'audit',
] as const;
export type Topic = (typeof TOPICS)[number];

export interface ChangedEvent {
  readonly topics: readonly Topic[];
}

const EVERY_MS = 1_000;
/** So often each page is told something, for it cannot tell a connection whose other end is gone from one on which nothing is said. */
const PING_MS = 15_000;
const PING_TICKS = PING_MS / EVERY_MS;
/** Of what nothing is told when it changes, but which is looked at: sums of it are compared. */
const LOOK_EVERY = 2;

type Out = Parameters<Streaming['start']>[0];

export function liveRoutes(plane: Plane): readonly Route[] {
  const live = new Live(plane);
  return [
    {
      method: 'GET',
      path: '/v1/live',
      role: 'viewer',
      onLeader: false,
      summary: 'What has changed, as server-sent events named `changed`, one a second at most: `topics` says what to ask for again.',
      answer: {
        status: 200,
        doc: `Goes on until the asker leaves. Topics: ${TOPICS.join(', ')}. Begins with \`hello\`; each ${PING_MS / 1_000} s says \`ping\`: who hears nothing for longer has lost the connection.`,
        contentType: 'text/event-stream',
      },
      handle: () => ({ start: (out) => live.join(out) }),
    },
  ];
}

/** The topic of what is stored under a tail; null = nothing that a page shows. */
export function topicOf(tail: string): Topic | null {
  switch (tail) {
    case Tail.alerts:
      return 'alerts';
    case Tail.storedQuotas:
    case Tail.quotas:
      return 'quotas';
    case Tail.storedShifts:
    case Tail.shifts:
      return 'shifts';
    case Tail.policies:
    case Tail.rules:
    case Tail.canary:
      return 'policies';
    case Tail.notices:
      return 'tasks';
    default:
      if (tail.startsWith('pool.')) return 'tasks';
      return tail.startsWith('scope.') || tail.startsWith('work.') ? null : 'registry';
  }
}

class Live {
  readonly #plane: Plane;
  readonly #outs = new Set<Out>();
  readonly #changed = new Set<Topic>();
  #leave: (() => void)[] = [];
  #timer: Timer | null = null;
  #ticks = 0;
  /** As last looked at. */
  #fleet = '';
  #overrides = '';
  #tasks = '';
  #traces = 0;
  #audit = 0;

  constructor(plane: Plane) {
    this.#plane = plane;
  }

  join(out: Out): () => void {
    this.#outs.add(out);
    out.event('hello', { replica: this.#plane.name });
    if (this.#outs.size === 1) this.#open();
    return () => {
      this.#outs.delete(out);
      if (this.#outs.size === 0) this.#close();
    };
  }

  #open(): void {
    const { mirror, traffic, clock } = this.#plane;
    this.#look();
    this.#changed.clear();
    this.#leave = [
      mirror.listen((tail) => {
        const topic = topicOf(tail);
        if (topic !== null) this.#changed.add(topic);
      }),
      traffic.onTaken(() => this.#changed.add('traffic')),
      this.#plane.watch(() => this.#changed.add('registry')),
    ];
    const tick = (): void => {
      this.#timer = clock.after(EVERY_MS, tick);
      if (this.#ticks++ % LOOK_EVERY === 0) this.#look();
      this.#lookAtOverrides();
      this.#tell();
      if (this.#ticks % PING_TICKS === 0) for (const out of this.#outs) out.event('ping', {});
    };
    this.#timer = clock.after(EVERY_MS, tick);
  }

  #close(): void {
    for (const leave of this.#leave) leave();
    this.#leave = [];
    this.#timer?.cancel();
    this.#timer = null;
  }

  #tell(): void {
    if (this.#changed.size === 0) return;
    const event: ChangedEvent = { topics: TOPICS.filter((topic) => this.#changed.has(topic)) };
    this.#changed.clear();
    for (const out of this.#outs) out.event('changed', event);
  }

  /** Also who has it in force: the red button is watched by the second. */
  #lookAtOverrides(): void {
    const { overrides } = this.#plane;
    const { in_force: on, of } = overrides.count(overrides.seq);
    const now = `${overrides.epoch} ${overrides.seq} ${overrides.overrides.length} ${on} ${of}`;
    if (now !== this.#overrides) this.#changed.add('overrides');
    this.#overrides = now;
  }

  #look(): void {
    const { fleet, clock, leading, traces, audit } = this.#plane;
    const rows = fleet
      .rows(clock.now())
      .map(({ sidecar, standing, refused, policies }) => `${sidecar} ${standing} ${refused.length} ${policies?.version ?? 0}`);
    const standing = rows.join(',');
    if (standing !== this.#fleet) this.#changed.add('fleet');
    this.#fleet = standing;
    const figures = leading?.messages.figures;
    const tasks = figures === undefined ? '' : JSON.stringify([figures.waiting, figures.inHand, figures.kept, figures.parkedPools]);
    // A follower is told of none of it: it says so each time, and the page asks.
    if (figures === undefined || tasks !== this.#tasks) this.#changed.add('tasks');
    this.#tasks = tasks;
    const told = traces.figures.batches;
    if (told !== this.#traces) this.#changed.add('traces');
    this.#traces = told;
    const { done, refused } = audit.counts;
    if (done + refused !== this.#audit) this.#changed.add('audit');
    this.#audit = done + refused;
  }
}
