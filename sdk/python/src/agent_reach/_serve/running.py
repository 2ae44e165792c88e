"""One call that the sidecar has sent over the channel, until its answer is out."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, AsyncIterator, Awaitable, Callable, Dict

from .. import _frames as frames
from .answer_headers import wire_text
from .handlers import NO_VALUE, Answer

# A data frame; small enough that answers of several calls share the connection fairly.
_FRAME_BYTES = 65_536
# A larger answer goes in frames: a message has a limit, and would hold up everything behind it.
_WHOLE_BYTES = 1_048_576
# JSON-RPC's range for what an implementation defines: the agent's own error.
_AGENT_ERROR = -32000

SendText = Callable[[Dict[str, Any]], Awaitable[None]]
SendBinary = Callable[[bytes], Awaitable[None]]


class Running:
    def __init__(self, number: int, text: SendText, binary: SendBinary, window_bytes: int, max_message_bytes: int) -> None:
        self._id = number
        self._text = text
        self._binary = binary
        self._credit = window_bytes
        # Base64 is a third longer.
        self._whole_bytes = min(_WHOLE_BYTES, max_message_bytes // 2)
        self._credited = asyncio.Event()
        self.is_given_up = False
        """Nobody waits for the answer any more."""

    def credited(self, count: int) -> None:
        """The sidecar takes so many bytes more."""
        self._credit += count
        self._credited.set()

    async def answer(self, answer: Answer) -> None:
        if answer.chunks is not None:
            await self._stream(answer, answer.chunks)
        elif len(answer.body) > self._whole_bytes:
            # An error as well: a message above the limit would end the connection, and with it every other call.
            await self._stream(answer, _one(answer.body))
        else:
            await self._whole(answer)

    async def cut(self) -> None:
        """The stream broke after its head: an error says so."""
        await self._text({"jsonrpc": "2.0", "id": self._id, "error": {"code": _AGENT_ERROR, "message": "the stream was cut"}})

    async def _whole(self, answer: Answer) -> None:
        told = _head(answer)
        if answer.value is not NO_VALUE:
            told["payload"] = answer.value
        else:
            told["payload_base64"] = base64.b64encode(answer.body).decode()
        if answer.status < 400:
            await self._text({"jsonrpc": "2.0", "id": self._id, "result": told})
        else:
            error = {"code": _AGENT_ERROR, "message": f"the agent answered {answer.status}", "data": told}
            await self._text({"jsonrpc": "2.0", "id": self._id, "error": error})

    async def _stream(self, answer: Answer, chunks: AsyncIterator[bytes]) -> None:
        await self._text({"jsonrpc": "2.0", "method": "reach.head", "params": {"id": self._id, **_head(answer)}})
        async for chunk in chunks:
            await self._send(chunk)
        await self._text({"jsonrpc": "2.0", "id": self._id, "result": {}})

    async def _send(self, chunk: bytes) -> None:
        at = 0
        while at < len(chunk):
            while self._credit <= 0:
                self._credited.clear()
                await self._credited.wait()
            piece = chunk[at : at + min(_FRAME_BYTES, self._credit)]
            at += len(piece)
            self._credit -= len(piece)
            await self._binary(frames.HEAD.pack(frames.VERSION, frames.DATA, self._id) + piece)


def _head(answer: Answer) -> Dict[str, Any]:
    headers = {name: wire_text(value) for name, value in answer.headers.items()}
    return {"status": answer.status, "content_type": wire_text(answer.content_type), "headers": headers}


async def _one(body: bytes) -> AsyncIterator[bytes]:
    yield body
