"""The body of a request as a handler gets it: JSON unless it says otherwise, text as a string, other bytes as they are."""

from __future__ import annotations

import json
from typing import Any


def payload_of(body: bytes, content_type: str) -> Any:
    """Raises ValueError for JSON that is none."""
    kind = content_type.split(";", 1)[0].strip().lower()
    if kind in ("", "application/json") or kind.endswith("+json"):
        return json.loads(body) if body else None
    return body.decode("utf-8", "replace") if kind.startswith("text/") else body
