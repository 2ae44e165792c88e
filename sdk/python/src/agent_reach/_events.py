"""Server-sent events and lines, out of text however it was cut. For agents that stream in these forms."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterator, List

_LINE_END = re.compile("\r\n|\r|\n")


@dataclass(frozen=True)
class StreamEvent:
    event: str
    """`message` when the event names none."""
    data: str
    id: str
    """The last id that was given."""


class LineReader:
    """Complete lines; what stands after the last line end waits. Line ends are CR, LF or both."""

    def __init__(self) -> None:
        # Of the line under way; put together once, when its end has come.
        self._pieces: List[str] = []
        # A CR ends its line at once; an LF that comes after it is its other half.
        self._after_cr = False

    def push(self, text: str) -> List[str]:
        if not text:
            return []
        lines = _LINE_END.split(text[1:] if self._after_cr and text.startswith("\n") else text)
        self._after_cr = text.endswith("\r")
        rest = lines.pop()
        if lines:
            lines[0] = self.finish() + lines[0]
        if rest:
            self._pieces.append(rest)
        return lines

    def finish(self) -> str:
        """A last line without an end; empty = none."""
        rest, self._pieces = "".join(self._pieces), []
        return rest


class EventReader:
    def __init__(self) -> None:
        self._lines = LineReader()
        self._is_first = True
        self._event = ""
        self._id = ""
        self._data: List[str] = []

    def push(self, text: str) -> Iterator[StreamEvent]:
        """Events that are complete; an unfinished one at the end of the stream is none, as the standard has it."""
        if self._is_first and text:
            self._is_first = False
            text = text[1:] if text.startswith("\ufeff") else text
        for line in self._lines.push(text):
            if line:
                self._field(line)
                continue
            event, data = self._event, self._data
            self._event, self._data = "", []
            if data:
                yield StreamEvent(event or "message", "\n".join(data), self._id)

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
