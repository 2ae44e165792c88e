"""What a call inherits from the work that it is part of: the time left, the budgets and the step, the conversation, the
trace and the path. Carried by the context (`contextvars`), so that nobody has to hand it from function to function. What
the figures mean is the sidecar's affair; here they are passed on."""

from __future__ import annotations

import math
import secrets
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterator, Mapping


@dataclass(frozen=True)
class Scope:
    ends_at: float = math.inf
    """`time.monotonic()` when the time is over; inf = nobody has said."""
    total_ms: int = 0
    """The total of the task; 0 = nobody has said."""
    budget: str = ""
    """As the headers have it; empty = none. So for the rest."""
    step: str = ""
    sequence_id: str = ""
    path: str = ""
    traceparent: str = ""
    tracestate: str = ""

    @property
    def left(self) -> float:
        """Seconds."""
        return max(0.0, self.ends_at - time.monotonic())


_NO_SCOPE = Scope()
_carried: ContextVar[Scope] = ContextVar("agent_reach_scope", default=_NO_SCOPE)


def scope_now() -> Scope:
    return _carried.get()


@contextmanager
def within(scope: Scope) -> Iterator[None]:
    token = _carried.set(scope)
    try:
        yield
    finally:
        try:
            _carried.reset(token)
        except ValueError:
            # A generator that was left in the middle is closed by somebody else, in a context that never had this scope.
            pass


def changed(**change: Any) -> Scope:
    """The present scope with some of it changed. What begins here is one trace from here on."""
    present = scope_now()
    traceparent = present.traceparent or f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"
    return replace(present, traceparent=traceparent, **change)


def limited(seconds: float) -> Scope:
    """A limit never gives more time than there was."""
    present = scope_now()
    ends_at = min(present.ends_at, time.monotonic() + seconds)
    return changed(ends_at=ends_at, total_ms=present.total_ms or max(0, math.floor(seconds * 1000)))


def scope_from(headers: Mapping[str, str]) -> Scope:
    """The scope of a handler, from the headers that came with the request."""
    left_ms = headers.get("reach-deadline-ms")
    return Scope(
        ends_at=math.inf if left_ms is None else time.monotonic() + int(left_ms) / 1000,
        total_ms=int(headers.get("reach-deadline-total-ms", 0)),
        budget=headers.get("reach-budget", ""),
        sequence_id=headers.get("reach-sequence-id", ""),
        path=headers.get("reach-path", ""),
        traceparent=headers.get("traceparent", ""),
        tracestate=headers.get("tracestate", ""),
    )


def scope_headers(scope: Scope) -> Dict[str, str]:
    """What is carried, as headers."""
    headers = {
        "reach-deadline-total-ms": str(scope.total_ms) if scope.total_ms > 0 else "",
        "reach-budget": scope.budget,
        "reach-step": scope.step,
        "reach-sequence-id": scope.sequence_id,
        "reach-path": scope.path,
        "traceparent": scope.traceparent,
        "tracestate": scope.tracestate,
    }
    return {name: value for name, value in headers.items() if value}


def budget_text(budget: Mapping[str, float]) -> str:
    """`{"intent": 1.5, "order": 2.5}` (seconds) as the header has it. Order counts."""
    return ", ".join(f"{step}={round(seconds * 1000)}" for step, seconds in budget.items())
