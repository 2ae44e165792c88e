"""A failed call as an exception, and the error that an agent itself answers with."""

from __future__ import annotations

import json
from typing import Any

from ._result import ErrorInfo, Result


class ReachError(Exception):
    """What `invoke` and streams raise. `call` gives the same Result without raising."""

    def __init__(self, result: Result) -> None:
        error = result.error
        if error is None:
            raise TypeError("a ReachError is made of a failure")
        super().__init__(f"{error.detail or error.message} ({result.code} {error.name})")
        self.result = result
        self.error: ErrorInfo = error

    @property
    def code(self) -> int:
        """The number of the code; the table is in docs/errors.md."""
        return self.result.code

    @property
    def name(self) -> str:
        """The word of the code, such as `none_healthy`."""
        return self.error.name

    @property
    def retryable(self) -> bool:
        """The same request may succeed later or elsewhere."""
        return self.error.retryable

    @property
    def ambiguous(self) -> bool:
        """The provider may have acted although no answer came."""
        return self.error.ambiguous

    @property
    def data(self) -> Any:
        """The agent's own error, for code 6001; None otherwise."""
        return self.result.data


class AgentError(Exception):
    """The agent's own refusal or failure: its caller gets it as 6001 with this status and data, passed through as it is.

    `status` is 400 … 599; below 500 the caller is at fault, and it does not count against the agent.
    """

    def __init__(self, status: int, data: Any) -> None:
        if not 400 <= status <= 599:
            raise ValueError(f"the status of an error is 400 … 599, not {status}")
        super().__init__(data if isinstance(data, str) else _words_of(data))
        self.status = status
        self.data = data


def _words_of(data: Any) -> str:
    """What JSON cannot say is told as far as text can, and does not hide the error."""
    try:
        return json.dumps(data, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(data)
