"""A message as the user of the SDK puts it, as a request to the sidecar. Nothing is judged, and nothing is sent twice."""

from __future__ import annotations

import base64
import json
from typing import Any, Mapping, Optional
from urllib.parse import quote

from ._ask import Ask
from ._scope import Scope

# The sidecar answers when the message is durable, or says within ten seconds that it is not.
_LIMIT = 30.0


def cast_ask(
    target: Optional[str],
    payload: Any,
    scope: Scope,
    *,
    role: Optional[str],
    agent: Optional[str],
    message_type: Optional[str],
    priority: Optional[str],
    idempotency_key: Optional[str],
    sequence_id: Optional[str],
    tags: Optional[Mapping[str, str]],
    retryable: Optional[bool],
    expires: Optional[float],
    deadline: Optional[float],
    reply_to: Optional[str],
    in_reply_to: Optional[str],
    best_effort: bool,
    headers: Optional[Mapping[str, str]],
    content_type: Optional[str],
) -> Ask:
    # What a message inherits is trace, path and conversation: it outlives the work that it is part of, and so its time.
    named = {
        "reach-sequence-id": sequence_id or scope.sequence_id or None,
        "reach-path": scope.path or None,
        "traceparent": scope.traceparent or None,
        "tracestate": scope.tracestate or None,
        "reach-message-type": message_type,
        "reach-priority": priority,
        "idempotency-key": idempotency_key,
        "reach-tags": None if not tags else ", ".join(f"{key}={value}" for key, value in tags.items()),
        "reach-retryable": None if retryable is None else str(bool(retryable)).lower(),
        "reach-expires": None if expires is None else f"{round(expires * 1000)}ms",
        "reach-deadline-total-ms": None if deadline is None else str(round(deadline * 1000)),
        "reach-reply-to": reply_to,
        "reach-in-reply-to": in_reply_to,
        "reach-best-effort": "1" if best_effort else None,
        "reach-role": role,
        "reach-agent": agent,
    }
    written = {name: value for name, value in named.items() if value is not None}
    written.update({name.lower(): value for name, value in (headers or {}).items()})
    is_bytes = isinstance(payload, (bytes, bytearray, memoryview))
    # NaN and Infinity are no JSON.
    body = bytes(payload) if is_bytes else json.dumps(payload, allow_nan=False, separators=(",", ":")).encode()
    said = written.get("content-type") or ((content_type or "application/octet-stream") if is_bytes else "application/json")
    if target is not None:
        written["content-type"] = said
        return Ask("POST", "/v1/cast/" + quote(target, safe=""), written, body, _LIMIT)
    written["content-type"] = "application/json"
    kind = json.dumps(said).encode()
    if is_bytes:
        text = b'{"payload_base64":"' + base64.b64encode(body) + b'","content_type":' + kind + b"}"
    else:
        text = b'{"payload":' + body + b',"content_type":' + kind + b"}"
    return Ask("POST", "/v1/messages", written, text, _LIMIT)
