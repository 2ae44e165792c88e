"""Runs a handler for a request and makes an answer of what it does, whichever way the request came. What a handler raises
becomes the agent's own error; what it raises by mistake is logged here and hidden from the caller."""

from __future__ import annotations

import asyncio
import inspect
import json
from dataclasses import dataclass, field
from typing import Any, AsyncIterator, Awaitable, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from .._codes import Code
from .._errors import AgentError, ReachError
from .._http import log
from .._scope import scope_from, within
from .context import Context
from .offer import Offer

JSON_TYPE = "application/json"
Handler = Callable[..., Any]
_DONE = object()


@dataclass
class Answer:
    status: int
    content_type: str
    headers: Dict[str, str] = field(default_factory=dict)
    value: Any = None
    """JSON; looked at when there are neither bytes nor chunks."""
    body: Optional[bytes] = None
    chunks: Optional[AsyncIterator[bytes]] = None


Respond = Callable[[Answer], Awaitable[None]]


class Handlers:
    def __init__(self) -> None:
        self._served: List[Tuple[Offer, Handler, bool]] = []

    @property
    def offers(self) -> List[Offer]:
        return [offer for offer, _, _ in self._served]

    def add(self, offer: Offer, handler: Handler) -> None:
        if any(other.key == offer.key for other in self.offers):
            raise ValueError(f"{offer.key} is served already")
        self._served.append((offer, handler, _wants_context(handler)))

    async def run(self, capability: str, version: str, payload: Any, headers: Mapping[str, str], respond: Respond) -> None:
        """Has the answer made and sends it by `respond`, all of it in the context of the request."""
        scope = scope_from(headers)
        with within(scope):
            chosen = self._find(capability, version)
            if chosen is None:
                await respond(_failed(404, {"error": f"this agent does not serve {capability}@{version}"}))
                return
            offer, handler, wants_context = chosen
            context = Context(capability, offer.version, headers, scope)
            try:
                args = (payload, context) if wants_context else (payload,)
                answer = await _answer(await _called(handler, args), context)
            except AgentError as error:
                answer = _failed(error.status, error.data)
            except ReachError as error:
                answer = _passed_on(error)
            except asyncio.CancelledError:
                if _is_given_up():
                    raise
                # The handler's own: it has cancelled itself, or waited for something that was.
                log.exception("%s failed", capability)
                answer = _failed(500, {"error": "the agent failed"})
            except Exception:
                log.exception("%s failed", capability)
                answer = _failed(500, {"error": "the agent failed"})
            try:
                await respond(answer)
            finally:
                if answer.chunks is not None:
                    close = getattr(answer.chunks, "aclose", None)
                    if close is not None:
                        await close()

    def _find(self, capability: str, version: str) -> Optional[Tuple[Offer, Handler, bool]]:
        served = [one for one in self._served if one[0].name == capability]
        for one in served:
            if one[0].version == version:
                return one
        return served[-1] if served and not version else None


def _is_given_up() -> bool:
    """The request was cancelled, not something inside of it. Before Python 3.11 the two cannot be told apart."""
    asked = getattr(asyncio.current_task(), "cancelling", None)
    return asked is None or asked() > 0


def _wants_context(handler: Handler) -> bool:
    """A handler takes the payload, and the context if it has room for it."""
    parameters = inspect.signature(handler).parameters.values()
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return True
    return len([one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]) > 1


async def _called(handler: Handler, args: Tuple[Any, ...]) -> Any:
    """A plain function may block: it runs in a thread of its own, with the same context."""
    if inspect.isasyncgenfunction(handler) or inspect.isgeneratorfunction(handler):
        return handler(*args)
    if inspect.iscoroutinefunction(handler):
        return await handler(*args)
    value = await asyncio.to_thread(handler, *args)
    return await value if inspect.isawaitable(value) else value


async def _answer(value: Any, context: Context) -> Answer:
    headers = dict(context.answer_headers)
    if inspect.isgenerator(value):
        value = _in_threads(value)
    if hasattr(value, "__aiter__"):
        # The first chunk is awaited: it says what the body is, and an error before it is an ordinary error.
        source = value.__aiter__()
        first = await _next(source)
        answer = Answer(context.status, context.answer_type or _type_of(first), headers, chunks=_chunks(first, source))
    elif isinstance(value, (bytes, bytearray, memoryview)):
        answer = Answer(context.status, context.answer_type or "application/octet-stream", headers, body=bytes(value))
    elif isinstance(value, str) and context.answer_type:
        answer = Answer(context.status, context.answer_type, headers, body=value.encode())
    else:
        # What is no JSON is found here, where it still is an error and not a broken answer.
        body = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
        answer = Answer(context.status, context.answer_type or JSON_TYPE, headers, value=value, body=body)
    if context.definitely_success:
        headers["reach-definitely-success"] = "true"
    return answer


async def _next(source: AsyncIterator[Any]) -> Any:
    try:
        return await source.__anext__()
    except StopAsyncIteration:
        return _DONE


async def _chunks(first: Any, source: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    try:
        chunk = first
        while chunk is not _DONE:
            yield _encoded(chunk)
            chunk = await _next(source)
    finally:
        close = getattr(source, "aclose", None)
        if close is not None:
            await close()


async def _in_threads(source: Iterator[Any]) -> AsyncIterator[Any]:
    while True:
        chunk = await asyncio.to_thread(next, source, _DONE)
        if chunk is _DONE:
            return
        yield chunk


def _type_of(chunk: Any) -> str:
    if isinstance(chunk, str):
        return "text/plain; charset=utf-8"
    return "application/octet-stream" if chunk is _DONE or isinstance(chunk, (bytes, bytearray, memoryview)) else "application/x-ndjson"


def _encoded(chunk: Any) -> bytes:
    if isinstance(chunk, str):
        return chunk.encode()
    if isinstance(chunk, (bytes, bytearray, memoryview)):
        return bytes(chunk)
    return json.dumps(chunk, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _failed(status: int, data: Any, headers: Optional[Dict[str, str]] = None) -> Answer:
    body = json.dumps(data, default=str, separators=(",", ":")).encode()
    return Answer(status, JSON_TYPE, headers or {}, value=json.loads(body), body=body)


def _passed_on(error: ReachError) -> Answer:
    """A call made for this one failed, and the handler had no other idea."""
    told = {name: getattr(error.error, name) for name in ("code", "name", "message", "retryable", "ambiguous", "detail")}
    status = 504 if error.code in (Code.DEADLINE_EXCEEDED, Code.DEADLINE_TOO_SHORT) else 502
    return _failed(status, {"error": told}, {"reach-retry": "none"} if error.result.no_retry else None)
