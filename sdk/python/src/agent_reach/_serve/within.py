"""A limit of time that loses no cancellation. Up to Python 3.11 `asyncio.wait_for` swallows one that comes in the very moment
in which what it waits for is done; in a loop that tries again, as the channel's does, that would be waiting for ever."""

from __future__ import annotations

import asyncio
from typing import Awaitable, TypeVar

T = TypeVar("T")


async def within(seconds: float, work: Awaitable[T]) -> T:
    """The result of `work`, or asyncio.TimeoutError after `seconds`; `work` is cancelled then, and when the caller is."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task], timeout=seconds)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task])
        raise
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            raise asyncio.TimeoutError
    return task.result()
