"""The headers that a handler has given its answer, as they can be sent. The answer is worth more than one odd header: what
cannot be sent is left out and told, and so is what says how the connection is framed, which the handler cannot know."""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping, Optional

from .._http import log

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")
# A control character would end the header.
_TEXT = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_FRAMING = frozenset({"connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"})
# A sidecar takes 64 with 12,288 characters in all: what is added behind this has its room.
_MAX_HEADERS = 60
_MAX_CHARS = 12_000


def sendable_headers(given: Mapping[Any, Any], capability: str) -> Dict[str, str]:
    """Names come out in lower case; of one that stands there twice the last counts. Values are texts, not encoded yet."""
    headers: Dict[str, str] = {}
    count = chars = 0
    for name, value in given.items():
        text = sendable_text(value)
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            _leave_out(capability, name, "no header has such a name")
        elif name.lower() in _FRAMING:
            _leave_out(capability, name, "it is said by the connection")
        elif text is None:
            _leave_out(capability, name, "its value is no text that a header can have")
        elif count == _MAX_HEADERS or chars + len(name) + len(text.encode()) > _MAX_CHARS:
            _leave_out(capability, name, f"an answer has at most {_MAX_HEADERS} headers with {_MAX_CHARS} characters in all")
        else:
            headers[name.lower()] = text
            count += 1
            chars += len(name) + len(text.encode())
    return headers


def sendable_type(said: Any, otherwise: str, capability: str) -> str:
    """The content type that the handler has said, or the other one when it has said none that can be sent."""
    if not said:
        return otherwise
    text = sendable_text(said)
    if text is None:
        _leave_out(capability, "content-type", "it is no text that a header can have")
    return text or otherwise


def sendable_text(value: Any) -> Optional[str]:
    """None = no header can have that value."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, (str, int, float)):
        return None
    text = str(value)
    # Half a character has no bytes either.
    return text if _TEXT.fullmatch(text) is not None and not _HALVES.search(text) else None


_HALVES = re.compile("[\ud800-\udfff]")


def wire_text(text: str) -> str:
    """As UTF-8, one character a byte: what a header of that text is on the wire."""
    return text if text.isascii() else text.encode().decode("latin-1")


def _leave_out(capability: str, name: Any, why: str) -> None:
    log.warning("the answer to %s goes without the header %r: %s", capability, str(name)[:64], why)
