"""The Python client, checked from within: one line of JSON a check, `{"name", "ok", "problem"}`. Arguments: url, token, and
the url of a server that is no sidecar. The agent behind the sidecar is `node.work.*` of `node-agent.ts`."""

import asyncio
import base64
import json
import logging
import math
import os
import sys
import threading
import time
import traceback
from types import SimpleNamespace
from unittest.mock import patch

from agent_reach import AgentError, Code, Reach, ReachError, _scope
from agent_reach._codes import is_retryable
from agent_reach._events import EventReader, LineReader
from agent_reach._result import result_in
from agent_reach._serve.handlers import Handlers
from agent_reach._serve.offer import Offer
from agent_reach._serve.running import Running
from agent_reach._serve.within import within

url, token, stranger = sys.argv[1:4]
checks = []


def check(function):
    checks.append(function)
    return function


async def failure(awaitable):
    try:
        await awaitable
    except ReachError as error:
        return error
    raise AssertionError("it did not fail")


async def read(stream):
    return "".join([text async for text in stream])


@check
async def the_result_has_every_field(reach):
    result = await reach.invoke("node.work.echo@^1.0", {"ä": [1, None]}, deadline=2.0, affinity="talk", headers={"X-Own": "mine"})
    assert result.ok and result.code == 0 and result.error is None and result.status == 200, result
    assert result.data["payload"] == {"ä": [1, None]} and result.data["own"] == "mine" and result.data["affinity"] == "talk", result
    assert result.data["left_ms"] <= 2000, result
    assert result.provider == "sdk.node.1" and result.version == "1.0.0" and len(result.trace_id) == 32, result
    assert [(one.provider, one.code, one.started) for one in result.attempts] == [("sdk.node.1", 0, "done")], result
    assert result.elapsed_ms > 0 and not result.degraded and not result.definitely_success, result


@check
async def options_are_said_to_the_sidecar(reach):
    data = (await reach.invoke("node.work.echo", b"\0\xff", idempotency_key="k", sequence_id="s", tags={}, pin="sdk.node.1")).data
    assert data["payload"] == {"bytes": 2} and data["idempotency_key"] == "k" and data["sequence_id"] == "s", data
    assert (await reach.invoke("node.work.echo", "grüß".encode(), content_type="text/plain")).data["payload"] == "grüß"
    assert not (await reach.call("node.work.echo", 1, pin="sdk.nobody.1")).ok
    assert (await reach.call("node.work.echo", 1, tags={"lang": "xx"})).code == Code.NO_PROVIDER
    wrong = await reach.call("node.work.echo", 1, budget={"a": 1.0}, step="b")
    assert wrong.code == Code.INVALID_REQUEST and "Reach-Step" in wrong.error.detail, wrong


@check
async def a_failure_is_an_error_or_a_result(reach):
    error = await failure(reach.invoke("node.work.echo@^2.0"))
    assert (error.code, error.name, error.retryable, error.ambiguous) == (2002, "no_matching_version", False, False), error
    assert "exists: 1.0.0" in str(error) and error.result.attempts == [] and error.result.status == 0
    result = await reach.call("node.work.fail", {"status": 409, "why": "taken"})
    assert not result.ok and result.code == Code.PROVIDER_ERROR and result.status == 409 and result.data == {"why": "taken"}, result
    definite = await reach.call("node.work.definite")
    assert definite.ok and definite.definitely_success and definite.status == 404, definite
    nobody = Reach(url, "wrong")
    assert (await nobody.call("node.work.echo")).code == Code.UNAUTHENTICATED
    assert (await failure(nobody.capabilities())).code == Code.UNAUTHENTICATED
    await nobody.close()


@check
async def what_is_no_json_is_not_sent(reach):
    for payload in (object(), math.nan, {"a": math.inf}, {1, 2}):
        try:
            await reach.call("node.work.echo", payload)
        except (TypeError, ValueError):
            continue
        raise AssertionError(f"{payload!r} was sent")


