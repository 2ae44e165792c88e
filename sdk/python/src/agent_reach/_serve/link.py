"""One connection of the channel: says hello, beats, and has every call that comes answered. Ends with the connection; what
is under way then is given up, since there is nobody left to tell. When to connect again is decided in `channel.py`."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from typing import Any, Dict, List, Optional, Tuple

import aiohttp
from yarl import URL

from .. import _frames as frames
from .._codes import Code
from .._errors import ReachError
from .._http import Http, log
from .._result import own_failure, result_from
from .handlers import Answer, Handlers
from .running import Running
from .within import within

_WIRE = 1
_HANDSHAKE = 10.0
_WINDOW_BYTES = 262_144
# When the sidecar does not say.
_MAX_MESSAGE_BYTES = 1_048_576
_NO_SUCH_METHOD = -32601


class Link:
    def __init__(self, http: Http, handlers: Handlers) -> None:
        self._http = http
        self._handlers = handlers
        self._socket: Optional[aiohttp.ClientWebSocketResponse] = None
        self.agent = ""
        """As the sidecar knows it; empty before the hello."""
        self.offers: Optional[List[str]] = None
        """What the sidecar's table has it for on a channel, `name@version` each; None = the sidecar does not say."""
        self._waiting: Dict[int, "asyncio.Future[Dict[str, Any]]"] = {}
        self._running: Dict[int, Tuple[Running, "asyncio.Task[None]"]] = {}
        self._next_id = 1
        self._window_bytes = _WINDOW_BYTES
        self._max_message_bytes = _MAX_MESSAGE_BYTES
        self._heard_at = time.monotonic()
        self._reading: Optional["asyncio.Task[None]"] = None
        self._beating: Optional["asyncio.Task[None]"] = None
        # It gets no more calls: what comes all the same is turned away.
        self._is_leaving = False
        self._close_reason = ""

    async def open(self, url: str) -> None:
        """Connects and says hello; raises ReachError when that fails."""
        connecting = asyncio.ensure_future(
            self._http.session.ws_connect(URL(url, encoded=True), max_msg_size=0, autoping=False, compress=0)
        )
        try:
            self._socket = await within(_HANDSHAKE, connecting)
        except asyncio.CancelledError:
            # It came in the moment in which there was a connection: `close` ends that one too.
            if connecting.done() and not connecting.cancelled() and connecting.exception() is None:
                self._socket = connecting.result()
            raise
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:
            raise ReachError(own_failure(Code.CONNECT_TIMEOUT, f"no channel to the sidecar: {error or type(error).__name__}", False)) from error
        self._reading = asyncio.create_task(self._read(self._socket))
        hello = self.request("reach.hello", {"wire": _WIRE, "metadata": {"sdk": "python"}})
        try:
            told = await within(_HANDSHAKE, hello)
        except asyncio.TimeoutError:
            # What has taken the connection and says nothing is no sidecar, or one that stands still.
            words = f"no channel to the sidecar: it has not answered the hello within {_HANDSHAKE:g} s"
            raise ReachError(own_failure(Code.CONNECT_TIMEOUT, words, False)) from None
        self.agent = str(told.get("agent", ""))
        self.offers = told.get("offers")
        self._window_bytes = told.get("window_bytes") or _WINDOW_BYTES
        self._max_message_bytes = told.get("max_message_bytes") or _MAX_MESSAGE_BYTES
        self._beating = asyncio.create_task(
            self._beat((told.get("heartbeat_ms") or 45_000) / 1000, (told.get("offline_ms") or 135_000) / 1000)
        )

    async def ended(self) -> Tuple[int, str]:
        """Waits until the connection has ended: close code (1006 = it just broke) and reason."""
        assert self._reading is not None and self._socket is not None
        await asyncio.wait([self._reading])
        return self._socket.close_code or 1006, self._close_reason

    async def request(self, method: str, params: Dict[str, Any]) -> Dict[str, Any]:
        number, self._next_id = self._next_id, self._next_id + 1
        answer: "asyncio.Future[Dict[str, Any]]" = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        await self._text({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        if self._reading is None or self._reading.done():
            self._over()
        return await answer

    async def leave(self, grace: float) -> None:
        """Takes nothing new, lets what is under way end within `grace` seconds, then closes."""
        self._is_leaving = True
        tasks = [task for _, task in self._running.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        await self.close()

    async def close(self) -> None:
        if self._socket is not None:
            try:
                await within(1.0, self._socket.close(code=1000))
            except asyncio.TimeoutError:
                pass
        for task in (self._reading, self._beating):
            if task is not None:
                task.cancel()
        self._over()

    async def _text(self, message: Dict[str, Any]) -> None:
        await self._sent(self._socket.send_str, json.dumps(message, separators=(",", ":"))) if self._socket is not None else None

    async def _binary(self, data: bytes) -> None:
        await self._sent(self._socket.send_bytes, data) if self._socket is not None else None

    async def _sent(self, send: Any, data: Any) -> None:
        """Harmless when the connection is gone: whoever waits hears of that."""
        try:
            await send(data)
        except (ConnectionError, aiohttp.ClientError):
            pass

    def _over(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(ReachError(own_failure(Code.CONNECTION_LOST, "the channel to the sidecar broke", True)))
                # Not everybody who asked still waits.
                answer.exception()
        for running, task in list(self._running.values()):
            running.is_given_up = True
            task.cancel()
        if self._beating is not None:
            self._beating.cancel()

    async def _beat(self, every: float, offline: float) -> None:
        while True:
            await asyncio.sleep(every)
            if time.monotonic() - self._heard_at > offline:
                assert self._reading is not None and self._socket is not None
                self._reading.cancel()
                return
            number, self._next_id = self._next_id, self._next_id + 1
            await self._text({"jsonrpc": "2.0", "id": number, "method": "reach.heartbeat", "params": {}})

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        try:
            while True:
                message = await socket.receive()
                self._heard_at = time.monotonic()
                if message.type is aiohttp.WSMsgType.TEXT:
                    await self._message(message.data)
                elif message.type is aiohttp.WSMsgType.BINARY:
                    self._frame(message.data)
                elif message.type is aiohttp.WSMsgType.PING:
                    await socket.pong(message.data)
                elif message.type is aiohttp.WSMsgType.CLOSE:
                    self._close_reason = message.extra or ""
                    return
                elif message.type is not aiohttp.WSMsgType.PONG:
                    return
        finally:
            self._over()
            if not socket.closed:
                # Not awaited to its end: a peer that is silent would not answer.
                asyncio.ensure_future(_closed(socket))

    def _frame(self, data: bytes) -> None:
        if len(data) != frames.HEAD.size + 4:
            return
        version, kind, number = frames.HEAD.unpack_from(data)
        if version == frames.VERSION and kind == frames.CREDIT and number in self._running:
            self._running[number][0].credited(int.from_bytes(data[frames.HEAD.size :], "big"))

    async def _message(self, text: str) -> None:
        message = json.loads(text)
        method, number = message.get("method"), message.get("id")
        if method is None:
            self._answered(number, message)
        elif method == "reach.invoke" and isinstance(number, int):
            await self._invoke(number, message["params"])
        elif method == "reach.cancel":
            running = self._running.get(message["params"].get("id"))
            if running is not None:
                running[0].is_given_up = True
                running[1].cancel()
        elif number is not None:
            await self._refuse(number, f"this agent does not understand {method}")

    def _answered(self, number: Any, message: Dict[str, Any]) -> None:
        answer = self._waiting.pop(number, None)
        if answer is None or answer.done():
            return
        error = message.get("error")
        if error is None:
            answer.set_result(message.get("result") or {})
            return
        told = result_from(error.get("data"), False)
        answer.set_exception(
            ReachError(own_failure(Code.INVALID_REQUEST, str(error.get("message")), False) if told is None or told.ok else told)
        )

    async def _invoke(self, number: int, ask: Dict[str, Any]) -> None:
        if self._is_leaving:
            await self._refuse(number, "this agent is stopping and takes no more calls")
            return
        running = Running(number, self._text, self._binary, self._window_bytes, self._max_message_bytes)
        task = asyncio.create_task(self._run(running, ask))
        self._running[number] = (running, task)
        task.add_done_callback(lambda _: self._running.pop(number, None))

    async def _run(self, running: Running, ask: Dict[str, Any]) -> None:
        encoded = ask.get("payload_base64")
        content_type = ask.get("content_type") or ("application/json" if encoded is None else "application/octet-stream")
        payload: Any = ask.get("payload")
        if encoded is not None:
            payload = base64.b64decode(encoded)
            if content_type.startswith("text/"):
                payload = payload.decode("utf-8", "replace")
        headers = {**(ask.get("headers") or {}), "content-type": content_type}

        async def respond(answer: Answer) -> None:
            await running.answer(answer)

        try:
            await self._handlers.run(ask["capability"], ask.get("version") or "", payload, headers, respond)
        except asyncio.CancelledError:
            # The handler's own: it has cancelled itself, or waited for something that was. Whoever called still waits.
            if not running.is_given_up:
                await running.cut()
            raise
        except Exception:
            log.exception("the answer to %s was cut", ask["capability"])
            await running.cut()

    async def _refuse(self, number: Any, words: str) -> None:
        await self._text({"jsonrpc": "2.0", "id": number, "error": {"code": _NO_SUCH_METHOD, "message": words}})


async def _closed(socket: aiohttp.ClientWebSocketResponse) -> None:
    try:
        await within(1.0, socket.close())
    except (asyncio.TimeoutError, aiohttp.ClientError, ConnectionError):
        pass
