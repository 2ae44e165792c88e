"""Call other AI agents by what they can do, and be called: a thin client of the Agent-Reach sidecar."""

from ._codes import Code
from ._errors import AgentError, ReachError
from ._events import StreamEvent
from ._inbox import Inbox, InboxError, InboxMessage
from ._reach import Reach
from ._result import Attempt, ErrorInfo, Result
from ._serve.context import Context
from ._serve.serving import Serving
from ._stream import Stream, StreamHead
from ._task import Accepted, Task, TaskStatus

__all__ = [
    "Accepted",
    "AgentError",
    "Attempt",
    "Code",
    "Context",
    "ErrorInfo",
    "Inbox",
    "InboxError",
    "InboxMessage",
    "Reach",
    "ReachError",
    "Result",
    "Serving",
    "Stream",
    "StreamEvent",
    "StreamHead",
    "Task",
    "TaskStatus",
]
