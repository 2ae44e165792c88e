"""What a handler is told beside the payload, and what it may say beside its answer."""

from __future__ import annotations

from typing import Dict, Mapping, Optional

from .._scope import Scope


class Context:
    def __init__(self, capability: str, version: str, headers: Mapping[str, str], scope: Scope) -> None:
        self.capability = capability
        """The canonical name that was asked for."""
        self.version = version
        """The exact version."""
        self.headers = headers
        """Lower-case names."""
        self.status = 200
        """Of the answer."""
        self.answer_type = ""
        """Content type of the answer; empty = by what is returned: JSON, bytes, or text chunks."""
        self.answer_headers: Dict[str, str] = {}
        """Further headers of the answer."""
        self.definitely_success = False
        """An empty or neutral answer that is a success all the same: never retried, never held against this agent."""
        self._scope = scope

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "")

    @property
    def caller(self) -> str:
        """Agent id, as the sidecar has established it; empty when it did not say."""
        return self.headers.get("reach-caller", "")

    @property
    def idempotency_key(self) -> Optional[str]:
        """The same key means the same work."""
        return self.headers.get("idempotency-key")

    @property
    def sequence_id(self) -> Optional[str]:
        """The caller's conversation."""
        return self.headers.get("reach-sequence-id")

    @property
    def affinity(self) -> Optional[str]:
        """Key by which the conversation was led here."""
        return self.headers.get("reach-affinity")

    @property
    def task_id(self) -> Optional[str]:
        """Of work that came as a message: by this id it is extended, and its end told when it was taken with 202. None: it is a call."""
        return self.headers.get("reach-task-id")

    @property
    def message_type(self) -> Optional[str]:
        """Of a message, such as task_request; None: it is a call."""
        return self.headers.get("reach-message-type")

    @property
    def in_reply_to(self) -> Optional[str]:
        """The task to which its sender says that a message belongs."""
        return self.headers.get("reach-in-reply-to")

    @property
    def tags(self) -> Dict[str, str]:
        """Of a message."""
        pairs = (pair.partition("=") for pair in self.headers.get("reach-tags", "").split(",") if pair)
        return {name: value for name, _, value in pairs}

    @property
    def trace_id(self) -> str:
        """32 hex digits; empty = none."""
        return self.headers.get("traceparent", "")[3:35]

    @property
    def left(self) -> float:
        """Seconds left for the answer; inf when the sidecar did not say."""
        return self._scope.left
