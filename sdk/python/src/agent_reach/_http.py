"""The connection to the sidecar. No proxy setting of the environment applies, no hidden time limit cuts a quiet stream,
and a call is sent once and never repeated, since only the sidecar knows what may be."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import time
from typing import Any, Awaitable, Dict, Mapping, Optional, Tuple, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import aiohttp
from yarl import URL

from ._ask import Ask
from ._codes import Code
from ._errors import ReachError
from ._result import own_failure, parsed, result_in

DEFAULT_URL = "http://127.0.0.1:7700"
_UNIX = "unix:"
# The sidecar answers when the time is over; the client's own clock is for a sidecar that does not.
_GRACE = 0.5
# Less than the sidecar keeps an idle connection, so that no call meets one that is being closed.
_KEEP_ALIVE = 60.0

log = logging.getLogger("agent_reach")
T = TypeVar("T")


def settings_of(url: Optional[str], token: Optional[str]) -> Tuple[str, str]:
    """Address and token: what is given, then the environment, then the sidecar's shipped address."""
    text = url or os.environ.get("REACH_URL") or DEFAULT_URL
    if text.startswith(_UNIX):
        if not text.startswith(_UNIX + "/"):
            raise ValueError(f"the address of a sidecar's socket reads like unix:/run/reach/agents.sock, not {text!r}")
        return text, token if token is not None else os.environ.get("REACH_TOKEN", "")
    parts = urlsplit(text)
    if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError(f"the sidecar's address reads like {DEFAULT_URL}, not {text!r}")
    return f"http://{parts.netloc}", token if token is not None else os.environ.get("REACH_TOKEN", "")


class Http:
    def __init__(self, url: str, token: str) -> None:
        # Of a socket in the file system, any address will do: it says nothing about where the connection leads.
        self._socket = url[len(_UNIX) :] if url.startswith(_UNIX) else None
        self.url = url if self._socket is None else "http://localhost"
        self._token = token
        self._api_token = os.environ.get("REACH_API_TOKEN", "")
        self.is_closed = False
        """Nobody wants anything more of it."""
        self._sessions: "WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession]" = WeakKeyDictionary()

    @property
    def session(self) -> aiohttp.ClientSession:
        """One for each event loop: connections belong to the loop that made them."""
        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None or session.closed:
            session = self._sessions[loop] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE)
                if self._socket is None
                else aiohttp.UnixConnector(self._socket, limit=0, keepalive_timeout=_KEEP_ALIVE),
                timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                headers={"accept-encoding": "identity", "user-agent": "agent-reach-python"},
                skip_auto_headers=("accept",),
            )
        return session

    @property
    def authorization(self) -> Dict[str, str]:
        shown = {"authorization": f"Bearer {self._token}"} if self._token else {}
        if self._api_token:
            shown["reach-api-token"] = self._api_token
        return shown

    async def close(self) -> None:
        """Those of this loop: whoever has called from several loops closes in each."""
        self.is_closed = True
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()

    def open(self, ask: Ask) -> "Exchange":
        return Exchange(self, ask)

    async def ask(self, ask: Ask) -> Tuple[int, Mapping[str, str], bytes, float]:
        """Status, headers, body, milliseconds. Raises ReachError when there is no whole answer."""
        exchange = self.open(ask)
        try:
            response = await exchange.head()
            body = await exchange.limited(response.read())
            return response.status, response.headers, body, exchange.elapsed_ms
        finally:
            exchange.done()

    def is_anonymous(self, ask: Ask) -> bool:
        """It goes without a credential."""
        return not self._token and "authorization" not in ask.headers

    async def json(self, method: str, path: str, body: Any = None, limit: float = 10.0) -> Any:
        """A page of the sidecar; raises ReachError for anything but a success."""
        headers = {} if body is None else {"content-type": "application/json"}
        ask = Ask(method, path, headers, None if body is None else json.dumps(body).encode(), limit)
        status, answered, text, elapsed_ms = await self.ask(ask)
        value = parsed(text)
        if status < 300 and (isinstance(value, dict) or status == 204):
            return value
        result = result_in(status, answered, text, elapsed_ms, self.is_anonymous(ask))
        raise ReachError(own_failure(Code.BAD_RESPONSE, f"{method} {path}: the answer is not a sidecar's", False) if result.ok else result)


class Exchange:
    """One request under way. `done` must be called, and cuts what has not come to its end."""

    def __init__(self, http: Http, ask: Ask) -> None:
        self._http = http
        self._ask = ask
        self._started_at = time.monotonic()
        self._response: Optional[aiohttp.ClientResponse] = None

    @property
    def elapsed_ms(self) -> float:
        return (time.monotonic() - self._started_at) * 1000

    async def head(self) -> aiohttp.ClientResponse:
        ask = self._ask
        url = URL(self._http.url + ask.path, encoded=True)
        headers = {**self._http.authorization, **ask.headers}
        asked = self._http.session.request(ask.method, url, data=ask.body, headers=headers, allow_redirects=False)
        self._response = await self.limited(_opened(asked))
        return self._response

    async def limited(self, work: Awaitable[T], code: Code = Code.CONNECTION_LOST) -> T:
        """Waits no longer than the call may take, and tells what goes wrong as a ReachError (a break as `code`)."""
        try:
            if self._ask.limit == math.inf:
                return await work
            left = max(0.0, self._ask.limit) + _GRACE - (time.monotonic() - self._started_at)
            return await asyncio.wait_for(work, max(0.0, left))
        except asyncio.TimeoutError:
            words = f"the sidecar did not answer within {round(self._ask.limit * 1000)} ms"
            raise ReachError(own_failure(Code.DEADLINE_EXCEEDED, words, True, self.elapsed_ms)) from None
        except aiohttp.ClientConnectorError as error:
            words = f"no sidecar answers at {self._http.url}: {error}"
            raise ReachError(own_failure(Code.CONNECT_TIMEOUT, words, False, self.elapsed_ms)) from error
        except (aiohttp.ClientError, OSError) as error:
            words = f"the connection to the sidecar at {self._http.url} broke: {error or type(error).__name__}"
            raise ReachError(own_failure(code, words, True, self.elapsed_ms)) from error

    def done(self) -> None:
        # A response that was read to its end has given its connection back already; any other is closed.
        if self._response is not None:
            self._response.close()


async def _opened(asked: Any) -> aiohttp.ClientResponse:
    response: aiohttp.ClientResponse = await asked
    return response
