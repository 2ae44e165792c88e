"""Serving without a port: dials in to the sidecar and stays connected. When the connection is lost it is made again, with
growing pauses, for as long as it takes; a sidecar that takes the credential back, or another process that has taken the
agent's place, ends it, since trying again would do harm."""

from __future__ import annotations

import asyncio
from typing import Callable, Optional
from urllib.parse import urlencode, urljoin

from .._codes import Code
from .._errors import ReachError
from .._http import Http, log
from .._result import own_failure
from .backoff import Backoff, pause
from .handlers import Handlers
from .link import Link
from .registration import Registration, is_final

# Close codes of the channel.
_REPLACED = 4001
_UNAUTHENTICATED = 4004
# Of the question for a ticket, whose answer is at hand: a kept connection that leads nowhere any more must not hold us up.
_PATIENCE = 2.0


class Channel:
    def __init__(self, http: Http, handlers: Handlers, registration: Registration, leaving: asyncio.Event) -> None:
        self._http = http
        self._handlers = handlers
        self._registration = registration
        self._leaving = leaving
        self._link: Optional[Link] = None
        self._staying: Optional["asyncio.Task[None]"] = None

    async def open(self) -> None:
        """Returns when the agent is dialled in and registered."""
        link = await self._connect(is_final)
        if link is None:
            raise RuntimeError("it was closed before it was open")
        self._staying = asyncio.create_task(self._stay(link))

    async def closed(self) -> None:
        """Waits until it is closed; raises when it cannot go on."""
        if self._staying is not None:
            await asyncio.shield(self._staying)

    async def close(self, grace: float) -> None:
        await self._registration.leave()
        if self._link is not None:
            await self._link.leave(grace)
        if self._staying is not None:
            await asyncio.wait([self._staying])

    async def _stay(self, first: Link) -> None:
        link: Optional[Link] = first
        while link is not None:
            code, reason = await link.ended()
            await link.close()
            if self._leaving.is_set():
                return
            if code == _REPLACED:
                raise ReachError(own_failure(Code.BLOCKED_BY_OPERATOR, "another connection of this agent has taken its place", False))
            if code == _UNAUTHENTICATED:
                raise ReachError(own_failure(Code.UNAUTHENTICATED, reason or "the sidecar has taken the credential back", False))
            log.warning("the channel to the sidecar is lost (%s%s); dialling in again", code, f": {reason}" if reason else "")
            # What was good once and is refused now may be good again: a registry that is not there yet knows nobody.
            link = await self._connect(lambda error: error.code == Code.UNAUTHENTICATED)
            if link is not None:
                log.warning("dialled in again")

    async def _connect(self, gives_up: Callable[[ReachError], bool]) -> Optional[Link]:
        """None = it is being closed."""
        backoff = Backoff()
        has_warned = False
        while not self._leaving.is_set():
            try:
                link = await self._once()
                if not self._leaving.is_set():
                    return link
                # It was closed meanwhile, and nobody would end this connection any more.
                await self._registration.leave()
                await link.close()
                return None
            except ReachError as error:
                if gives_up(error):
                    raise
                if not has_warned:
                    log.warning("%s; trying again", error)
                has_warned = True
                await pause(backoff.next(), self._leaving)
        return None

    async def _once(self) -> Link:
        # A ticket serves once: each connection asks for its own.
        told = await self._http.json("POST", "/v1/channel", {}, _PATIENCE)
        url = urljoin(self._http.url, str(told["url"]))
        link = Link(self._http, self._handlers)
        try:
            await link.open(f"{url}{'&' if '?' in url else '?'}{urlencode({'ticket': told['ticket']})}")
            self._registration.agent = self._registration.agent or link.agent
            await self._registration.enter()
        except BaseException:
            await link.close()
            raise
        self._link = link
        if not self._registration.is_known:
            self._warn_of_uncalled(link)
        return link

    def _warn_of_uncalled(self, link: Link) -> None:
        """At a sidecar with a table file an agent that does not stand in it would wait for ever, and nobody would say why."""
        if link.offers is None:
            return
        for offer in self._handlers.offers:
            if offer.key not in link.offers:
                log.warning(
                    "nobody is sent here for %s: the sidecar's table has no provider %s that offers it with endpoint {type: channel}",
                    offer.key,
                    link.agent,
                )
