"""The Python agent of the SDK's tests: the same behaviours as `node-agent.ts`. Arguments: url, token, `channel` or a port.
Writes one line of JSON when it serves, and serves until SIGTERM."""

import asyncio
import json
import signal
import sys
import time

from agent_reach import AgentError, Reach

url, token, how = sys.argv[1:4]
reach = Reach(url=url, token=token)
seen = {"hung": 0, "cancelled": 0, "pulled": 0}


@reach.serve("python.work.echo@1.0.0")
async def echo(payload, ctx):
    return {
        "payload": {"bytes": len(payload)} if isinstance(payload, bytes) else payload,
        "capability": ctx.capability,
        "version": ctx.version,
        "caller": ctx.caller,
        "left_ms": ctx.left * 1000,
        "trace_id": ctx.trace_id,
        "idempotency_key": ctx.idempotency_key,
        "sequence_id": ctx.sequence_id,
        "affinity": ctx.affinity,
        "content_type": ctx.content_type,
        "path": ctx.headers.get("reach-path"),
        "own": ctx.headers.get("x-own"),
    }


@reach.serve("python.work.fail@1.0.0")
async def fail(payload):
    if payload.get("unfit"):
        return {1, 2}
    if payload.get("gives_up"):
        own = asyncio.ensure_future(asyncio.sleep(60))
        own.cancel()
        await own
    if payload.get("crash"):
        raise RuntimeError("a secret of the agent")
    raise AgentError(payload["status"], {"why": payload["why"]})


@reach.serve("python.work.count@1.0.0")
async def count(payload):
    for i in range(payload["n"]):
        if i == payload.get("break_at"):
            raise AgentError(409, {"at": i})
        seen["pulled"] += 1
        kind = payload.get("kind", "text")
        yield f"{i} " if kind == "text" else {"i": i} if kind == "json" else bytes(payload["size"])
        await asyncio.sleep(payload.get("pause_ms", 0) / 1000)


@reach.serve("python.work.hang@1.0.0")
async def hang(payload):
    seen["hung"] += 1
    try:
        await asyncio.sleep(payload.get("ms", 60_000) / 1000)
        return {"hung": True}
    except asyncio.CancelledError:
        seen["cancelled"] += 1
        raise


@reach.serve("python.work.hang_stream@1.0.0")
async def hang_stream(payload):
    try:
        yield "first"
        await asyncio.sleep(60)
    finally:
        seen["cancelled"] += 1


@reach.serve("python.work.seen@1.0.0")
async def seen_so_far(payload):
    return seen


@reach.serve("python.work.relay@1.0.0")
async def relay(payload, ctx):
    result = await reach.invoke(payload["target"], payload["payload"])
    return {"left_ms": ctx.left * 1000, "trace_id": ctx.trace_id, "data": result.data, "provider": result.provider}


@reach.serve("python.work.relay_stream@1.0.0")
async def relay_stream(payload):
    async for text in reach.stream(payload["target"], payload["payload"]):
        yield text


@reach.serve("python.work.big@1.0.0")
async def big(payload):
    return b"x" * payload["bytes"] if payload.get("raw") else {"text": "x" * payload["bytes"]}


@reach.serve("python.work.words@1.0.0")
def words(payload):
    """A plain generator, which blocks: it runs in threads."""
    for word in payload["words"]:
        time.sleep(0.02)
        yield f"{word} {len(payload['words'])}\n"


@reach.serve("python.work.definite@1.0.0")
async def definite(payload, ctx):
    ctx.definitely_success = True
    ctx.status = 404
    return {"found": None}


async def main():
    serving = await reach.start(port=None if how == "channel" else int(how), grace=3)
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    print(json.dumps({"ready": True, "port": serving.port}), flush=True)
    await asked.wait()
    await reach.close()


asyncio.run(main())
