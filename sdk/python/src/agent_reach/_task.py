"""A task that was sent: where it is durable, what becomes of it, its result, and calling it off."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, Optional
from urllib.parse import quote

from ._ask import Ask
from ._codes import Code, name_of
from ._errors import ReachError
from ._http import Http
from ._result import own_failure, parsed, result_in
from ._serve.backoff import Backoff

# One request waits so long, and is followed by the next.
_WAIT = 30.0
_PATIENCE = 15.0
_PASSING = frozenset(
    {
        Code.CONNECT_TIMEOUT,
        Code.CONNECTION_LOST,
        Code.DEADLINE_EXCEEDED,
        Code.DELIVERY_UNAVAILABLE,
        Code.BLOCKED_BY_OPERATOR,
        Code.NONE_HEALTHY,
    }
)


@dataclass(frozen=True)
class Accepted:
    """What the sidecar answered when the message was durable."""

    task_id: str
    power_id: str
    durable: str
    """`stream` or `local-disk`; `none`: no promise was asked for."""
    state: str
    """`accepted`, or `parked`: nobody is there to work on it now, and it waits."""
    capability: str
    version: Optional[str]
    lane: str
    rule: Optional[str]
    trace_id: str


@dataclass(frozen=True)
class TaskStatus:
    task_id: str
    power_id: str
    capability: str
    state: str
    """On the way: `accepted` (it waits for a free worker), `parked` (nobody is there who could work on it), `received` (an agent
    has it), `waiting` (a try failed, and another one follows). Ends: `done`; `failed` (the agent, or a check, said no);
    `dead_lettered` (every try failed); `in_doubt` (its worker vanished, and it must not be begun twice); `expired`; `cancelled`.
    Dead ones and those in doubt are kept for a person, whose release gives them another end."""
    is_final: bool
    """It stays so."""
    lane: Optional[str]
    accepted_at_ms: Optional[float]
    """Milliseconds since 1970, by the clock of the sender's sidecar; None = not known (any more)."""
    received_at_ms: Optional[float]
    """The same of the worker's sidecar, when an agent was known to have it; None = not yet, or it was too quick to be told."""
    by: Optional[str]
    """Who has it, or had it last; None = nobody."""
    version: Optional[str]
    attempts: int
    """Hand-overs to agents so far."""
    code: int
    """0 = fine; else of docs/errors.md."""
    cause: Optional[str]
    """Such as `attempts_exhausted` or `worker_vanished`; None = the code says it all."""
    detail: Optional[str]
    status: int
    """The agent's own status; 0 = none."""
    replay: bool
    """The result had been made before, for the same key."""
    trace_id: Optional[str]
    result: Any = None
    """JSON, text, or {base64, content_type}; None = none, or not yet."""
    events: List[Dict[str, Any]] = field(default_factory=list)
    """Each change, as the sidecar tells it."""


class Task:
    """A task of this agent, wherever it is worked on. Nothing here is repeated: it only asks what became of it.

    `id` (8 to 40 of a-z and 0-9) is worth keeping: `reach.task(id)` finds the task again, also after a restart.
    """

    def __init__(self, http: Http, task_id: str, accepted: Optional[Accepted] = None) -> None:
        self._http = http
        self.id = task_id
        self.accepted = accepted
        """None = the task was looked up by its id."""

    async def status(self) -> TaskStatus:
        """As it is now. Raises ReachError when no such task of this agent is known."""
        return await self._look("", _PATIENCE)

    async def wait(self, timeout: float = math.inf) -> TaskStatus:
        """When it has ended, or as it is when the seconds are over. A sidecar that is away meanwhile is asked again."""
        until = time.monotonic() + timeout
        backoff = Backoff()
        while True:
            wait = max(0.0, min(_WAIT, until - time.monotonic()))
            try:
                view = await self._look(f"?wait={round(wait * 1000)}ms", wait + _PATIENCE)
                if view.is_final or time.monotonic() >= until:
                    return view
                backoff.reset()
                # A sidecar that stops answers before the time is over.
                await asyncio.sleep(0.001)
            except ReachError as error:
                if not is_passing(error) or self._http.is_closed or time.monotonic() >= until:
                    raise
                await asyncio.sleep(max(0.0, min(backoff.next(), until - time.monotonic())))

    async def result(self, timeout: float = math.inf) -> Any:
        """The result of a task that is done: JSON, text, or {base64, content_type}.

        Raises ReachError for every other end, with its code: that of the failure (6001 with the agent's own `data` and
        `status`), 7002 dead_lettered, 7003 in_doubt, 7004 expired, 5003 cancelled; and with 5001 when the seconds are over
        first: the task goes on. Without a timeout it waits for as long as it takes.
        """
        view = await self.wait(timeout)
        if view.state == "done":
            return view.result
        if view.is_final:
            code = Code(view.code) if view.code else Code.CANCELLED
            words = f"the task is {view.state}: {view.detail or name_of(code)}"
        else:
            code, words = Code.DEADLINE_EXCEEDED, f"the task is {view.state} still"
        failure = own_failure(code, words, view.state == "in_doubt" or not view.is_final)
        raise ReachError(replace(failure, data=view.result, status=view.status))

    async def cancel(self) -> str:
        """`cancelled`: it was stopped. `requested`: it will be, if that is still possible. `too_late`: it cannot be."""
        ask = Ask("DELETE", f"/v1/tasks/{quote(self.id, safe='')}", {}, None, _PATIENCE)
        status, headers, body, elapsed_ms = await self._http.ask(ask)
        if status == 409:
            return "too_late"
        told = parsed(body)
        if status < 300 and isinstance(told, dict) and told.get("outcome") in ("cancelled", "requested"):
            return str(told["outcome"])
        raise failure_in(self._http, ask, status, headers, body, elapsed_ms)

    async def _look(self, query: str, limit: float) -> TaskStatus:
        ask = Ask("GET", f"/v1/tasks/{quote(self.id, safe='')}{query}", {}, None, limit)
        status, headers, body, elapsed_ms = await self._http.ask(ask)
        told = parsed(body)
        if status != 200 or not isinstance(told, dict) or not isinstance(told.get("state"), str):
            raise failure_in(self._http, ask, status, headers, body, elapsed_ms)
        return TaskStatus(**{name: told[name] for name in TaskStatus.__dataclass_fields__ if name in told})


def task_in(http: Http, ask: Ask, status: int, headers: Mapping[str, str], body: bytes, elapsed_ms: float) -> Task:
    """The task in the answer to a submission; raises the refusal."""
    told = parsed(body)
    if status != 202 or not isinstance(told, dict) or not isinstance(told.get("task_id"), str):
        raise failure_in(http, ask, status, headers, body, elapsed_ms)
    accepted = Accepted(**{name: told.get(name) for name in Accepted.__dataclass_fields__})  # type: ignore[arg-type]
    return Task(http, accepted.task_id, accepted)


def failure_in(http: Http, ask: Ask, status: int, headers: Mapping[str, str], body: bytes, elapsed_ms: float) -> ReachError:
    """Whatever else a sidecar, or somebody who is none, has answered."""
    result = result_in(status, headers, body, elapsed_ms, http.is_anonymous(ask))
    return ReachError(own_failure(Code.BAD_RESPONSE, "the answer is not a sidecar's", False) if result.ok else result)


def is_passing(error: ReachError) -> bool:
    """The same question may be answered later: the sidecar, or what is behind it, is away."""
    return error.code in _PASSING
