"""A streamed answer. Asked for as frames, so that an end is told from a cut: iteration ends only when the whole body has
come, and raises `stream_interrupted` (1006) or what else cut it. Leaving the loop early and closing the stream gives the
call up, all the way to the agent. The reader sets the pace: what is not read is not fetched."""

from __future__ import annotations

import asyncio
import codecs
import json
from dataclasses import dataclass
from types import TracebackType
from typing import Any, AsyncGenerator, AsyncIterator, Mapping, Optional, Type

from . import _frames as frames
from ._ask import Ask, timed
from ._codes import Code
from ._errors import ReachError
from ._events import EventReader, LineReader, StreamEvent
from ._http import Exchange, Http
from ._result import Result, own_failure, parsed, result_from, result_in, result_of_headers
from ._scope import Scope

_READ_BYTES = 65_536
# Inside `Stream` the word is a method's.
Bytes = bytes


@dataclass(frozen=True)
class StreamHead:
    status: int
    content_type: str
    """Of the body; empty = not said."""
    headers: Mapping[str, str]
    provider: Optional[str]
    version: Optional[str]
    trace_id: str


class Stream:
    """Iterating gives text, decoded; `bytes`, `messages` and `events` give the body in other forms. One of them, once.

    Nothing is sent before the first piece (or the head) is asked for. When a loop may be left before the end, put it into
    `async with reach.stream(…) as stream:`, or call `aclose`: Python does not end an abandoned loop's work at once.
    """

    def __init__(self, http: Http, ask: Ask, scope: Scope) -> None:
        self._http = http
        self._ask = ask
        self._scope = scope
        self._exchange: Optional[Exchange] = None
        self._head: Optional[StreamHead] = None
        self._opening: Optional["asyncio.Future[StreamHead]"] = None
        self._is_framed = False
        self._is_taken = False
        self.result: Optional[Result] = None
        """The Result without data, once the stream has come to its end; None before."""

    async def __aenter__(self) -> "Stream":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], at: Optional[TracebackType]) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Gives the call up, unless it has come to its end."""
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
        if self._exchange is not None:
            self._exchange.done()

    def __aiter__(self) -> AsyncIterator[str]:
        return self._texts()

    async def head(self) -> StreamHead:
        """Sends the request, unless iteration has done so already, and waits for the answer's head."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())
        elif self._opening.cancelled():
            raise ReachError(own_failure(Code.CANCELLED, "the caller gave it up", True))
        try:
            # Several may ask; what is sent is sent once.
            return await asyncio.shield(self._opening)
        except asyncio.CancelledError:
            if not self._opening.done():
                self._opening.cancel()
            raise

    async def _open(self) -> StreamHead:
        exchange = self._exchange = self._http.open(timed(self._ask, self._scope))
        try:
            response = await exchange.head()
            headers = response.headers
            content_type = headers.get("content-type", "")
            self._is_framed = content_type.startswith(frames.FRAMES_TYPE)
            if not self._is_framed and (response.status >= 400 or headers.get("reach-code", "0") != "0"):
                body = await exchange.limited(response.read())
                result = result_in(response.status, headers, body, exchange.elapsed_ms, self._http.is_anonymous(self._ask))
                raise ReachError(self._cut(exchange) if result.ok else result)
        except BaseException:
            exchange.done()
            raise
        self._response = response
        self._head = StreamHead(
            status=response.status,
            content_type=headers.get("reach-content-type", "") if self._is_framed else content_type,
            headers=headers,
            provider=headers.get("reach-provider"),
            version=headers.get("reach-version"),
            trace_id=headers.get("reach-trace-id", ""),
        )
        return self._head

    async def bytes(self) -> AsyncGenerator[Bytes, None]:
        """Pieces as they come; their borders mean nothing."""
        if self._is_taken:
            raise TypeError("a stream can be read once")
        self._is_taken = True
        head = await self.head()
        exchange = self._exchange
        assert exchange is not None
        try:
            if self._is_framed:
                async for piece in self._framed(exchange, head):
                    yield piece
            else:
                while True:
                    piece = await exchange.limited(self._response.content.read(_READ_BYTES), Code.STREAM_INTERRUPTED)
                    if not piece:
                        break
                    yield piece
                self.result = result_of_headers(head.status, head.headers, exchange.elapsed_ms)
        finally:
            exchange.done()

    async def messages(self) -> AsyncGenerator[Any, None]:
        """One JSON value a line (`application/x-ndjson`)."""
        lines = LineReader()
        async for text in self._texts():
            for line in lines.push(text):
                if line.strip():
                    yield json.loads(line)
        last = lines.finish()
        if last.strip():
            yield json.loads(last)

    async def events(self) -> AsyncGenerator[StreamEvent, None]:
        """Server-sent events (`text/event-stream`)."""
        events = EventReader()
        async for text in self._texts():
            for event in events.push(text):
                yield event

    async def _texts(self) -> AsyncGenerator[str, None]:
        # A byte order mark is no text.
        decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        async for piece in self.bytes():
            text = decoder.decode(piece)
            if text:
                yield text
        rest = decoder.decode(b"", True)
        if rest:
            yield rest

    async def _framed(self, exchange: Exchange, head: StreamHead) -> AsyncGenerator[Bytes, None]:
        reader = frames.FrameReader()
        while True:
            data = await exchange.limited(self._response.content.readany(), Code.STREAM_INTERRUPTED)
            if not data:
                break
            try:
                for kind, payload in reader.push(data):
                    if kind == frames.DATA and payload:
                        yield payload
                    elif kind in (frames.END, frames.ERROR):
                        self._ended(payload, kind == frames.ERROR, exchange, head)
            except frames.FrameError as error:
                raise ReachError(own_failure(Code.STREAM_INTERRUPTED, str(error), True, exchange.elapsed_ms)) from None
        if not reader.is_over:
            raise ReachError(self._cut(exchange))

    def _ended(self, payload: Bytes, is_cut: bool, exchange: Exchange, head: StreamHead) -> None:
        result = result_from(parsed(payload), head.headers.get("reach-retry") == "none")
        if result is None or (is_cut and result.ok):
            raise ReachError(self._cut(exchange))
        if not result.ok:
            raise ReachError(result)
        self.result = result

    def _cut(self, exchange: Exchange) -> Result:
        return own_failure(Code.STREAM_INTERRUPTED, "the stream ended before its end", True, exchange.elapsed_ms)
