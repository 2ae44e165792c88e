/**
 * The end of the present turn of the event loop: when everything that has come in together has been worked on. What is
 * written to sockets then leaves together. Written one by one in between, each write wakes a peer that is asleep (the dearest
 * part of a write between processes of one machine) and finds the way through the kernel cold; together, they share both.
 * With one call at a time the turn ends right after it: nobody waits for anything but work that has been there before.
 */

/** Somebody with something to do at the end of a turn. */
export interface PutOff {
  /** Must not throw: others come after it. */
  turnEnds(): void;
}

let waiting: PutOff[] = [];
let ending: Promise<void> | null = null;
let settle: () => void = () => {};
let isArmed = false;

/** Once; who asks again within the turn is told again. */
export function atEndOfTurn(one: PutOff): void {
  waiting.push(one);
  if (!isArmed) arm();
}

/** Something leaves at the end of this turn already: going with it costs nothing more. */
export function hasEndOfTurn(): boolean {
  return isArmed;
}

/** One promise for all who ask within a turn: they go on one right after the other, behind those of `atEndOfTurn`. */
export function endOfTurn(): Promise<void> {
  if (ending !== null) return ending;
  ending = new Promise((done) => {
    settle = done;
  });
  if (!isArmed) arm();
  return ending;
}

function arm(): void {
  isArmed = true;
  setImmediate(end);
}

function end(): void {
  const all = waiting;
  if (all.length > 0) waiting = [];
  ending = null;
  isArmed = false;
  settle();
  for (let i = 0; i < all.length; i++) (all[i] as PutOff).turnEnds();
}
