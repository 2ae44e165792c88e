"""Messages by the Python client, checked from within: one line of JSON a check. Arguments: url and token. Says RESTART when
the sidecar is to be restarted, and goes on at a line on stdin."""

import asyncio
import json
import sys
import traceback

from agent_reach import InboxError, Reach, ReachError
from agent_reach._scope import scope_now
from agent_reach._serve.context import Context

url, token, order_token = sys.argv[1:4]
NAME = "crm.order.query"
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


@check
async def a_cast_is_durable_and_its_result_is_the_tasks(reach):
    task = await reach.cast(f"{NAME}@^1.0", {"n": 1}, priority="high", idempotency_key="py-1", tags={"a": "b"})
    told = task.accepted
    assert (told.task_id, told.durable, told.capability, told.version, told.lane, told.power_id) == (
        task.id,
        "stream",
        NAME,
        "1.0.0",
        "high",
        "py-1",
    ), told
    result = await task.result(10)
    assert result["n"] == 1 and result["key"] == "py-1", result
    status = await task.status()
    assert (status.state, status.is_final, status.by, status.attempts, status.code) == ("done", True, "crm.order.1", 1, 0), status
    assert (await reach.task(task.id).wait()).state == "done"
    assert await task.cancel() == "too_late"
    failed = await failure((await reach.cast(NAME, {"fail": True}, agent="crm.order.1")).result())
    assert failed.name == "provider_error" and failed.data == {"why": "no such order"} and not failed.ambiguous, failed
    typed = await reach.cast(NAME, b"abc", content_type="text/x-own", reply_to="inbox")
    assert (await typed.result())["type"] == "text/x-own"
    assert (await failure(reach.task("0123456789").status())).code == 4003
    await failure(reach.cast("crm.order.gone", 1))
    waiting = await reach.cast(role="nobody_has_it", payload={"n": 2}, expires=60)
    assert not (await waiting.wait(0.1)).is_final
    assert await waiting.cancel() in ("cancelled", "requested")
    again = await reach.invoke(NAME, {"n": 1}, idempotency_key="py-1")
    assert again.replay and again.data["n"] == 1, again
    assert not (await reach.invoke(NAME, {"n": 1}, idempotency_key="py-2")).replay
    assert (await failure((await reach.cast(NAME, {"n": 99}, idempotency_key="py-1")).result())).name == "key_reused"


@check
async def an_agent_that_has_taken_work_says_later_how_it_ended(reach):
    async def received(task):
        for _ in range(1000):
            if (await task.status()).state == "received":
                return
            await asyncio.sleep(0.01)
        raise AssertionError(await task.status())

    async with Reach(url, token=order_token) as order:
        task = await reach.cast(NAME, {"later": True}, message_type="report", tags={"lang": "de"})
        await received(task)
        assert await order.extend(task.id) > 29
        assert (await failure(reach.extend(task.id))).code == 4003, "not by another"
        await order.done(task.id, {"sum": 3})
        assert await task.result(10) == {"sum": 3}
        assert (await failure(order.done(task.id, {"sum": 4}))).code == 4003, "it has ended"
        failing = await reach.cast(NAME, {"later": True})
        await received(failing)
        await order.done(failing.id, b"no", status=422, content_type="text/plain")
        failed = await failure(failing.result(10))
        assert (failed.name, failed.data) == ("provider_error", "no"), failed
    told = {"reach-task-id": task.id, "reach-message-type": "report", "reach-tags": "lang=de,at=x/y"}
    context = Context(NAME, "1.0.0", told, scope_now())
    assert (context.task_id, context.message_type, context.in_reply_to) == (task.id, "report", None)
    assert context.tags == {"lang": "de", "at": "x/y"}
    assert Context(NAME, "1.0.0", {}, scope_now()).tags == {}


seqs = []


@check
async def the_inbox_is_read_once_in_order_across_a_restart(reach):
    seen = []

    def numbers():
        return [one.data["n"] for one in seen if isinstance(one.data, dict) and (one.data.get("n") or 0) >= 10]

    async def read():
        async for message in reach.inbox():
            seen.append(message)

    async def until(count):
        for _ in range(2000):
            if len(numbers()) >= count:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{numbers()} and no more")

    for n in range(10, 14):
        await reach.cast(NAME, {"n": n})
    reading = asyncio.ensure_future(read())
    await until(4)
    print("RESTART", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    for n in range(14, 17):
        await reach.cast(NAME, {"n": n})
    await until(7)
    # The last one has been taken when the next one is asked for.
    await asyncio.sleep(0.05)
    reading.cancel()
    await asyncio.wait([reading])
    assert sorted(numbers()) == list(range(10, 17)), numbers()
    seqs.extend(one.seq for one in seen)
    assert seqs == sorted(set(seqs)), seqs
    last = seen[-1]
    assert (last.kind, last.state, last.by, last.message_type) == ("state", "done", "crm.order.1", "task_request"), last.fields


@check
async def what_was_taken_is_acknowledged(reach):
    await reach.cast(NAME, {"n": 17})
    inbox = reach.inbox(ack="manual").__aiter__()
    message = await inbox.__anext__()
    assert message.data["n"] == 17, message.fields
    await message.ack()
    await inbox.aclose()
    again = []
    inbox = reach.inbox(from_seq=seqs[0], ack="manual").__aiter__()
    async for one in inbox:
        again.append(one.seq)
        if len(again) == len(seqs):
            break
    await inbox.aclose()
    assert again == seqs, again


@check
async def a_position_that_is_ahead_is_an_error(reach):
    inbox = reach.inbox(from_seq=99_999).__aiter__()
    error = await failure(inbox.__anext__())
    assert isinstance(error, InboxError) and error.why == "ahead" and error.available_from > 0, error


async def main():
    # A machine that is busy is nothing to complain of.
    asyncio.get_running_loop().slow_callback_duration = 10.0
    for function in checks:
        problem = ""
        async with Reach(url, token) as reach:
            try:
                await asyncio.wait_for(function(reach), 40)
            except BaseException:
                problem = traceback.format_exc()
        print(json.dumps({"name": function.__name__, "problem": problem}), flush=True)


asyncio.run(main())
