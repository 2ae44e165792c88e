"""Runs a handler for a request and makes an answer of what it does, whichever way the request came. What a handler raises
becomes the agent's own error; what it raises by mistake is logged here and hidden from the caller."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, AsyncIterator, Awaitable, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from .._codes import Code
from .._errors import AgentError, ReachError
from .._http import log
from .._scope import scope_from, within
from .answer_headers import sendable_headers, sendable_type
from .context import Context
from .offer import Offer
from .text_bytes import TextBytes, bytes_of

JSON_TYPE = "application/json"
_TEXT_TYPE = "text/plain; charset=utf-8"
_BYTES_TYPE = "application/octet-stream"
# Threads wait more than they work; beyond this a handler that blocks had better be `async`.
THREADS = 256
Handler = Callable[..., Any]
_DONE = object()
NO_VALUE: Any = object()


@dataclass
class Answer:
    status: int
    content_type: str
    headers: Dict[str, str] = field(default_factory=dict)
    value: Any = NO_VALUE
    """What `body` is the JSON of; NO_VALUE = it is bytes or text, whatever its type says."""
    body: bytes = b""
    chunks: Optional[AsyncIterator[bytes]] = None
    """Instead of `body`."""


Respond = Callable[[Answer], Awaitable[None]]


class Handlers:
    def __init__(self) -> None:
        self._served: List[Tuple[Offer, Handler, bool]] = []
        self._threads = _Threads()

    def open(self, threads: int) -> None:
        """Begins to serve: at most so many plain functions are at work at a time."""
        if threads < 1:
            raise ValueError(f"threads is 1 or more, not {threads}")
        self._threads = _Threads(threads)

    def close(self) -> None:
        """No more is begun. Threads cannot be interrupted: what is at work runs to its end."""
        self._threads.close()

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
                answer = await self._answer(await self._called(handler, args), context)
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

    async def _called(self, handler: Handler, args: Tuple[Any, ...]) -> Any:
        """A plain function may block: it runs in a thread of its own, with the same context."""
        if inspect.isasyncgenfunction(handler) or inspect.isgeneratorfunction(handler):
            return handler(*args)
        if inspect.iscoroutinefunction(handler):
            return await handler(*args)
        value = await self._threads.run(handler, *args)
        return await value if inspect.isawaitable(value) else value

    async def _answer(self, value: Any, context: Context) -> Answer:
        if inspect.isgenerator(value):
            value = self._threads.each(value)
        if hasattr(value, "__aiter__"):
            # The first chunk is awaited: it says what the body is, and an error before it is an ordinary error.
            source = value.__aiter__()
            first = await _next(source)
            return _answered(context, _type_of(first), chunks=_chunks(first, source))
        if isinstance(value, (bytes, bytearray, memoryview)):
            return _answered(context, _BYTES_TYPE, body=bytes(value))
        if isinstance(value, str) and context.answer_type:
            return _answered(context, _TEXT_TYPE, body=bytes_of(value))
        # What is no JSON is found here, where it still is an error and not a broken answer.
        body = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
        return _answered(context, JSON_TYPE, value=value, body=body)

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


class _Threads:
    """Where plain functions run: threads of our own, since the event loop's are few, and names are looked up in them."""

    def __init__(self, most: int = THREADS) -> None:
        self._pool = ThreadPoolExecutor(most, "agent-reach")

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """In a thread, with the context of the caller."""
        work = functools.partial(contextvars.copy_context().run, _ended, function, *args)
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def each(self, source: Iterator[Any]) -> AsyncIterator[Any]:
        while True:
            chunk = await self.run(next, source, _DONE)
            if chunk is _DONE:
                return
            yield chunk

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _ended(function: Callable[..., Any], *args: Any) -> Any:
    """A StopIteration that gets out cannot be told to the event loop: nobody would ever hear of the end."""
    try:
        return function(*args)
    except StopIteration as error:
        raise RuntimeError("the handler raised StopIteration") from error


async def _next(source: AsyncIterator[Any]) -> Any:
    try:
        return await source.__anext__()
    except StopAsyncIteration:
        return _DONE


async def _chunks(first: Any, source: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    text = TextBytes()
    try:
        chunk = first
        while chunk is not _DONE:
            yield text.push(chunk) if isinstance(chunk, str) else text.rest() + _encoded(chunk)
            chunk = await _next(source)
        rest = text.rest()
        if rest:
            yield rest
    finally:
        close = getattr(source, "aclose", None)
        if close is not None:
            await close()


def _type_of(chunk: Any) -> str:
    if isinstance(chunk, str):
        return _TEXT_TYPE
    return _BYTES_TYPE if chunk is _DONE or isinstance(chunk, (bytes, bytearray, memoryview)) else "application/x-ndjson"


def _encoded(chunk: Any) -> bytes:
    if isinstance(chunk, (bytes, bytearray, memoryview)):
        return bytes(chunk)
    return json.dumps(chunk, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _answered(context: Context, otherwise: str, **body: Any) -> Answer:
    """The head is what the handler has said, as far as it can be sent; `otherwise` its content type when it has said none."""
    headers = sendable_headers(context.answer_headers, context.capability)
    if context.definitely_success:
        headers["reach-definitely-success"] = "true"
    return Answer(context.status, sendable_type(context.answer_type, otherwise, context.capability), headers, **body)


def _failed(status: int, data: Any, headers: Optional[Dict[str, str]] = None) -> Answer:
    """An error with something in it that is no JSON is better told with that as text (NaN as null) than not at all."""
    try:
        value = json.loads(json.dumps(data, default=str), parse_constant=lambda _: None)
    except (TypeError, ValueError, RecursionError):
        value = str(data)
    return Answer(status, JSON_TYPE, headers or {}, value=value, body=json.dumps(value, separators=(",", ":")).encode())


def _passed_on(error: ReachError) -> Answer:
    """A call made for this one failed, and the handler had no other idea."""
    told = {name: getattr(error.error, name) for name in ("code", "name", "message", "retryable", "ambiguous", "detail")}
    status = 504 if error.code in (Code.DEADLINE_EXCEEDED, Code.DEADLINE_TOO_SHORT) else 502
    return _failed(status, {"error": told}, {"reach-retry": "none"} if error.result.no_retry else None)