@check
async def explain_and_capabilities(reach):
    told = await reach.explain("node.work.echo@^1.0")
    assert told["would_serve"]["provider"] == "sdk.node.1", told
    assert (await reach.explain("node.work.echo@^9.0", {"a": 1}))["refusal"]["code"] == 2002
    assert "node.work.echo" in [one["name"] for one in await reach.capabilities()]


@check
async def streams_end_as_ends_and_cuts_as_cuts(reach):
    stream = reach.stream("node.work.count", {"n": 4, "pause_ms": 20})
    first_at = None
    began = time.monotonic()
    text = ""
    async for piece in stream:
        first_at = first_at or time.monotonic() - began
        text += piece
    assert text == "0 1 2 3 " and first_at < time.monotonic() - began - 0.04, (text, first_at)
    assert stream.result.ok and stream.result.provider == "sdk.node.1", stream.result
    assert (await stream.head()).content_type.startswith("text/plain")
    got = []

    async def cut():
        async for piece in reach.stream("node.work.count", {"n": 4, "break_at": 2, "pause_ms": 20}):
            got.append(piece)

    assert (await failure(cut())).code == Code.STREAM_INTERRUPTED and "".join(got) == "0 1 ", got
    assert (await failure(reach.stream("node.work.count", {"n": 1, "break_at": 0}).head())).data == {"at": 0}
    assert [value async for value in reach.stream("node.work.count", {"n": 2, "kind": "json"}).messages()] == [{"i": 0}, {"i": 1}]
    size = sum([len(piece) async for piece in reach.stream("node.work.count", {"n": 40, "kind": "bytes", "size": 65536}).bytes()])
    assert size == 40 * 65536, size
    plain = reach.stream("node.work.count", {"n": 2}, headers={"accept": "*/*"})
    assert await read(plain) == "0 1 " and plain.result.provider == "sdk.node.1"
    again = await asyncio.gather(read(plain), return_exceptions=True)
    assert isinstance(again[0], TypeError), again


@check
async def leaving_cancels(reach):
    async def cancelled():
        return (await reach.invoke("node.work.seen")).data["cancelled"]

    async def until(count):
        for _ in range(300):
            if await cancelled() == count:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{await cancelled()} are cancelled, not {count}")

    before = await cancelled()
    async with reach.stream("node.work.hang_stream") as stream:
        async for piece in stream:
            assert piece == "first"
            break
    await until(before + 1)
    async for piece in reach.stream("node.work.hang_stream"):
        break
    await until(before + 2)
    task = asyncio.ensure_future(reach.invoke("node.work.hang", {}))
    await asyncio.sleep(0.1)
    task.cancel()
    await until(before + 3)
    assert (await reach.call("node.work.hang", {}, deadline=0.1)).code == Code.DEADLINE_EXCEEDED
    await until(before + 4)


@check
async def the_context_is_carried(reach):
    async def echoed(**options):
        return (await reach.invoke("node.work.echo", **options)).data

    with reach.deadline(1.0):
        assert (await echoed(deadline=9.0))["left_ms"] <= 1000
        with reach.deadline(60.0):
            assert (await echoed())["left_ms"] <= 1000
        with reach.deadline(0.2):
            assert (await echoed())["left_ms"] <= 200
        assert 0 < reach.left <= 1.0
    assert reach.left == math.inf
    with reach.deadline(0.0):
        assert (await reach.call("node.work.echo")).code == Code.DEADLINE_EXCEEDED
    with reach.conversation("talk-1"):
        one, two = await asyncio.gather(echoed(), echoed())
        assert one["trace_id"] == two["trace_id"] and one["sequence_id"] == "talk-1", (one, two)
    assert (await echoed())["sequence_id"] is None
    with reach.deadline(2.0), reach.budget(intent=0.5, order=0.5, answer=0.5):
        with reach.step("intent"):
            assert (await echoed())["left_ms"] <= 1000
        with reach.step("answer"):
            assert (await echoed())["left_ms"] > 1000
    with reach.deadline(2.0), reach.budget({"the-first": 0.5, "the-last": 1.0}), reach.step("the-first"):
        assert (await echoed())["left_ms"] <= 1000


