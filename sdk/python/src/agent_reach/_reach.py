"""The client. Everything that is decided is decided by the sidecar: this puts questions in its words and reads its answers,
repeats nothing, and keeps nothing but connections."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Callable, Dict, List, Mapping, Optional, Type, TypeVar

from ._ask import Ask, ask_for, timed
from ._cast import cast_ask
from ._codes import Code
from ._errors import ReachError
from ._frames import FRAMES_TYPE
from ._http import Http, settings_of
from ._inbox import Inbox
from ._result import Result, own_failure, parsed, result_in
from ._scope import budget_text, changed, limited, scope_now, within
from ._serve.handlers import THREADS, Handlers
from ._serve.offer import Offer
from ._serve.serving import Serving
from ._stream import Stream
from ._task import Task, task_in
from ._work import extend, tell_done

H = TypeVar("H", bound=Callable[..., Any])


class Reach:
    """`Reach()` reads `REACH_URL` (default http://127.0.0.1:7700) and `REACH_TOKEN`, the agent's own token.

    Options of a call (`invoke`, `call`, `stream`, `explain`):

    deadline: seconds for the whole call; never more than what is left of the work that it is part of.
    budget: seconds of each step, in order; `step` says which one this call is.
    affinity: key of the conversation, calls with the same one meet the same agent.
    sequence_id: the caller's own conversation, handed on to the calls below.
    pin: the provider that is wanted, by agent id.
    tags: only providers with these.
    execution: how often the work may run, for this call: once, idempotent or keyed.
    idempotency_key: the same key with the same payload means the same work.
    headers: further headers, for the agent; they win over what this client writes.
    content_type: of a payload of bytes; default application/octet-stream.
    """

    def __init__(self, url: Optional[str] = None, token: Optional[str] = None) -> None:
        self._http = Http(*settings_of(url, token))
        self._handlers = Handlers()
        self._serving: Optional[Serving] = None

    async def __aenter__(self) -> "Reach":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], at: Optional[TracebackType]) -> None:
        await self.close()

    async def invoke(
        self,
        target: str,
        payload: Any = None,
        *,
        deadline: Optional[float] = None,
        budget: Optional[Mapping[str, float]] = None,
        step: Optional[str] = None,
        affinity: Optional[str] = None,
        sequence_id: Optional[str] = None,
        pin: Optional[str] = None,
        tags: Optional[Mapping[str, str]] = None,
        execution: Optional[str] = None,
        idempotency_key: Optional[str] = None,
        headers: Optional[Mapping[str, str]] = None,
        content_type: Optional[str] = None,
    ) -> Result:
        """`name`, alias or `name@range`, and a payload: JSON, or bytes. Raises ReachError unless it succeeds."""
        result = await self.call(
            target,
            payload,
            deadline=deadline,
            budget=budget,
            step=step,
            affinity=affinity,
            sequence_id=sequence_id,
            pin=pin,
            tags=tags,
            execution=execution,
            idempotency_key=idempotency_key,
            headers=headers,
            content_type=content_type,
        )
        if not result.ok:
            raise ReachError(result)
        return result

    async def call(
        self,
        target: str,
        payload: Any = None,
        *,
        deadline: Optional[float] = None,
        budget: Optional[Mapping[str, float]] = None,
        step: Optional[str] = None,
        affinity: Optional[str] = None,
        sequence_id: Optional[str] = None,
        pin: Optional[str] = None,
        tags: Optional[Mapping[str, str]] = None,
        execution: Optional[str] = None,
        idempotency_key: Optional[str] = None,
        headers: Optional[Mapping[str, str]] = None,
        content_type: Optional[str] = None,
    ) -> Result:
        """The same, and a failure is a Result as well: look at `ok`. Raises only for what cannot be sent at all."""
        ask = ask_for(
            "/v1/invoke/",
            target,
            payload,
            scope_now(),
            deadline=deadline,
            budget=budget,
            step=step,
            affinity=affinity,
            sequence_id=sequence_id,
            pin=pin,
            tags=tags,
            execution=execution,
            idempotency_key=idempotency_key,
            headers=headers,
            content_type=content_type,
        )
        ask = timed(ask, scope_now())
        try:
            status, answered, body, elapsed_ms = await self._http.ask(ask)
        except ReachError as error:
            return error.result
        return result_in(status, answered, body, elapsed_ms, self._http.is_anonymous(ask))

    def stream(
        self,
        target: str,
        payload: Any = None,
        *,
        deadline: Optional[float] = None,
        budget: Optional[Mapping[str, float]] = None,
        step: Optional[str] = None,
        affinity: Optional[str] = None,
        sequence_id: Optional[str] = None,
        pin: Optional[str] = None,
        tags: Optional[Mapping[str, str]] = None,
        execution: Optional[str] = None,
        idempotency_key: Optional[str] = None,
        headers: Optional[Mapping[str, str]] = None,
        content_type: Optional[str] = None,
    ) -> Stream:
        """The answer as it comes. Nothing is sent before the first piece is asked for; from then on `deadline` counts."""
        scope = scope_now()
        ask = ask_for(
            "/v1/stream/",
            target,
            payload,
            scope,
            deadline=deadline,
            budget=budget,
            step=step,
            affinity=affinity,
            sequence_id=sequence_id,
            pin=pin,
            tags=tags,
            execution=execution,
            idempotency_key=idempotency_key,
            headers=headers,
            content_type=content_type,
        )
        ask.headers.setdefault("accept", FRAMES_TYPE)
        return Stream(self._http, ask, scope)

    async def cast(
        self,
        target: Optional[str] = None,
        payload: Any = None,
        *,
        role: Optional[str] = None,
        agent: Optional[str] = None,
        message_type: Optional[str] = None,
        priority: Optional[str] = None,
        idempotency_key: Optional[str] = None,
        sequence_id: Optional[str] = None,
        tags: Optional[Mapping[str, str]] = None,
        retryable: Optional[bool] = None,
        expires: Optional[float] = None,
        deadline: Optional[float] = None,
        reply_to: Optional[str] = None,
        in_reply_to: Optional[str] = None,
        best_effort: bool = False,
        headers: Optional[Mapping[str, str]] = None,
        content_type: Optional[str] = None,
    ) -> Task:
        """Gives work away: to a capability (`name`, alias or `name@range`), a role or an agent. Returns when the message is
        durable, in NATS or on the sidecar's disk (`task.accepted.durable`): from then on it is not lost, and has one end.
        States and result come to the task, and to the inbox. `payload` is anything that JSON can say, or bytes.

        Raises ReachError when it was not accepted: 3004 above the agent's rate (`error.result.retry_after_ms`), 7001 when it
        can be kept nowhere now (send it again, with the same key), 4005 when it is too large, 4008 when the key is somebody
        else's, and as a call would: 2001, 2002, 2003, 4002, 4003. It says nothing of a message whose answer was lost on the
        way (`error.ambiguous`): with an `idempotency_key` it is safe to send it again.

        message_type: default task_request. priority: high, normal or low. idempotency_key: the same key with the same
        payload means the same work, and has one result. sequence_id: the sender's conversation; default that of the work
        that it is part of. retryable: whether a try that failed may be followed by another; default it may. expires:
        seconds after which it is given up when nobody has begun; default 24 hours. deadline: working time of all tries
        together, in seconds. reply_to: `inbox` (default) or `none`. in_reply_to: the task to which it belongs. best_effort:
        where nothing durable can be had, try at once without a promise.
        """
        ask = cast_ask(
            target,
            payload,
            scope_now(),
            role=role,
            agent=agent,
            message_type=message_type,
            priority=priority,
            idempotency_key=idempotency_key,
            sequence_id=sequence_id,
            tags=tags,
            retryable=retryable,
            expires=expires,
            deadline=deadline,
            reply_to=reply_to,
            in_reply_to=in_reply_to,
            best_effort=best_effort,
            headers=headers,
            content_type=content_type,
        )
        return task_in(self._http, ask, *await self._http.ask(ask))

    def task(self, task_id: str) -> Task:
        """A task that this agent has sent before, by its id (`task.id`). Nothing is asked yet."""
        return Task(self._http, task_id)

    async def done(self, task_id: str, result: Any = None, *, status: Optional[int] = None, content_type: Optional[str] = None) -> None:
        """How work ended that this agent has taken with 202 (`context.status = 202`) and gone on with; the id is the context's
        `task_id`. Raises ReachError when it is not taken, or could not be stored yet (then say it again).

        status: the agent's own, 200 … 299 (default 200) done, 400 … 599 it failed.
        """
        await tell_done(self._http, task_id, result, status, content_type)

    async def extend(self, task_id: str) -> float:
        """This agent is still at work on a task: its time begins anew. Returns the seconds that it has now."""
        return await extend(self._http, task_id)

    def inbox(self, *, from_seq: Optional[int] = None, ack: str = "auto") -> Inbox:
        """What waits for this agent, and what comes: read it with `async for`.

        from_seq: the position of the entry that is wanted next; default: after what is acknowledged. ack: with `auto` an
        entry counts as taken when the next one is asked for, with `manual` by `await entry.ack()`.
        """
        return Inbox(self._http, from_seq, ack)

    async def explain(
        self,
        target: str,
        payload: Any = None,
        *,
        affinity: Optional[str] = None,
        sequence_id: Optional[str] = None,
        pin: Optional[str] = None,
        tags: Optional[Mapping[str, str]] = None,
        execution: Optional[str] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> Dict[str, Any]:
        """Who would serve it and why nobody else, as the sidecar tells it. Nothing is sent to any agent."""
        ask = ask_for(
            "/v1/explain/",
            target,
            payload,
            scope_now(),
            deadline=None,
            budget=None,
            step=None,
            affinity=affinity,
            sequence_id=sequence_id,
            pin=pin,
            tags=tags,
            execution=execution,
            idempotency_key=None,
            headers=headers,
            content_type=None,
        )
        ask = timed(ask, scope_now())
        if payload is None:
            ask.headers.pop("content-type", None)
            ask = Ask("GET", ask.path, ask.headers, None, ask.limit)
        status, answered, body, elapsed_ms = await self._http.ask(ask)
        told = parsed(body)
        if status == 200 and isinstance(told, dict):
            return told
        result = result_in(status, answered, body, elapsed_ms, self._http.is_anonymous(ask))
        raise ReachError(own_failure(Code.BAD_RESPONSE, "the answer is not a sidecar's", False) if result.ok else result)

    async def capabilities(self) -> List[Dict[str, Any]]:
        """What this agent may call: name, aliases, and each version with its contract."""
        page = await self._http.json("GET", "/v1/capabilities")
        listed: List[Dict[str, Any]] = page["capabilities"]
        return listed

    def deadline(self, seconds: float) -> AbstractContextManager[None]:
        """Every call inside has what is left of the seconds, at most, however deep."""
        return within(limited(seconds))

    def budget(self, steps: Optional[Mapping[str, float]] = None, /, **more: float) -> AbstractContextManager[None]:
        """Seconds of each step of the task, in order, by name or as a mapping; `step` says which one a call is."""
        return within(changed(budget=budget_text({**(steps or {}), **more})))

    def step(self, name: str) -> AbstractContextManager[None]:
        return within(changed(step=name))

    def conversation(self, sequence_id: str) -> AbstractContextManager[None]:
        """Calls inside belong to one conversation, and meet the same agents."""
        return within(changed(sequence_id=sequence_id))

    @property
    def left(self) -> float:
        """Seconds left of the work under way here; inf when nobody has said."""
        return scope_now().left

    def serve(self, capability: str, **contract: Any) -> Callable[[H], H]:
        """Makes a function the agent's answer to a capability, `name@version`; `run` or `start` begins to serve.

        It takes the payload and, if it has a second parameter, the Context. It gives JSON or bytes, or is an (async)
        generator of text, bytes or JSON values: a streamed answer. A plain function runs in a thread of its own (`threads` of
        `start` and `run` says how many there are at most).

        `contract` are fields of the contract under their own names: `acl` (the word "public", or who may call),
        `execution`, `description`, `input`, `output`, `timeout`, … Only a sidecar with a registry wants them; without
        `acl` no contract is sent, since the registry has one already.
        """

        def add(handler: H) -> H:
            if self._serving is not None:
                raise RuntimeError("serve everything before start()")
            self._handlers.add(Offer(capability, contract), handler)
            return handler

        return add

    async def start(
        self,
        *,
        port: Optional[int] = None,
        host: str = "127.0.0.1",
        address: Optional[str] = None,
        agent: str = "",
        grace: float = 10.0,
        threads: int = THREADS,
    ) -> Serving:
        """Begins to serve; returns when calls can come, raises when the sidecar or its registry refuses.

        port: serves on this port instead of the channel; 0 = any that is free. host: where the port listens.
        address: under which the sidecar reaches the port, when it is not `http://host:port`. agent: agent id for the
        registry; default: the token's. grace: seconds that work under way may take when closing. threads: how many plain
        functions are at work at a time, at most (each in a thread of its own; generators count while they make a piece);
        a call beyond them waits for one to end.
        """
        if self._serving is not None:
            raise RuntimeError("it serves already")
        if not self._handlers.offers:
            raise RuntimeError("there is nothing to serve: decorate a function with @reach.serve(capability) first")
        self._handlers.open(threads)
        serving = self._serving = Serving(self._http, self._handlers, grace=grace)
        try:
            if port is None:
                await serving.dial_in(agent)
            else:
                await serving.listen(host, port, address, agent)
        except BaseException:
            self._serving = None
            raise
        return serving

    def run(
        self,
        *,
        port: Optional[int] = None,
        host: str = "127.0.0.1",
        address: Optional[str] = None,
        agent: str = "",
        grace: float = 10.0,
        threads: int = THREADS,
    ) -> None:
        """Serves until SIGINT or SIGTERM, then finishes what is under way and closes. Options as `start` has them."""
        asyncio.run(self._run(port=port, host=host, address=address, agent=agent, grace=grace, threads=threads))

    async def close(self) -> None:
        """Finishes what is being served, then closes every connection."""
        if self._serving is not None:
            await self._serving.close()
            self._serving = None
        await self._http.close()

    async def _run(self, **options: Any) -> None:
        loop = asyncio.get_running_loop()
        asked = asyncio.Event()
        for one in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(one, asked.set)
            except (NotImplementedError, RuntimeError, ValueError):
                # Signals are the main thread's affair, and this is another one, or a system without them.
                break
        stopping = asyncio.ensure_future(asked.wait())
        work = asyncio.ensure_future(self._serve_until_closed(options))
        try:
            await asyncio.wait([stopping, work], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            stopping.cancel()
            work.cancel()
            await asyncio.wait([work])
            await self.close()

    async def _serve_until_closed(self, options: Dict[str, Any]) -> None:
        serving = await self.start(**options)
        await serving.closed()
