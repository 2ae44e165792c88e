/**
 * One order of the red button, from the first look at what it would hit to the last sidecar that has it. It has a name (`id`) from the
 * moment it is tried, and every press sends the same one: an order whose answer was lost can be pressed again and stays one. Before
 * that is offered, the control plane is asked whether the order stands already. What is drawn of it is not here.
 */
import type { Clock } from '../../base/clock.ts';
import type { Random } from '../../base/random.ts';
import { newOverrideId } from '../../proto/wire/override-id.ts';
import type { Answer, ApiProblem, Client } from './client.ts';
import type { OverrideDraft } from './override-words.ts';
import type { InForce, OverrideOrdered, OverridesAnswer, OverrideShown, OverrideTried } from './shapes.ts';

/** The control plane answers an order after a second at most when all is well; then something is wrong with the way to it. */
export const PRESS_MS = 5_000;
/** Looking at what it would hit writes nothing: it may take as long as any question. */
const TRY_MS = 15_000;
const WATCH_MS = 500;
const WATCHED_FOR_MS = 15_000;
/** A list as new as that, in which the order is missing, was made after it. */
const GONE_AFTER_MS = 5_000;

export interface Order extends OverrideDraft {
  readonly reason: string;
  readonly lasting: string;
}

/** An order with its name. */
export interface NamedOrder extends Order {
  readonly id: string;
}

function bodyOf({ id, action, target, to, cut, reason, lasting }: NamedOrder): Record<string, unknown> {
  return {
    id,
    action,
    target,
    reason,
    for: lasting,
    ...(action === 'reroute' ? { to } : {}),
    ...(action === 'block' && cut ? { cut } : {}),
    ...(target.all === true ? { confirm: true } : {}),
  };
}

/** @param unsure an order that was pressed, and of which it is not known whether it stands: the same again keeps its name */
export function named(order: Order, unsure: NamedOrder | null, random: Random): NamedOrder {
  const again = unsure === null ? null : { ...order, id: unsure.id };
  if (again !== null && JSON.stringify(bodyOf(again)) === JSON.stringify(bodyOf(unsure as NamedOrder))) return again;
  return { ...order, id: newOverrideId(order.action, random) };
}

export function tryOut(client: Client, order: NamedOrder): Promise<Answer<OverrideTried>> {
  return client.order<OverrideTried>('POST', '/v1/overrides', { ...bodyOf(order), dry_run: true }, TRY_MS);
}

export type Pressed =
  | { readonly ordered: OverrideOrdered }
  /** `isUnsure`: it may stand all the same, or come to. */
  | { readonly problem: ApiProblem; readonly isUnsure: boolean };

/** @param isMeant although the name is one that nobody has */
export async function pressed(client: Client, order: NamedOrder, isMeant: boolean): Promise<Pressed> {
  const body = { ...bodyOf(order), ...(isMeant ? { confirm: true } : {}) };
  const answer = await client.order<OverrideOrdered>('POST', '/v1/overrides', body, PRESS_MS);
  if ('ok' in answer) return { ordered: answer.ok };
  const { problem } = answer;
  // Refused is refused; everything else may have been carried out before the answer was lost.
  if (problem.status > 0 && problem.status < 500) return { problem, isUnsure: false };
  const found = await client.get<OverrideShown>(pathOf(order.id), PRESS_MS);
  if ('ok' in found) return { ordered: { ...found.ok, repeated: true, warnings: [] } };
  const words =
    found.problem.status === 404
      ? 'Asked again, the control plane does not have it in force (yet).'
      : 'Whether it is in force could not be found out.';
  return {
    problem: {
      ...problem,
      detail: `${problem.detail}. ${words} Pressing again is safe: it is the same order, ${order.id}, and makes no second one.`,
    },
    isUnsure: true,
  };
}

function pathOf(id: string): string {
  return `/v1/overrides/${encodeURIComponent(id)}`;
}

/** How far an order is in force, as known at a time. */
export interface Known {
  readonly force: InForce;
  /** Wall time. */
  readonly atMs: number;
  /** It stands no longer. */
  readonly isGone: boolean;
}

/**
 * Looks each half second, until it is in force everywhere or for a while, whatever single looks come to: who lacks it then is cut off, and
 * takes it over when it is back.
 */
export function watchForce(
  { client, clock }: { readonly client: Client; readonly clock: Clock },
  id: string,
  told: (known: Known) => void,
): () => void {
  let isOver = false;
  const until = clock.now() + WATCHED_FOR_MS;
  const look = async (): Promise<void> => {
    const answer = await client.get<OverrideShown>(pathOf(id), PRESS_MS);
    if (isOver) return;
    if ('ok' in answer) told({ force: answer.ok, atMs: clock.wallMs(), isGone: false });
    const isDone = 'ok' in answer && answer.ok.in_force >= answer.ok.of;
    if (!isDone && clock.now() < until) clock.after(WATCH_MS, () => isOver || void look());
  };
  void look();
  return () => {
    isOver = true;
  };
}

/** The newest of what the watch and the list below know. */
export function newestOf(
  ordered: OverrideOrdered,
  orderedMs: number,
  watched: Known | null,
  list: { readonly data: OverridesAnswer | null; readonly atMs: number },
): Known {
  const own = watched ?? { force: ordered, atMs: orderedMs, isGone: false };
  if (list.data === null || list.atMs <= own.atMs) return own;
  const found = list.data.overrides.find(({ id }) => id === ordered.id);
  if (found !== undefined) return { force: found, atMs: list.atMs, isGone: false };
  // A list that was asked for before the order, or of a replica that has not heard of it yet, says nothing of it.
  return list.atMs - orderedMs < GONE_AFTER_MS ? own : { force: own.force, atMs: list.atMs, isGone: true };
}