@check
async def a_sidecar_that_is_away_or_none(reach):
    away = Reach("http://127.0.0.1:1", token)
    result = await away.call("node.work.echo")
    assert (result.code, result.error.name, result.error.ambiguous, result.error.retryable) == (1001, "connect_timeout", False, True), result
    assert (await failure(away.stream("node.work.echo").head())).code == Code.CONNECT_TIMEOUT
    await away.close()
    for word, code, options in (
        ("html", Code.BAD_RESPONSE, {}),
        ("hangs", Code.DEADLINE_EXCEEDED, {"deadline": 0.1}),
        ("breaks", Code.CONNECTION_LOST, {}),
        ("half", Code.CONNECTION_LOST, {}),
    ):
        other = Reach(stranger, token)
        result = await other.call(f"x.y.{word}", **options)
        assert result.code == code, (word, result)
        await other.close()
    for word in ("frames_cut", "frames_version", "frames_type", "frames_nonsense", "frames_lie", "frames_more", "frames_none"):
        async with Reach(stranger, token) as other:
            assert (await failure(read(other.stream(f"x.y.{word}")))).code == Code.STREAM_INTERRUPTED, word
    async with Reach(stranger, token) as other:
        assert await read(other.stream("x.y.frames_good")) == "ok"


@check
async def addresses_and_the_environment(reach):
    for bad in ("127.0.0.1:7700", "https://127.0.0.1:7700", "http://127.0.0.1:7700/v1", "nonsense"):
        try:
            Reach(bad)
        except ValueError as error:
            assert "the sidecar's address reads like http://127.0.0.1:7700" in str(error)
            continue
        raise AssertionError(f"{bad} was taken")
    os.environ.update(REACH_URL=url, REACH_TOKEN=token, http_proxy="http://127.0.0.1:1", HTTP_PROXY="http://127.0.0.1:1")
    async with Reach() as other:
        assert (await other.call("node.work.echo")).ok


@check
async def events_and_lines_however_they_are_cut(reach):
    text = "\ufeffevent: a\r\ndata: 1\r\n\r\ndata\ndata:  x\rid: 9\n\n: note\nretry: 5\n\ndata: end\n\n"
    whole = [(one.event, one.data, one.id) for one in EventReader().push(text)]
    assert whole == [("a", "1", ""), ("message", "\n x", "9"), ("message", "end", "9")], whole
    for cut in range(1, 8):
        events, lines, got, split = EventReader(), LineReader(), [], []
        for at in range(0, len(text), cut):
            got += [(one.event, one.data, one.id) for one in events.push(text[at : at + cut])]
        assert got == whole, (cut, got)
        for at in range(0, 8, cut):
            split += lines.push("a\r\nb\rc\nd"[at : at + cut])
        assert [*split, lines.finish()] == ["a", "b", "c", "d"], (cut, split)
    assert [one.data for one in EventReader().push("data: 1\r\r")] == ["1"], "a lone CR ends its line at once"
    lines, began = LineReader(), time.monotonic()
    for _ in range(2000):
        lines.push("x" * 8192)
    assert len(lines.push("\n")[0]) == 16_384_000 and time.monotonic() - began < 2, "a long line costs no more than its length"


