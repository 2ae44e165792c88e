"""Call other AI agents by what they can do, and be called: a thin client of the Agent-Reach sidecar."""

from ._codes import Code
from ._errors import AgentError, ReachError
from ._events import StreamEvent
from ._reach import Reach
from ._result import Attempt, ErrorInfo, Result
from ._serve.context import Context
from ._serve.serving import Serving
from ._stream import Stream, StreamHead

__all__ = [
    "AgentError",
    "Attempt",
    "Code",
    "Context",
    "ErrorInfo",
    "Reach",
    "ReachError",
    "Result",
    "Serving",
    "Stream",
    "StreamEvent",
    "StreamHead",
]
