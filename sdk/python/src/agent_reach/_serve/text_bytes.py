"""Text that comes in pieces, as UTF-8. A character whose halves (surrogates, as JSON writes them) lie on two pieces is one all
the same; half a character to which no other half comes is one mark."""

from __future__ import annotations


class TextBytes:
    def __init__(self) -> None:
        self._half = ""
        """The first half of a character whose second half has not come."""

    def push(self, piece: str) -> bytes:
        text = self._half + piece
        self._half = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
        return bytes_of(text[:-1] if self._half else text)

    def rest(self) -> bytes:
        """What is held back when no more text comes."""
        half, self._half = self._half, ""
        return bytes_of(half)


def bytes_of(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