@check
async def a_stream_is_sent_once_whoever_asks_for_its_head(reach):
    before = (await reach.invoke("node.work.seen")).data["pulled"]
    stream = reach.stream("node.work.count", {"n": 3})
    heads = await asyncio.gather(stream.head(), stream.head())
    assert heads[0] is heads[1]
    assert await read(stream) == "0 1 2 "
    assert (await reach.invoke("node.work.seen")).data["pulled"] == before + 3
    hung = (await reach.invoke("node.work.seen")).data["hung"]
    left = reach.stream("node.work.hang", {})
    try:
        await asyncio.wait_for(left.head(), 0.3)
    except asyncio.TimeoutError:
        assert (await failure(read(left))).code == Code.CANCELLED
    assert (await reach.invoke("node.work.seen")).data["hung"] == hung + 1
    closed = reach.stream("node.work.hang", {})
    opening = asyncio.create_task(closed.head())
    await asyncio.sleep(0.1)
    await closed.aclose()
    try:
        await asyncio.wait_for(opening, 1)
    except asyncio.CancelledError:
        assert (await failure(closed.head())).code == Code.CANCELLED
    async with Reach("http://127.0.0.1:1") as nowhere:
        broken = nowhere.stream("a.b.c")
        first = await failure(broken.head())
        assert await failure(read(broken)) is first


@check
async def one_client_serves_several_event_loops(reach):
    sessions = []

    async def elsewhere():
        for _ in range(3):
            assert (await reach.call("node.work.echo", 1)).ok
            sessions.append(id(reach._http.session))
            await asyncio.sleep(0.05)
        await reach.close()

    mine = [id(reach._http.session)]
    other = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(elsewhere(), debug=False)))
    while not other.done():
        assert (await reach.call("node.work.echo", 1)).ok
        mine.append(id(reach._http.session))
        await asyncio.sleep(0.02)
    await other
    assert len(set(mine)) == 1 and len(set(sessions)) == 1 and mine[0] != sessions[0], (mine, sessions)


@check
async def a_scope_may_be_left_by_somebody_else(reach):
    async def pieces():
        with reach.deadline(1.0):
            yield reach.left
            yield 2

    opened = pieces()
    assert await opened.__anext__() <= 1
    await asyncio.create_task(opened.aclose())


@check
async def serving_is_judged_at_once(reach):
    agent = Reach(url, token)
    agent.serve("a.b.c@1.0.0")(lambda payload: payload)
    for name in ("a.b.c@1.0.0", "a.b.c"):
        try:
            agent.serve(name)(lambda payload: payload)
        except ValueError:
            continue
        raise AssertionError(f"{name} was taken")
    try:
        await Reach(url, token).start()
    except RuntimeError as error:
        assert "nothing to serve" in str(error)
    try:
        # No signal reaches another thread: that is no reason not to serve there.
        await asyncio.to_thread(Reach(url, token).run)
    except RuntimeError as error:
        assert "nothing to serve" in str(error), error


