"""One call as the user of the SDK puts it, as an HTTP request to the sidecar: target, body and headers. Nothing is judged."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any, Dict, Mapping, Optional
from urllib.parse import quote

from ._scope import Scope, budget_text, scope_headers


@dataclass(frozen=True)
class Ask:
    method: str
    path: str
    headers: Dict[str, str]
    body: Optional[bytes]
    limit: float = math.inf
    """Seconds that the caller gives it; inf = not said."""


def timed(ask: Ask, scope: Scope) -> Ask:
    """As it is sent now: with the time that it has from here on, and the sidecar told of it."""
    limit = min(scope.left, ask.limit)
    if limit == math.inf:
        return ask
    return replace(ask, headers={"reach-deadline-ms": str(max(0, math.floor(limit * 1000))), **ask.headers}, limit=limit)


def ask_for(
    base: str,
    target: str,
    payload: Any,
    scope: Scope,
    *,
    deadline: Optional[float],
    budget: Optional[Mapping[str, float]],
    step: Optional[str],
    affinity: Optional[str],
    sequence_id: Optional[str],
    pin: Optional[str],
    tags: Optional[Mapping[str, str]],
    execution: Optional[str],
    idempotency_key: Optional[str],
    headers: Optional[Mapping[str, str]],
    content_type: Optional[str],
) -> Ask:
    """How long it may take is said by `timed`, when it is sent."""
    written = scope_headers(scope)
    named = {
        "reach-budget": None if budget is None else budget_text(budget),
        "reach-step": step,
        "reach-affinity": affinity,
        "reach-sequence-id": sequence_id,
        "reach-pin": pin,
        "reach-tags": None if not tags else ", ".join(f"{key}={value}" for key, value in tags.items()),
        "reach-execution": execution,
        "idempotency-key": idempotency_key,
    }
    written.update({name: value for name, value in named.items() if value is not None})
    if isinstance(payload, (bytes, bytearray, memoryview)):
        body = bytes(payload)
        written["content-type"] = content_type or "application/octet-stream"
    else:
        # NaN and Infinity are no JSON.
        body = json.dumps(payload, allow_nan=False, separators=(",", ":")).encode()
        written["content-type"] = "application/json"
    written.update({name.lower(): value for name, value in (headers or {}).items()})
    return Ask("POST", base + quote(target, safe=""), written, body, math.inf if deadline is None else deadline)
