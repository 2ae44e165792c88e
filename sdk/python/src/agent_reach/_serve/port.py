"""Serving on a port of the agent's own: every POST is a request of the sidecar. It is for the sidecar alone: a request
without the sidecar's headers is turned away, which no web page can send, and so is one under a foreign name of the host.
Whoever can reach the port from this machine could call past the sidecar; use the channel where that matters."""

from __future__ import annotations

import asyncio
from typing import Any, Optional, Set

from aiohttp import web

from .._http import log
from .handlers import Answer, Handlers
from .payload import payload_of

# Longer than the sidecar keeps an idle connection, so that the sidecar is the one who closes it.
_KEEP_ALIVE = 75.0
# A sidecar hands on more than the server's own limit for one header would take.
_MAX_HEADER_BYTES = 65_536
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})


class Port:
    def __init__(self, handlers: Handlers, host: str) -> None:
        self._handlers = handlers
        self._host = host
        self._runner: Optional[web.ServerRunner] = None
        self._site: Optional[web.TCPSite] = None
        self._under_way: Set["asyncio.Task[Any]"] = set()

    @property
    def port(self) -> int:
        assert self._runner is not None
        return int(self._runner.addresses[0][1])

    async def open(self, port: int) -> None:
        server = web.Server(
            self._serve,
            handler_cancellation=True,
            keepalive_timeout=_KEEP_ALIVE,
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
            access_log=None,
        )
        runner = web.ServerRunner(server, handle_signals=False)
        await runner.setup()
        self._runner = runner
        self._site = web.TCPSite(runner, self._host, port)
        try:
            await self._site.start()
        except BaseException:
            await runner.cleanup()
            raise

    async def close(self, grace: float) -> None:
        """What is under way has `grace` seconds to end."""
        if self._runner is None or self._site is None:
            return
        await self._site.stop()
        if self._under_way:
            await asyncio.wait(list(self._under_way), timeout=grace)
        assert self._runner.server is not None
        await self._runner.server.shutdown(0.1)
        await self._runner.cleanup()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        capability = request.headers.get("reach-capability")
        if request.method != "POST" or capability is None or not self._is_ours(request.host):
            return web.json_response({"error": "this port is for the agent's sidecar"}, status=404)
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            return await self._answered(request, capability)
        finally:
            self._under_way.discard(task)

    async def _answered(self, request: web.BaseRequest, capability: str) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            payload = payload_of(await request.content.read(), headers.get("content-type", ""))
        except ValueError:
            return web.json_response({"error": "the payload is not JSON"}, status=400)
        made: Optional[web.StreamResponse] = None

        async def respond(answer: Answer) -> None:
            nonlocal made
            made = await _sent(request, answer, capability)

        await self._handlers.run(capability, headers.get("reach-version", ""), payload, headers, respond)
        assert made is not None
        return made

    def _is_ours(self, host: str) -> bool:
        return self._host not in _LOOPBACK or host.lower().rsplit(":", 1)[0] in _LOOPBACK


async def _sent(request: web.BaseRequest, answer: Answer, capability: str) -> web.StreamResponse:
    headers = {**answer.headers, "content-type": answer.content_type}
    if answer.chunks is None:
        return web.Response(status=answer.status, headers=headers, body=answer.body)
    response = web.StreamResponse(status=answer.status, headers=headers)
    response.enable_chunked_encoding()
    await response.prepare(request)
    try:
        async for chunk in answer.chunks:
            await response.write(chunk)
    except (ConnectionError, asyncio.CancelledError):
        raise
    except Exception:
        log.exception("the answer to %s was cut", capability)
        # Without its last chunk nobody takes it for a whole one.
        if request.transport is not None:
            request.transport.close()
        return response
    await response.write_eof()
    return response