@check
async def a_sidecar_that_says_nothing_is_not_waited_for(reach):
    from aiohttp import web
    from agent_reach._serve import link

    connections = []

    async def ticket(request):
        return web.json_response({"url": f"ws://{request.host}/v1/channel", "ticket": "one"}, status=201)

    async def silent(request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        connections.append(socket)
        async for _ in socket:
            pass
        return socket

    app = web.Application()
    app.add_routes([web.post("/v1/channel", ticket), web.get("/v1/channel", silent)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    usual, link._HANDSHAKE = link._HANDSHAKE, 0.2
    log = logging.getLogger("agent_reach")
    log.setLevel(logging.ERROR)
    agent = Reach(f"http://127.0.0.1:{runner.addresses[0][1]}", "any")
    agent.serve("python.work.other@1.0.0")(lambda payload: payload)
    starting = asyncio.ensure_future(agent.start())
    try:
        for _ in range(200):
            if len(connections) > 1:
                break
            await asyncio.sleep(0.05)
        assert len(connections) > 1, "it waits for the first for ever"
    finally:
        link._HANDSHAKE = usual
        log.setLevel(logging.NOTSET)
        starting.cancel()
        await asyncio.wait([starting])
        await agent.close()
        await runner.cleanup()


@check
async def a_cancellation_in_the_moment_of_the_result_is_not_lost(reach):
    for moments in range(4):
        work = asyncio.get_running_loop().create_future()
        waiting = asyncio.create_task(within(5, work))
        for _ in range(moments):
            await asyncio.sleep(0)
        work.set_result(1)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled(), moments
    assert await within(5, asyncio.sleep(0, 7)) == 7
    late = asyncio.ensure_future(asyncio.sleep(30))
    try:
        await within(0.01, late)
        raise AssertionError("it has waited")
    except asyncio.TimeoutError:
        assert late.cancelled()


class Lines(logging.Handler):
    """What the SDK has logged meanwhile, which nobody else is told."""

    def __enter__(self):
        self.lines = []
        log = logging.getLogger("agent_reach")
        self.before = log.propagate
        log.propagate = False
        log.addHandler(self)
        return self.lines

    def __exit__(self, *_):
        log = logging.getLogger("agent_reach")
        log.removeHandler(self)
        log.propagate = self.before

    def emit(self, record):
        self.lines.append(record.getMessage() + (f" {record.exc_info[1]}" if record.exc_info else ""))


async def made(handler, then, threads=4):
    """The answer that `handler` makes, given to `then`."""
    handlers = Handlers()
    handlers.open(threads)
    handlers.add(Offer("a.b.c@1.0.0", {}), handler)
    try:
        await handlers.run("a.b.c", "1.0.0", None, {}, then)
    finally:
        handlers.close()


async def sent(handler, most=100_000):
    """What of the answer goes over the channel: messages, and data."""
    messages, data = [], []

    async def text(message):
        assert len(json.dumps(message, allow_nan=False)) <= most, "above the limit of a message"
        messages.append(message)

    async def binary(frame):
        data.append(frame[6:])
        running.credited(len(frame) - 6)

    running = Running(7, text, binary, 1_000, most)
    await made(handler, running.answer)
    return messages, b"".join(data)


def raising(error):
    def handler(payload):
        raise error

    return handler


def giving(value, answer_type="", **headers):
    async def handler(payload, ctx):
        ctx.answer_type = answer_type
        ctx.answer_headers.update({name.replace("_", "-"): one for name, one in headers.items()})
        return value

    return handler


@check
async def json_that_is_text_already_goes_as_it_is(_):
    for text in ('{"from": "a model"}', b'{"n": 12345678901234567890}', memoryview(b"[1]")):
        ((message,), _) = await sent(giving(text, "application/json"))
        told = message["result"]
        assert told["content_type"] == "application/json" and "payload" not in told, told
        plain = text.encode() if isinstance(text, str) else bytes(text)
        assert base64.b64decode(told["payload_base64"]) == plain, told
    for value, kind in (({"a": 1}, "application/json"), (None, "application/json"), ([1], "application/problem+json")):
        ((message,), _) = await sent(giving(value, kind))
        assert message["result"] == {"status": 200, "content_type": kind, "headers": {}, "payload": value}, message


@check
async def an_answer_above_what_a_message_may_hold_goes_in_frames_an_error_as_well(_):
    rows = "x" * 20_000
    messages, data = await sent(raising(AgentError(422, {"rows": rows})), 10_000)
    assert messages[0]["method"] == "reach.head" and messages[0]["params"]["status"] == 422, messages
    assert messages[1:] == [{"jsonrpc": "2.0", "id": 7, "result": {}}] and json.loads(data) == {"rows": rows}, messages
    ((message,), _) = await sent(raising(AgentError(422, {"rows": rows})))
    assert message["error"]["data"]["status"] == 422 and message["error"]["data"]["payload"] == {"rows": rows}, message
    messages, data = await sent(giving(b"y" * 20_000), 10_000)
    assert len(messages) == 2 and len(data) == 20_000


@check
async def an_error_with_something_in_it_that_is_no_json_is_told_all_the_same(_):
    circle = {}
    circle["again"] = circle
    odd = {"at": time, "ratio": math.nan, "all": [math.inf]}
    for data, told in ((odd, {"at": str(time), "ratio": None, "all": [None]}), (circle, str(circle)), ({(1, 2): 3}, "{(1, 2): 3}")):
        ((message,), _) = await sent(raising(AgentError(409, data)))
        assert message["error"]["data"]["status"] == 409 and message["error"]["data"]["payload"] == told, message


@check
async def a_plain_function_that_runs_out_of_something_has_failed_and_does_not_hang(_):
    with Lines() as lines:
        ((message,), _) = await asyncio.wait_for(sent(lambda payload: next(iter(()))), 5)
    assert message["error"]["data"]["status"] == 500 and "StopIteration" in lines[0], (message, lines)


@check
async def headers_of_an_answer_go_as_text_and_one_that_cannot_be_sent_is_left_out_and_told(_):
    with Lines() as lines:
        given = {"X_City": "Łódź", "x_count": 5, "x_fresh": True, "x_two": "a\r\nx: 1", "x_none": None, "x_half": "\ud83d", "Content_Length": 3}
        ((message,), _) = await sent(giving({"done": True}, "", **given, **{"no name": "x"}))
        told = message["result"]
        assert told["payload"] == {"done": True}, told
        assert told["headers"] == {"x-city": "Łódź".encode().decode("latin-1"), "x-count": "5", "x-fresh": "true"}, told
        names = [line.split("the header ")[1].split(":")[0] for line in lines]
        assert names == ["'x-two'", "'x-none'", "'x-half'", "'Content-Length'", "'no name'"], lines
        del lines[:]
        ((message,), _) = await sent(giving("text", "text/\0", **{f"x{i}": "v" for i in range(70)}))
        assert message["result"]["content_type"] == "text/plain; charset=utf-8" and len(message["result"]["headers"]) == 60, message
        assert len(lines) == 11, lines


@check
async def a_character_whose_halves_lie_on_two_pieces_comes_through_whole(_):
    async def joined(*pieces):
        def handler(payload):
            yield from pieces

        return (await sent(handler))[1].decode()

    assert await joined("hi \ud83d", "\ude42!") == "hi 🙂!"
    assert await joined("\ud83d", "", "\ude42") == "🙂"
    assert await joined("a\ud83d") == "a\ufffd"
    assert await joined("a\ud83d", b"b") == "a\ufffdb"
    ((message,), _) = await sent(giving("\ude42 \ud83d\ude42", "text/plain"))
    assert base64.b64decode(message["result"]["payload_base64"]).decode() == "\ufffd 🙂"


@check
async def plain_functions_have_threads_of_their_own_as_many_as_is_said(_):
    begun, go_on = [], threading.Event()

    def handler(payload):
        begun.append(threading.current_thread().name)
        assert go_on.wait(10)

    async def done(answer):
        assert answer.status == 200, answer

    handlers = Handlers()
    handlers.open(40)
    handlers.add(Offer("a.b.c@1.0.0", {}), handler)
    calls = [asyncio.ensure_future(handlers.run("a.b.c", "", None, {}, done)) for _ in range(50)]
    while len(begun) < 40:
        await asyncio.sleep(0.005)
    # Those of the loop, in which names are looked up, are free.
    assert await asyncio.wait_for(asyncio.to_thread(lambda: 7), 5) == 7
    assert len(begun) == 40 and len(set(begun)) == 40, begun
    # One that waits for a thread can be given up.
    calls[-1].cancel()
    await asyncio.wait([calls[-1]])
    go_on.set()
    await asyncio.wait(calls)
    handlers.close()
    assert len(begun) == 49 and calls[-1].cancelled() and all(not call.exception() for call in calls[:-1]), len(begun)
    agent = Reach(url, token)
    agent.serve("a.b.c@1.0.0")(handler)
    try:
        await agent.start(threads=0)
    except ValueError as error:
        assert "threads" in str(error), error
        return
    raise AssertionError("none at all was taken")


@check
async def a_problem_document_of_the_agents_own_is_the_agents_error(reach):
    for code in (1042, 3001, 6001):
        problem = {"code": code, "status": 409, "detail": "sold out"}
        headers = {"content-type": "application/problem+json", "reach-code": "6001", "reach-provider": "a.b.1"}
        result = result_in(422, headers, json.dumps(problem).encode(), 1.0)
        assert (result.code, result.status, result.data, result.provider) == (6001, 422, problem, "a.b.1"), result
        assert result_in(200, {**headers, "reach-code": "0"}, json.dumps(problem).encode(), 1.0).ok
    own = {"content-type": "application/problem+json", "reach-code": "2002"}
    result = result_in(404, own, b'{"code":2002,"data":null,"error":{"detail":"none"},"trace_id":"t"}', 1.0)
    assert (result.code, result.data, result.error.detail, result.trace_id) == (2002, None, "none", "t"), result
    try:
        await reach.stream("node.work.echo@^9.0").head()
    except ReachError as error:
        assert error.code == 2002 and error.data is None, error


@check
async def a_stream_has_the_time_that_is_left_when_it_is_sent(reach):
    ahead = 0.0
    with patch.object(_scope, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + ahead)), reach.deadline(9.0):
        stream = reach.stream("node.work.echo", 1)
        own = reach.stream("node.work.echo", 1, deadline=2.0)
        ahead = 4.0
        left = json.loads(await read(stream))["left_ms"]
        assert 4000 < left <= 5000, left
        left = json.loads(await read(own))["left_ms"]
        assert 1000 < left <= 2000, left


@check
async def a_sign_of_life_that_is_refused_is_said_and_none_is_sent_without_a_credential(_):
    from aiohttp import web

    asked, refusal = [], {"status": 0}

    async def answer(request):
        asked.append(f"{request.method} {request.path}")
        if request.path == "/v1/health":
            return web.json_response({"registry": {}})
        if refusal["status"]:
            code = 4001 if refusal["status"] == 401 else 2003
            return web.json_response({"code": code, "error": {"code": code, "detail": "not now"}}, status=refusal["status"])
        return web.json_response({"caller": "a.b.1", "lease_ms": 90})

    async def until(true):
        for _ in range(500):
            if true():
                return
            await asyncio.sleep(0.01)
        raise AssertionError((asked, lines))

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    agent = Reach(f"http://127.0.0.1:{runner.addresses[0][1]}", "any")
    agent.serve("python.work.other@1.0.0", acl="public")(lambda payload: payload)
    beat = "POST /v1/agents/a.b.1/heartbeat"
    with Lines() as lines:
        serving = await agent.start(port=0)
        await until(lambda: asked.count(beat) > 1)
        refusal["status"] = 503
        await until(lambda: asked.count("POST /v1/agents") > 2)
        assert len(lines) == 1 and "not now" in lines[0] and "trying again" in lines[0], lines
        refusal["status"] = 0
        beats = asked.count(beat)
        await until(lambda: asked.count(beat) > beats + 2)
        refusal["status"] = 401
        error = await failure(asyncio.wait_for(serving.closed(), 5))
        assert error.code == Code.UNAUTHENTICATED, error
        assert len(lines) == 2 and "not registered at the sidecar any more" in lines[1], lines
        del asked[:]
        await asyncio.sleep(0.1)
        assert asked == [], asked
        await agent.close()
    await runner.cleanup()


async def main():
    for function in checks:
        problem = ""
        try:
            async with Reach(url, token) as reach:
                await asyncio.wait_for(function(reach), 20)
        except BaseException:
            problem = traceback.format_exc()
        print(json.dumps({"name": function.__name__.replace("_", " "), "ok": not problem, "problem": problem}))
    print(json.dumps({"codes": {one.name.lower(): [int(one), is_retryable(one)] for one in Code}}))


asyncio.run(main(), debug=False)
