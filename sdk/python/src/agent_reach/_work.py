"""What an agent says of work that it has taken with 202 and goes on with: that it takes longer, and how it ended."""

from __future__ import annotations

import json
from typing import Any, Optional
from urllib.parse import quote

from ._ask import Ask
from ._http import Http
from ._result import parsed
from ._task import failure_in

_LIMIT = 15.0


async def tell_done(http: Http, task_id: str, result: Any, status: Optional[int], content_type: Optional[str]) -> None:
    is_bytes = isinstance(result, (bytes, bytearray, memoryview))
    # NaN and Infinity are no JSON.
    body = bytes(result) if is_bytes else json.dumps(result, allow_nan=False, separators=(",", ":")).encode()
    headers = {"content-type": (content_type or "application/octet-stream") if is_bytes else "application/json"}
    if status is not None:
        headers["reach-status"] = str(status)
    ask = Ask("POST", f"/v1/tasks/{quote(task_id, safe='')}/done", headers, body, _LIMIT)
    answered, told, text, elapsed_ms = await http.ask(ask)
    if answered != 200:
        raise failure_in(http, ask, answered, told, text, elapsed_ms)


async def extend(http: Http, task_id: str) -> float:
    ask = Ask("POST", f"/v1/tasks/{quote(task_id, safe='')}/extend", {}, None, _LIMIT)
    answered, told, text, elapsed_ms = await http.ask(ask)
    left = parsed(text)
    if answered != 200 or not isinstance(left, dict) or not isinstance(left.get("left_ms"), (int, float)):
        raise failure_in(http, ask, answered, told, text, elapsed_ms)
    return float(left["left_ms"]) / 1000
