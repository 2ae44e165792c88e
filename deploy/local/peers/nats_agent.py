"""A parcel service on NATS by the micro convention (nats-py's own implementation). It knows nothing of Agent-Reach.

Usage: nats_agent.py <nats url>. Says {"id": …} in one line when it serves.
"""

import asyncio
import json
import sys

import nats
import nats.micro
from nats.micro.request import ServiceError


async def track(request):
    asked = json.loads(request.data)
    if asked.get("parcel") == "none":
        raise ServiceError("404", "no such parcel")
    if asked.get("parcel") == "bug":
        raise RuntimeError("a bug in the parcel service")
    await asyncio.sleep(asked.get("seconds", 0))
    await request.respond(json.dumps({"parcel": asked.get("parcel"), "at": "Köln", "grams": 9007199254740993}).encode())


async def headers(request):
    await request.respond(json.dumps(dict(request.headers or {})).encode())


async def main():
    connection = await nats.connect(sys.argv[1], name="parcels")
    service = await nats.micro.add_service(connection, name="parcels", version="1.4.0", description="Where a parcel is")
    group = service.add_group(name="parcels")
    await group.add_endpoint(name="track", handler=track)
    await group.add_endpoint(name="headers", handler=headers)
    print(json.dumps({"id": service.id}), flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
