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
        self._rest = ""

    def push(self, text: str) -> List[str]:
        text = self._rest + text
        # The other half of a CR LF may still come.
        held = "\r" if text.endswith("\r") else ""
        lines = _LINE_END.split(text[:-1] if held else text)
        self._rest = lines.pop() + held
        return lines

    def finish(self) -> str:
        """A last line without an end; empty = none."""
        rest, self._rest = self._rest, ""
        return rest[:-1] if rest.endswith("\r") else rest


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
