"""How long to wait before the next try to reach the sidecar: twice as long each time, anywhere in that time, so that
agents do not come back in step."""

from __future__ import annotations

import asyncio
import random

from .within import within

# A sidecar that restarts is back in well under a second.
_FIRST = 0.1
_MAX = 5.0


class Backoff:
    def __init__(self) -> None:
        self._tries = 0

    def reset(self) -> None:
        """It worked."""
        self._tries = 0

    def next(self) -> float:
        """Seconds, at least a quarter of the present step."""
        step = min(_MAX, _FIRST * 2 ** min(self._tries, 16))
        self._tries += 1
        return float(step * random.uniform(0.25, 1.0))


async def pause(seconds: float, leaving: asyncio.Event) -> None:
    """Returns after the time, or at once when the event is set."""
    try:
        await within(seconds, leaving.wait())
    except asyncio.TimeoutError:
        pass
