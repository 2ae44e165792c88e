"""The Result as the sidecar tells it. Every call comes to one, whatever happened, also when the sidecar itself could not
be asked: then the client writes it, with a code of the same table."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, Optional
from urllib.parse import unquote

from ._codes import Code, is_retryable, name_of


@dataclass(frozen=True)
class Attempt:
    provider: str
    version: str
    at_ms: float
    """Since the call was accepted."""
    elapsed_ms: float
    code: int
    status: int
    started: str
    """`not_started`, `started` or `done`."""
    detail: str = ""


@dataclass(frozen=True)
class ErrorInfo:
    code: int
    name: str
    message: str
    retryable: bool
    """The same request may succeed later or elsewhere."""
    ambiguous: bool
    """The provider may have acted although no answer came."""
    detail: str


@dataclass(frozen=True)
class Result:
    code: int
    """0 = it succeeded."""
    data: Any = None
    """The answer; of a failure the agent's own error, for code 6001, and None otherwise."""
    error: Optional[ErrorInfo] = None
    status: int = 0
    """The provider's own status; 0 when none came."""
    elapsed_ms: float = 0.0
    definitely_success: bool = False
    degraded: bool = False
    """A fallback answered."""
    provider: Optional[str] = None
    """Agent id; None when no provider answered."""
    version: Optional[str] = None
    attempts: List[Attempt] = field(default_factory=list)
    trace_id: str = ""
    """Empty when the sidecar was not reached."""
    retry_after_ms: float = 0.0
    """When to come back; 0 = not said."""
    no_retry: bool = False
    """Nobody on the way back should repeat it."""
    replay: bool = False
    """The first answer to this key once more: no provider was asked."""
    cause: Optional[str] = None
    """What went wrong before the fallback, or before the time was over."""
    decision: Any = None
    """What every stage decided, when the call was made with the header `reach-explain: 1`."""

    @property
    def ok(self) -> bool:
        return self.code == 0


def parsed(body: bytes) -> Any:
    """None when it is not JSON (or `null`)."""
    try:
        return json.loads(body)
    except ValueError:
        return None


def result_from(fields: Any, no_retry: bool) -> Optional[Result]:
    """From the JSON of an envelope, a problem document or the end of a stream; None when it is none of them."""
    if not isinstance(fields, dict) or not isinstance(fields.get("code"), int):
        return None
    code: int = fields["code"]
    attempts = [_attempt(one) for one in fields.get("attempts") or []]
    return Result(
        code=code,
        data=fields.get("data"),
        error=None if code == 0 else _error(fields.get("error"), code),
        # A problem document's status is that of the HTTP answer; without an attempt no provider has one.
        status=_number(fields, "status", 0) if code == 0 or attempts else 0,
        elapsed_ms=_number(fields, "elapsed_ms", 0.0),
        definitely_success=fields.get("definitely_success") is True,
        degraded=fields.get("degraded") is True,
        provider=fields.get("provider"),
        version=fields.get("version"),
        attempts=attempts,
        trace_id=fields.get("trace_id") or "",
        retry_after_ms=_number(fields, "retry_after_ms", 0.0),
        no_retry=no_retry,
        replay=fields.get("replay") is True,
        cause=fields.get("cause"),
        decision=fields.get("decision"),
    )


# What to do about it is known here: the sidecar cannot tell how its caller was started.
_NO_TOKEN = "no token was sent: set REACH_TOKEN, or give token="


def result_in(status: int, headers: Mapping[str, str], body: bytes, elapsed_ms: float, is_anonymous: bool = False) -> Result:
    """From an HTTP answer of the sidecar. What is none of a sidecar's is a failure that says so."""
    result = _as_told(status, headers, body, elapsed_ms)
    if result.error is None or result.code != Code.UNAUTHENTICATED or not is_anonymous:
        return result
    detail = f"{result.error.detail or result.error.message}; {_NO_TOKEN}"
    return replace(result, error=replace(result.error, detail=detail))


def _as_told(status: int, headers: Mapping[str, str], body: bytes, elapsed_ms: float) -> Result:
    code = headers.get("reach-code")
    no_retry = headers.get("reach-retry") == "none"
    is_problem = headers.get("content-type", "").startswith("application/problem+json")
    # The agent's own error may be a problem document too: then the code is the headers' alone.
    if code is None or (is_problem and code not in ("0", str(int(Code.PROVIDER_ERROR)))):
        found = result_from(parsed(body), no_retry)
        if found is not None and (code is None or str(found.code) == code):
            return found
    if code is None:
        return own_failure(Code.BAD_RESPONSE, f"the answer (status {status}) is not a sidecar's", True, elapsed_ms)
    data = parsed(body)
    return result_of_headers(status, headers, elapsed_ms, body.decode("utf-8", "replace") if data is None and body else data)


def result_of_headers(status: int, headers: Mapping[str, str], elapsed_ms: float, data: Any = None) -> Result:
    """What the headers say, of an answer whose body came apart from them."""
    code = int(headers.get("reach-code", "0"))
    error = None
    if code != 0:
        detail = unquote(headers.get("reach-detail", ""))
        error = ErrorInfo(code, name_of(code), name_of(code), is_retryable(code), headers.get("reach-ambiguous") == "true", detail)
    return Result(
        code=code,
        data=data,
        error=error,
        status=status,
        elapsed_ms=float(headers.get("reach-elapsed-ms", elapsed_ms)),
        definitely_success=headers.get("reach-definitely-success") == "true",
        degraded=headers.get("reach-degraded") == "true",
        provider=headers.get("reach-provider"),
        version=headers.get("reach-version"),
        trace_id=headers.get("reach-trace-id", ""),
        retry_after_ms=float(headers.get("reach-retry-after-ms", 0)),
        no_retry=headers.get("reach-retry") == "none",
        replay=headers.get("reach-replay") == "true",
    )


def own_failure(code: Code, detail: str, ambiguous: bool, elapsed_ms: float = 0.0) -> Result:
    """What the client itself has to say: the sidecar could not be asked, or did not finish."""
    name = name_of(code)
    return Result(code=int(code), error=ErrorInfo(int(code), name, name, is_retryable(code), ambiguous, detail), elapsed_ms=elapsed_ms)


def _error(fields: Any, code: int) -> ErrorInfo:
    error: Dict[str, Any] = fields if isinstance(fields, dict) else {}
    name = error.get("name") or name_of(code)
    return ErrorInfo(
        code=code,
        name=name,
        message=error.get("message") or name,
        retryable=error.get("retryable") is True,
        ambiguous=error.get("ambiguous") is True,
        detail=error.get("detail") or "",
    )


def _attempt(fields: Mapping[str, Any]) -> Attempt:
    return Attempt(
        provider=fields.get("provider") or "",
        version=fields.get("version") or "",
        at_ms=_number(fields, "at_ms", 0.0),
        elapsed_ms=_number(fields, "elapsed_ms", 0.0),
        code=_number(fields, "code", 0),
        status=_number(fields, "status", 0),
        started=fields.get("started") or "",
        detail=fields.get("detail") or "",
    )


def _number(fields: Mapping[str, Any], name: str, otherwise: Any) -> Any:
    value = fields.get(name)
    return value if isinstance(value, (int, float)) else otherwise
