"""What waits for this agent, one by one: results and states of the tasks that it has sent, and messages to it. The position
is kept here, so a connection that breaks loses nothing and doubles nothing; what is acknowledged is kept by the sidecar."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional, Tuple

from ._ask import Ask
from ._codes import Code
from ._errors import ReachError
from ._http import Http
from ._result import parsed
from ._serve.backoff import Backoff
from ._task import failure_in, is_passing

_WAIT = 30.0
_PATIENCE = 15.0
_LIMIT = 100
# While entries take their time, what was taken is said so often.
_ACK_EVERY = 1.0


class InboxError(ReachError):
    """The position cannot be read from: `gone` (older than what is kept), `ahead` (there has been nothing), `invalid`; or
    `none`: the sidecar has no inboxes."""

    def __init__(self, failure: ReachError, why: str, available_from: int) -> None:
        super().__init__(failure.result)
        self.why = why
        self.available_from = available_from
        """From here on it would succeed; 0 = not known."""


class InboxMessage:
    """One entry: what became of a task of this agent (several as it goes on, the last is its end), or a message from another agent."""

    def __init__(self, fields: Dict[str, Any], inbox: "Inbox") -> None:
        self.seq: int = int(fields["seq"])
        """Its position: rises, with gaps."""
        self.kind: str = fields["kind"]
        """`state`: what became of a task of this agent; `message`: from another agent."""
        self.task_id: str = fields["task_id"]
        self.message_type: str = fields.get("message_type") or ""
        self.state: Optional[str] = fields.get("state") if self.kind == "state" else None
        """None for a message. `received` and `waiting` are on the way, and may be missing; an end never is."""
        self.code: int = fields.get("code") or 0
        """0 = fine."""
        self.detail: str = fields.get("detail") or ""
        self.by: str = fields.get("by" if self.kind == "state" else "source") or ""
        """Agent id of who worked on it, or who has sent the message."""
        self.data: Any = fields.get("data")
        """JSON, text, or {base64, content_type}; None = none."""
        self.fields = fields
        """All of it, as the sidecar tells it."""
        self._inbox = inbox

    async def ack(self) -> None:
        """This one and everything before it have been taken. Raises ReachError when that could not be said."""
        await self._inbox.ack(self.seq)

    def __repr__(self) -> str:
        return f"InboxMessage(seq={self.seq}, kind={self.kind!r}, task_id={self.task_id!r}, state={self.state!r})"


class Inbox:
    def __init__(self, http: Http, from_seq: Optional[int], ack: str) -> None:
        if ack not in ("auto", "manual"):
            raise ValueError(f"ack is auto or manual, not {ack!r}")
        self._http = http
        self._is_auto = ack == "auto"
        # Asked for next; None = after what is acknowledged.
        self._next = from_seq
        # Taken by the loop, and known to the sidecar.
        self._taken = 0
        self._acknowledged = 0

    async def ack(self, seq: int) -> None:
        """Everything up to a position has been taken."""
        ask = Ask("POST", "/v1/inbox/ack", {"content-type": "application/json"}, json.dumps({"seq": seq}).encode(), _PATIENCE)
        status, headers, body, elapsed_ms = await self._http.ask(ask)
        if status != 200:
            raise self._refusal(ask, status, headers, body, elapsed_ms)
        self._acknowledged = max(self._acknowledged, seq)

    async def __aiter__(self) -> AsyncIterator[InboxMessage]:
        """Raises InboxError for a position that cannot be read from. A sidecar that is away is waited for."""
        backoff = Backoff()
        said_at = time.monotonic()
        try:
            while True:
                try:
                    if self._is_auto:
                        await self._say()
                    entries, floor = await self._page()
                    backoff.reset()
                except ReachError as error:
                    if isinstance(error, InboxError) or not is_passing(error) or self._http.is_closed:
                        raise
                    await asyncio.sleep(backoff.next())
                    continue
                for fields in entries:
                    message = InboxMessage(fields, self)
                    yield message
                    self._next = message.seq + 1
                    self._taken = message.seq
                    if self._is_auto and time.monotonic() - said_at >= _ACK_EVERY:
                        said_at = time.monotonic()
                        # What cannot be said now is said before the next page.
                        await self._say_if_possible()
                # Where the sidecar knows the position, it is asked from there: it stays right however long nothing comes.
                if self._is_auto and entries and self._taken > floor:
                    self._next = None
        finally:
            if self._is_auto:
                await self._say_if_possible()

    async def _say(self) -> None:
        if self._taken > self._acknowledged:
            await self.ack(self._taken)

    async def _say_if_possible(self) -> None:
        try:
            await self._say()
        except ReachError:
            pass

    async def _page(self) -> Tuple[List[Dict[str, Any]], int]:
        start = "" if self._next is None else f"&from={self._next}"
        ask = Ask("GET", f"/v1/inbox?wait={round(_WAIT * 1000)}ms&limit={_LIMIT}{start}", {}, None, _WAIT + _PATIENCE)
        status, headers, body, elapsed_ms = await self._http.ask(ask)
        told = parsed(body)
        if status != 200 or not isinstance(told, dict) or not isinstance(told.get("entries"), list):
            raise self._refusal(ask, status, headers, body, elapsed_ms)
        return told["entries"], int(told["floor"])

    def _refusal(self, ask: Ask, status: int, headers: Mapping[str, str], body: bytes, elapsed_ms: float) -> ReachError:
        failure = failure_in(self._http, ask, status, headers, body, elapsed_ms)
        if status == 404:
            return InboxError(failure, "none", 0)
        told = parsed(body)
        inbox = told.get("inbox") if isinstance(told, dict) else None
        if failure.code == Code.INVALID_REQUEST and isinstance(inbox, dict) and inbox.get("why") in ("gone", "ahead", "invalid"):
            return InboxError(failure, inbox["why"], int(inbox.get("from") or 0))
        return failure
