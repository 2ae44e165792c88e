"""Reads binary frames out of bytes, however they were cut on the way: version, type, length (big endian), payload."""

from __future__ import annotations

import struct
from typing import Iterator, Tuple

FRAMES_TYPE = "application/vnd.agent-reach.frames"
VERSION = 1
HEAD = struct.Struct(">BBI")
MAX_FRAME_BYTES = 16_777_216

DATA = 1
END = 2
ERROR = 3
KEEP_ALIVE = 4
CREDIT = 5


class FrameError(ValueError):
    """The bytes are no frames."""


class FrameReader:
    def __init__(self) -> None:
        self._rest = bytearray()
        self.is_over = False
        """The end (or error) frame has come."""

    def push(self, data: bytes) -> Iterator[Tuple[int, bytes]]:
        """Type and payload of every frame that is whole by now."""
        self._rest += data
        at = 0
        try:
            while len(self._rest) - at >= HEAD.size:
                if self.is_over:
                    raise FrameError("bytes follow the end frame")
                version, kind, length = HEAD.unpack_from(self._rest, at)
                if version != VERSION:
                    raise FrameError(f"a frame of version {version} cannot be read here, only version {VERSION}")
                if not DATA <= kind <= KEEP_ALIVE or length > MAX_FRAME_BYTES:
                    raise FrameError(f"no frame has the type {kind} and {length} bytes")
                end = at + HEAD.size + length
                if len(self._rest) < end:
                    break
                payload = bytes(self._rest[at + HEAD.size : end])
                at = end
                self.is_over = kind in (END, ERROR)
                yield kind, payload
        finally:
            del self._rest[:at]
