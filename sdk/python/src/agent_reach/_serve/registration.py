"""Tells the sidecar's registry what the agent serves and where, and keeps telling. A sidecar without a registry has its
agents in its table file, and wants nothing. What the registry refuses at the start is an error; what it refuses later,
and a sidecar that is away, is tried again."""

from __future__ import annotations

import asyncio
from typing import Any, Dict, List

from .._ask import Ask
from .._codes import Code
from .._errors import ReachError
from .._http import Http, log
from .._result import parsed
from .backoff import Backoff, pause
from .offer import Offer

# An agent of the API is reported gone when it has been silent for its lease: so many signs of life go into one.
_BEATS_PER_LEASE = 3
# When the registry does not say.
_LEASE_MS = 135_000
# Of a question whose answer is at hand: a sidecar that takes longer is not well.
_PATIENCE = 10.0


def is_final(error: BaseException) -> bool:
    """Trying again would only be refused again."""
    return isinstance(error, ReachError) and not error.retryable and Code.UNAUTHENTICATED <= error.code < Code.DEADLINE_EXCEEDED


class Registration:
    def __init__(self, http: Http, offers: List[Offer], endpoint: Dict[str, str], agent: str) -> None:
        self._http = http
        self._offers = offers
        self._endpoint = endpoint
        self.agent = agent
        """Empty = not known yet."""
        self._lease_ms: float = _LEASE_MS
        # The sidecar has a registry, which knows us.
        self._is_known = False
        # Whether the table has us has been looked up.
        self._has_looked = False
        # Everything has been said that had to be.
        self._is_well = False

    @property
    def is_known(self) -> bool:
        """The sidecar has a registry, and it has taken us."""
        return self._is_known

    async def enter(self) -> None:
        """Registers, where there is a registry. Raises ReachError; `is_final` says whether trying again is of use."""
        self._is_well = False
        health = await self._http.json("GET", "/v1/health")
        if health.get("registry") is not None:
            if not self.agent:
                self.agent = str((await self._http.json("GET", "/v1/capabilities"))["caller"])
            contracts = [offer.contract for offer in self._offers if offer.contract is not None]
            provider = {"agent_id": self.agent, "offers": [offer.key for offer in self._offers], "endpoint": self._endpoint}
            body: Dict[str, Any] = {"contracts": contracts, "provider": provider} if contracts else {"provider": provider}
            view = await self._http.json("POST", "/v1/agents", body)
            self._lease_ms = view.get("lease_ms") or _LEASE_MS
            self._is_known = True
        else:
            self._is_known = False
            await self._look()
        self._is_well = True

    async def _look(self) -> None:
        """At a sidecar with a table file an agent that does not stand in it would wait for ever, and nobody would say why."""
        ask = Ask("GET", "/v1/capabilities", {}, None, _PATIENCE)
        if self._has_looked or self._endpoint["type"] == "channel" or self._http.is_anonymous(ask):
            return
        status, _, body, _ = await self._http.ask(ask)
        page = parsed(body) if status == 200 else None
        # Not loaded yet, or a sidecar that does not say it.
        if not isinstance(page, dict) or "serves" not in page:
            return
        self._has_looked = True
        # Of an agent under another name than its token's nothing is known.
        if self.agent and self.agent != page["caller"]:
            return
        serves = page["serves"] or {"endpoint": "", "offers": []}
        for offer in self._offers:
            if serves["endpoint"] != self._endpoint["type"] or offer.key not in serves["offers"]:
                log.warning(
                    "nobody is sent here for %s: the sidecar's table has no provider %s that offers it with endpoint "
                    '{type: http, address: "%s"}',
                    offer.key,
                    page["caller"],
                    self._endpoint["address"],
                )

    async def keep(self, leaving: asyncio.Event) -> None:
        """Signs of life until the event is set. A sidecar that does not take one is registered at again: it has been restarted,
        or says then what is wrong. Raises when it has taken the credential back, as the channel ends then: trying again would
        do no good."""
        backoff = Backoff()
        has_warned = False
        while True:
            await pause(self._lease_ms / 1000 / _BEATS_PER_LEASE if self._is_well else backoff.next(), leaving)
            if leaving.is_set():
                return
            try:
                if not self._is_known or await self._status("POST", f"/v1/agents/{self.agent}/heartbeat") >= 300:
                    await self.enter()
                self._is_well = True
                backoff.reset()
                has_warned = False
            except ReachError as error:
                if error.code == Code.UNAUTHENTICATED:
                    log.warning("not registered at the sidecar any more: %s", error)
                    raise
                if not has_warned:
                    log.warning("not registered at the sidecar: %s; trying again", error)
                has_warned = True
                self._is_well = False

    async def leave(self) -> None:
        """A clean goodbye: nothing new is sent here. Harmless when the sidecar is away."""
        if not self._is_known:
            return
        self._is_known = False
        try:
            await self._status("DELETE", f"/v1/agents/{self.agent}")
        except ReachError:
            pass

    async def _status(self, method: str, path: str) -> int:
        status, _, _, _ = await self._http.ask(Ask(method, path, {}, None, _PATIENCE))
        return status
