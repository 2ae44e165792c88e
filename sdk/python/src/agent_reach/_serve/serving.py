"""An agent that serves: by the channel, or on a port of its own when one is given."""

from __future__ import annotations

import asyncio
from typing import Optional

from .._errors import ReachError
from .._http import Http, log
from .channel import Channel
from .handlers import Handlers
from .port import Port
from .registration import Registration, is_final


class Serving:
    def __init__(self, http: Http, handlers: Handlers, *, grace: float) -> None:
        self._http = http
        self._handlers = handlers
        self._grace = grace
        self._leaving = asyncio.Event()
        self._port: Optional[Port] = None
        self._channel: Optional[Channel] = None
        self._registration: Optional[Registration] = None
        self._keeping: Optional["asyncio.Task[None]"] = None

    @property
    def port(self) -> int:
        """0 when it serves by the channel."""
        return 0 if self._port is None else self._port.port

    async def dial_in(self, agent: str) -> None:
        registration = Registration(self._http, self._handlers.offers, {"type": "channel"}, agent)
        self._channel = Channel(self._http, self._handlers, registration, self._leaving)
        await self._channel.open()

    async def listen(self, host: str, port: int, address: Optional[str], agent: str) -> None:
        self._port = Port(self._handlers, host)
        await self._port.open(port)
        reached = address or f"http://{f'[{host}]' if ':' in host else host}:{self._port.port}"
        self._registration = Registration(self._http, self._handlers.offers, {"type": "http", "address": reached}, agent)
        try:
            await self._registration.enter()
        except ReachError as error:
            if is_final(error):
                await self._port.close(0)
                raise
            # The sidecar may come later; with a table file it needs no word from us.
            log.warning("%s; trying again", error)
        self._keeping = asyncio.create_task(self._registration.keep(self._leaving))
        # It has been told in the log; not everybody waits for `closed`.
        self._keeping.add_done_callback(lambda keeping: keeping.cancelled() or keeping.exception())

    async def closed(self) -> None:
        """Waits until it is closed; raises when it cannot go on serving."""
        if self._channel is not None:
            await self._channel.closed()
        if self._keeping is not None:
            await asyncio.shield(self._keeping)
        await self._leaving.wait()

    async def close(self) -> None:
        """Takes nothing new, and lets what is under way end."""
        if self._leaving.is_set():
            return
        self._leaving.set()
        if self._channel is not None:
            await self._channel.close(self._grace)
        if self._registration is not None:
            await self._registration.leave()
        if self._port is not None:
            await self._port.close(self._grace)
        if self._keeping is not None:
            await asyncio.wait([self._keeping])
        self._handlers.close()
