/** The edges of a call's life that `pipeline.ts` would otherwise have to spell out twice: its start, its pauses, its end. */
import { Code } from '../proto/wire/codes.ts';
import { TO_PROVIDER } from '../proto/wire/overrides.ts';
import { type Call, record } from './call/call.ts';
import type { Principal } from './call/principal.ts';
import { refusing, Verdict } from './call/verdict.ts';
import type { Decider } from './engine.ts';
import { targetOf } from './name/name.ts';

const cancelled = refusing('attempt', 'cancelled', Code.cancelled, 'the caller went away');
const cutOff = refusing('overrides', 'cut', Code.blocked_by_operator, '{a}');
const nowhere = refusing(
  'overrides',
  'reroute_target',
  Code.blocked_by_operator,
  'override {a} sends it to {b}, which is not in the table',
);
const fault = refusing('attempt', 'internal', Code.internal, 'a fault in Agent-Reach: {a}');

export function begin(engine: Decider, call: Call): void {
  call.table = engine.table.current();
  engine.observer.callStarted(call);
  engine.retryBudget.noteCall(call.startedAt);
}

/** An agent that has just shown itself for the first time: what it may call is on its way here. */
export async function arrived(engine: Decider, call: Call): Promise<void> {
  const arriving = engine.identities.arriving?.get((call.principal as Principal).agent);
  if (arriving === undefined) return;
  await arriving;
  call.table = engine.table.current();
}

/** Accounts for the call once: now, or when its streamed body has ended. */
export function settle(engine: Decider, call: Call): void {
  if (call.cancelled && call.code === Code.ok && !call.bodyOpen && call.reply === null && call.staticBody === null)
    record(call, goneVerdict(call));
  if (call.bodyOpen) {
    call.onBodyEnd = () => close(engine, call);
    return;
  }
  close(engine, call);
}

function close(engine: Decider, call: Call): void {
  if (call.settled) return;
  call.settled = true;
  call.onCancel = null;
  call.callerSlot?.release();
  call.callerSlot = null;
  if (call.quotaHeld) {
    call.quotaHeld = false;
    call.quota?.release();
  }
  engine.underway.leave(call);
  engine.chooser.ended(call);
  if (call.powerId !== null) engine.ledger.settle(call);
  engine.observer.callEnded(call);
}

/** Waits `call.pauseMs` before the next attempt; false when the caller left meanwhile. */
export async function pause(engine: Decider, call: Call): Promise<boolean> {
  const ms = call.pauseMs;
  call.pauseMs = 0;
  if (ms > 0 && !call.cancelled) {
    await new Promise<void>((done) => {
      const timer = engine.clock.after(ms, done);
      call.onCancel = () => {
        timer.cancel();
        done();
      };
    });
    call.onCancel = null;
  }
  return !call.cancelled || record(call, goneVerdict(call));
}

function goneVerdict(call: Call): Verdict {
  return call.cutBy === null ? new Verdict(cancelled) : new Verdict(cutOff, call.cutBy);
}

/** Applies the override that `overrides` found; false when its target does not exist. */
export function reroute(call: Call): boolean {
  const rule = call.reroutedBy;
  if (rule === null || call.table === null) return true;
  const to = rule.to ?? '';
  call.pin = null;
  if (to.startsWith(TO_PROVIDER)) {
    call.pin = to.slice(TO_PROVIDER.length);
    return true;
  }
  if (to.startsWith('@')) {
    call.range = to.slice(1);
    return true;
  }
  const target = targetOf(call.table, to);
  if (target === null) return record(call, new Verdict(nowhere, rule.name, rule.to));
  call.capability = target.capability;
  call.range = target.range;
  return true;
}

/** A throw means a bug: the caller learns that it is ours, the log gets the stack, the process goes on. */
export function bug(engine: Decider, call: Call, error: unknown): void {
  engine.observer.bug(call, error);
  record(call, new Verdict(fault, error instanceof Error ? error.name : 'unknown'));
}
